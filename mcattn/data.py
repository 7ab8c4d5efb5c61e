"""Data sets: token tables of shape (P, L), drawn or read from a file, and their counts.

Data sets are nested: the first P rows of a table are its data set of size P, so that P is a
control parameter at fixed disorder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mcattn import streams
from mcattn.counts import counts as counts
from mcattn.errors import JobError
from mcattn.model import CopyModel


def draw(model: CopyModel, P: int, seed: int) -> np.ndarray:
    """Token ids, shape (P, L), drawn with the model's probabilities; row mu is the same for any P.

    Raises
    ------
    JobError : the seed is not an integer >= 0.
    """
    u = streams.data_generator(seed).random((P, model.L))
    p = np.full(model.V, 1 / model.V) if model.tokens is None else np.array(model.tokens)
    return np.searchsorted(np.cumsum(p)[:-1], u, side="right")


def load(path: str | Path, model: CopyModel) -> np.ndarray:
    """Token ids, shape (P, L), from a .npy file or a text table.

    Raises
    ------
    JobError : no such table, or one that does not fit L and V; the sentence says what was found.
    """
    path = Path(path)
    try:
        table = np.load(path) if path.suffix == ".npy" else np.loadtxt(path, ndmin=2)
    except (OSError, ValueError) as err:
        raise JobError(f"cannot read token table {path}: {err}") from None
    if table.ndim != 2 or table.shape[1] != model.L:
        raise JobError(f"{path} has shape {table.shape}; it must be (P, {model.L})")
    ids = table.astype(np.int64)
    if (ids != table).any() or ids.min() < 0 or ids.max() >= model.V:
        raise JobError(f"{path} holds {table.min():g} to {table.max():g}; ids are 0..{model.V - 1}")
    return ids
