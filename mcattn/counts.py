"""Pair counts of a token table: all that the exact action knows of a data set.

Axes: b, b' positions; v, v' tokens.
"""

from __future__ import annotations

import numpy as np

from mcattn.errors import ModelError

_CHUNK = 8192  # sequences made one-hot at a time


def counts(tokens: np.ndarray, V: int, earlier: np.ndarray | None = None) -> np.ndarray:
    """T, shape (b, b', v, v'): how often tokens v and v' stand at positions b and b' together.

    Parameters
    ----------
    tokens : ids, shape (P, L).
    earlier : counts of other rows of the same table, to be added: T of the first P1 rows is
        that of the first P0 and `counts(tokens[P0:P1], V, T0)`.

    Raises
    ------
    ModelError : the ids are no table of whole numbers 0..V-1.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise ModelError(
            f"tokens have shape {tokens.shape} and type {tokens.dtype}; "
            "they must be whole numbers, (P, L)"
        )
    P, L = tokens.shape
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < V):
        raise ModelError(f"tokens are {tokens.min()} to {tokens.max()}; ids are 0..{V - 1}")
    flat = np.zeros((L * V, L * V))
    for first in range(0, P, _CHUNK):
        hot = np.eye(V)[tokens[first : first + _CHUNK]].reshape(-1, L * V)
        flat += hot.T @ hot
    T = flat.reshape(L, V, L, V).swapaxes(1, 2)
    return T if earlier is None else T + earlier
