"""The network and task that a run samples: sizes, priors and ridge, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from mcattn.errors import ModelError

Attention = Literal["softmax", "linear"]
ATTENTIONS = ("softmax", "linear")


@dataclass(frozen=True)
class CopyModel:
    """One-layer, one-head network that learns to copy the previous token.

    The defaults are the standard case of theory.md ("copy16").

    Parameters
    ----------
    L : sequence length, an integer >= 2.
    V : vocabulary size, an integer >= 2.
    attention : "softmax" (rows of A sum to 1) or "linear" (A = S).
    kappa : ridge of the squared loss, > 0.
    g_s : prior variance of a score times chi, > 0.
    g_w : prior variance of a weight times chi, > 0.
    tokens : probabilities of the V tokens, positive, summing to 1; None means uniform.

    Raises
    ------
    ModelError : a parameter is outside its range; the sentence names it.
    """

    L: int = 16
    V: int = 16
    attention: Attention = "softmax"
    kappa: float = 1.0
    g_s: float = 3.0
    g_w: float = 0.03
    tokens: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("L", "V"):
            object.__setattr__(self, name, _size(name, getattr(self, name)))
        if not isinstance(self.attention, str) or self.attention not in ATTENTIONS:
            raise ModelError(f"attention is {self.attention!r}; it must be 'softmax' or 'linear'")
        for name in ("kappa", "g_s", "g_w"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.tokens is not None:
            object.__setattr__(self, "tokens", _probabilities(self.tokens, self.V))

    @property
    def probabilities(self) -> np.ndarray:
        """Probability of every token, shape (v,)."""
        return np.full(self.V, 1 / self.V) if self.tokens is None else np.array(self.tokens)

    @property
    def token_groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct token probabilities p_k and how many tokens share each, both shape (k,).

        Every sum over tokens is a sum over these groups: one term for uniform tokens.
        """
        if self.tokens is None:
            return np.array([1.0 / self.V]), np.array([float(self.V)])
        p, n = np.unique(np.asarray(self.tokens), return_counts=True)
        return p, n.astype(float)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in a job file's [model] table."""
        return asdict(self)


def positive(name: str, value: Any) -> float:
    """The value as a float, or a ModelError that names it."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{name} is {value!r}; it must be a number > 0") from None
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ModelError(f"{name} is {value!r}; it must be finite and > 0")
    return number


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ModelError(f"{name} is {value!r}; it must be an integer >= 2")
    if value < 2:
        raise ModelError(f"{name} is {value}; it must be at least 2")
    return int(value)


def _probabilities(tokens: Sequence[float], V: int) -> tuple[float, ...] | None:
    try:
        p = np.asarray(tokens)
        if p.dtype.kind not in "fiu":
            raise TypeError
        p = p.astype(float)
    except (TypeError, ValueError):
        raise ModelError("tokens must be numbers, the probabilities of the V tokens") from None
    if p.shape != (V,):
        raise ModelError(f"tokens has shape {p.shape}; it needs V = {V} probabilities")
    if not np.all(np.isfinite(p)) or np.any(p <= 0):
        raise ModelError("tokens must all be finite and > 0; leave out tokens that never occur")
    total = math.fsum(p)
    if abs(total - 1) > 1e-9:
        raise ModelError(f"tokens sum to {total:.12g}; probabilities must sum to 1")
    if np.ptp(p) < 1e-15:
        return None
    # Left as they are when they already sum to 1: writing and reading back must not change them.
    return tuple((p if abs(total - 1) < 1e-12 else p / total).tolist())


def temperature(chi: Any) -> float:
    """The inverse temperature as a float, inf for none; ModelError if it is not > 0."""
    if chi == math.inf:
        return math.inf
    if not (isinstance(chi, int | float | np.number) and chi > 0):
        raise ModelError(f"chi is {chi}; it must be > 0, or inf")
    return positive("chi", chi)
