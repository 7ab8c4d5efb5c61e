"""Order parameters of attention patterns that anyone has, head by head.

A pattern A_ab is compared with two patterns: U, which attends to everything it may alike, and
Pi_ab = delta_{b, a - k}, which copies from k positions before. Projected on both,

    A = alpha U + beta Pi + rest,

with the rest orthogonal to U and Pi. Periodic patterns may attend everywhere, and this is the
decomposition of theory.md ("Order parameters"); causal ones attend to b <= a, where U = 1/(a + 1),
and only rows with a >= k have something to copy from.
Axes: ... anything (step, layer, head, batch), a, b positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcattn import arrays
from mcattn.errors import JobError

TOLERANCE = 1e-3  # of row sums; half precision keeps three digits
VALUES = ("m", "q", "alpha", "beta", "entropy")
_KINDS = ("causal", "periodic")


@dataclass(frozen=True)
class Order:
    """Order parameters, each of the shape of the leading axes.

    m : mean A_{a, a-k} over the rows that can copy. q : mean sum_b A_ab^2. entropy : mean of the
    rows' entropies, as a share of the largest that their number of positions allows.
    offset : the k that was asked for, or the one with the largest m of each pattern.
    """

    kind: str
    offset: np.ndarray
    m: np.ndarray
    q: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    entropy: np.ndarray


def kind_of(A: np.ndarray) -> str:
    """ "causal" if nothing is attended to after its own position, else "periodic"."""
    L = A.shape[-1]
    later = np.triu(np.ones((L, L), dtype=bool), 1)
    return "causal" if L > 1 and not A[..., later].any() else "periodic"


def order(A: np.ndarray, kind: str | None = None, offset: int | None = 1) -> Order:
    """Order parameters of patterns A, shape (..., a, b).

    Parameters
    ----------
    kind : "causal" or "periodic"; by default what the patterns are.
    offset : k; None looks for the largest m, k = 0 (attending to oneself) included.

    Raises
    ------
    JobError : A is not square, holds values that are no probabilities, or rows that do not sum
        to 1; k is not from 0 to L - 1.
    """
    A = checked(A)
    L = A.shape[-1]
    kind = kind or kind_of(A)
    if kind not in _KINDS:
        raise JobError(f"kind is {kind!r}; it must be one of {', '.join(_KINDS)}")
    if offset is not None and not 0 <= offset < L:
        raise JobError(f"the offset is {offset}; it must be from 0 to {L - 1}")
    tried = range(L) if offset is None else (offset,)
    overlaps = np.stack([_overlap(A, j, kind) for j in tried])
    best = overlaps.argmax(axis=0)
    m = np.take_along_axis(overlaps, best[None], axis=0)[0]
    k = np.array(tried)[best]
    alpha, beta = _projected(A, m, k, kind)
    return Order(kind, k, m, (A * A).sum(axis=-1).mean(axis=-1), alpha, beta, _entropy(A, kind))


def load(path: str | Path, name: str = "attention") -> np.ndarray:
    """Attention patterns, shape (..., a, b), from .npy, .npz or HDF5.

    Parameters
    ----------
    name : of the array, where a file holds several.

    Raises
    ------
    JobError : no such array, or no attention; see `order`. The sentence says what was found.
    """
    try:
        return checked(arrays.read(Path(path), "attention array", name))
    except JobError as err:
        text = str(err)
        raise JobError(text if str(path) in text else f"{path}: {text}") from None


def averaged(found: Order, axes: Sequence[int]) -> Order:
    """Means over some of the leading axes; where offsets differ there, the offset is -1.

    Raises
    ------
    JobError : there is no such axis.
    """
    shape = found.m.shape
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            raise JobError(f"there is no axis {axis} to average over: before L x L is {shape}")
    along = tuple(sorted({axis % len(shape) for axis in axes}))
    low, high = found.offset.min(axis=along), found.offset.max(axis=along)
    means = {name: getattr(found, name).mean(axis=along) for name in VALUES}
    return Order(found.kind, np.where(low == high, low, -1), **means)


def rows(found: Order) -> list[dict[str, Any]]:
    """One record for each pattern: its index in the leading axes, offset and values."""
    return [
        {"index": list(i), "offset": int(found.offset[i])}
        | {name: float(getattr(found, name)[i]) for name in VALUES}
        for i in np.ndindex(found.m.shape)
    ]


def plain(found: Order) -> dict[str, Any]:
    """Plain values for JSON: None where a number has no meaning."""
    told = rows(found)
    for row in told:
        row |= {name: None for name in VALUES if not math.isfinite(row[name])}
    return {"kind": found.kind, "patterns": told}


def checked(A: np.ndarray) -> np.ndarray:
    """The patterns in double precision, refused if they are none; see `order`."""
    A = np.asarray(A)
    if A.dtype.kind not in "fiub":
        raise JobError(f"the array holds {A.dtype}; attention is made of numbers")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] < 2:
        raise JobError(
            f"the array has shape {A.shape}; its last two axes must be positions, L x L with L >= 2"
        )
    if not A.size:
        raise JobError(f"the array has shape {A.shape}; it holds no pattern")
    A = A.astype(float)
    bad = ~((A >= -TOLERANCE) & (A <= 1 + TOLERANCE))  # true of nan as well
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise JobError(
            f"the array holds {A[where]:g} at {where}; attention after the softmax is from 0 to 1"
        )
    sums = A.sum(axis=-1)
    off = abs(sums - 1) > TOLERANCE
    if off.any():
        where = tuple(int(i) for i in np.argwhere(off)[0])
        raise JobError(
            f"{off.sum()} of {off.size} rows do not sum to 1; row {where} sums to {sums[where]:.4g}"
        )
    return A


def _overlap(A: np.ndarray, k: int, kind: str) -> np.ndarray:
    """Mean of A_{a, a-k} over the rows that can copy, shape (...)."""
    L = A.shape[-1]
    a = np.arange(k if kind == "causal" else 0, L)
    return A[..., a, a - k].mean(axis=-1)


def _projected(
    A: np.ndarray, m: np.ndarray, k: np.ndarray, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """alpha and beta by least squares; U and Pi are told apart by three scalar products."""
    L = A.shape[-1]
    a = np.arange(L)
    if kind == "causal":
        share = 1 / (a + 1.0)
        rows = L - k
        mixed = np.array([share[j:].sum() for j in range(L)])[k]
        AU = (A * (share[:, None] * (a[:, None] >= a))).sum(axis=(-2, -1))
    else:
        share = np.full(L, 1 / L)
        rows, mixed = np.full_like(k, L), np.ones(k.shape)
        AU = A.sum(axis=(-2, -1)) / L
    UU = share.sum() if kind == "causal" else 1.0
    AP = rows * m
    det = UU * rows - mixed**2
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha, beta = (AU * rows - AP * mixed) / det, (AP * UU - AU * mixed) / det
    return np.where(det > 0, alpha, math.nan), np.where(det > 0, beta, math.nan)


def _entropy(A: np.ndarray, kind: str) -> np.ndarray:
    """Mean entropy of the rows over that of U, shape (...)."""
    L = A.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = -np.where(A > 0, A * np.log(A), 0.0).sum(axis=-1)
    most = np.log(np.arange(1, L + 1)) if kind == "causal" else np.full(L, math.log(L))
    return rows.sum(axis=-1) / most.sum()
