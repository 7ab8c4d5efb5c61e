"""Data sets: token tables of shape (P, L), drawn or read from a file, and their counts.

Data sets are nested: the first P rows of a table are its data set of size P, so that P is a
control parameter at fixed disorder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mcattn import arrays, streams
from mcattn.counts import counts as counts
from mcattn.errors import JobError
from mcattn.jobfile import Data
from mcattn.model import CopyModel

_NAME = "tokens"


def source(table: dict[str, Any] | None) -> Data:
    """Where a job's data sets come from, by its table [data], if it has one."""
    return Data(**(table or {}))


def names(source: Data) -> list[str]:
    """What to call each data set."""
    if source.file is not None:
        return [Path(source.file).name]
    return [f"seed {source.seed + k}" for k in range(source.sets)]


def tables(model: CopyModel, source: Data, rows: int, needed: int) -> list[np.ndarray]:
    """Token tables of all data sets: drawn ones of shape (rows, L), a file's as long as it is.

    Raises
    ------
    JobError : the file holds fewer than `needed` sequences, or no table that fits; see `load`.
    """
    if source.file is None:
        return [draw(model, rows, source.seed + k) for k in range(source.sets)]
    table = load(source.file, model)
    if len(table) < needed:
        raise JobError(f"{source.file} holds {len(table)} sequences; {needed} are needed")
    return [table]


def draw(model: CopyModel, P: int, seed: int) -> np.ndarray:
    """Token ids, shape (P, L), drawn with the model's probabilities; row mu is the same for any P.

    Raises
    ------
    JobError : the seed is not an integer >= 0.
    """
    u = streams.data_generator(seed).random((P, model.L))
    return np.searchsorted(np.cumsum(model.probabilities)[:-1], u, side="right")


def load(path: str | Path, model: CopyModel) -> np.ndarray:
    """Token ids, shape (P, L), from a file of the user's.

    NumPy's .npy, and .npz and HDF5 (.h5, .hdf5) with one array or one called `tokens`; a file
    of any other name is read as text, a sequence a line.

    Raises
    ------
    JobError : no such table, or one that does not fit L and V; the sentence says what was found.
    """
    path = Path(path)
    table = arrays.read(path, "token table", _NAME, text=True)
    if table.dtype.kind not in "iuf":
        raise JobError(f"{path} holds values of type {table.dtype}; ids are whole numbers")
    if table.ndim != 2 or table.shape[1] != model.L:
        raise JobError(f"{path} has shape {table.shape}; it must be (P, {model.L})")
    if not len(table):
        raise JobError(f"{path} holds no sequences; it must hold at least one")
    with np.errstate(invalid="ignore"):
        odd = table % 1 != 0  # true of nan and inf as well
    if odd.any():
        row, column = np.argwhere(odd)[0]
        raise JobError(
            f"{path} holds {table[row, column]:g} in row {row}, column {column}; "
            "ids are whole numbers"
        )
    if table.min() < 0 or table.max() >= model.V:
        raise JobError(f"{path} holds {table.min():g} to {table.max():g}; ids are 0..{model.V - 1}")
    return table.astype(np.int64)
