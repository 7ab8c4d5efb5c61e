"""Data sets: token tables of shape (P, L), drawn or read from a file, and their counts.

Data sets are nested: the first P rows of a table are its data set of size P, so that P is a
control parameter at fixed disorder.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np

from mcattn import streams
from mcattn.counts import counts as counts
from mcattn.errors import JobError
from mcattn.model import CopyModel

_NAME = "tokens"
_NUMPY, _HDF5 = (".npy", ".npz"), (".h5", ".hdf5")
_LONGEST = 120  # characters of a library's complaint that are shown


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
    table = _read(path)
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


def _read(path: Path) -> np.ndarray:
    """The table in a file as it stands there."""
    suffix = path.suffix.lower()
    read = _read_numpy if suffix in _NUMPY else _read_hdf5 if suffix in _HDF5 else _read_text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(path)
    except JobError:
        raise
    except Exception as err:  # what a damaged file makes NumPy and h5py raise has no common base
        if "pickle" in str(err):
            raise JobError(f"{path} holds pickled objects; ids must be plain numbers") from None
        reason = " ".join(str(err).split())[:_LONGEST] or type(err).__name__
        raise JobError(f"cannot read token table {path}: {reason}") from None


def _read_text(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8") as f:
        return np.loadtxt(f, ndmin=2)


def _read_numpy(path: Path) -> np.ndarray:
    with path.open("rb") as f:  # NumPy leaves a file open that it cannot read
        found = np.load(f)
        return found if isinstance(found, np.ndarray) else found[_chosen(path, list(found))]


def _read_hdf5(path: Path) -> np.ndarray:
    if not path.is_file():
        raise JobError(f"cannot read token table {path}: no such file")
    with h5py.File(path, "r", locking=False) as f:
        names: list[str] = []
        f.visititems(lambda name, item: names.extend([name] * isinstance(item, h5py.Dataset)))
        return np.asarray(f[_chosen(path, names)][()])


def _chosen(path: Path, names: list[str]) -> str:
    """The array called tokens, or the only one."""
    if _NAME in names or len(names) == 1:
        return _NAME if _NAME in names else names[0]
    held = f"the arrays {', '.join(sorted(names))}" if names else "no array"
    raise JobError(f"{path} holds {held}; it must hold one array, or one called {_NAME}")
