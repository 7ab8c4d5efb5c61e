"""Arrays from files of the user's: NumPy's .npy and .npz, HDF5, and text."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np

from mcattn.errors import JobError

_NUMPY, _HDF5 = (".npy", ".npz"), (".h5", ".hdf5")
_LONGEST = 120  # characters of a library's complaint that are shown


def read(path: Path, what: str, name: str, text: bool = False) -> np.ndarray:
    """The array in a file as it stands there.

    Parameters
    ----------
    what : the array in a sentence, such as "token table".
    name : of the array that is read where there are several.
    text : whether files of other names are text, a row a line; else they are refused.

    Raises
    ------
    JobError : no such file, not readable, or several arrays and none of this name.
    """
    suffix = path.suffix.lower()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if suffix in _NUMPY:
                return _numpy(path, name)
            if suffix in _HDF5:
                return _hdf5(path, what, name)
            if text:
                return _text(path)
    except JobError:
        raise
    except Exception as err:  # what a damaged file makes NumPy and h5py raise has no common base
        if "pickle" in str(err):
            raise JobError(
                f"{path} holds pickled objects; a {what} must be plain numbers"
            ) from None
        reason = " ".join(str(err).split())[:_LONGEST] or type(err).__name__
        raise JobError(f"cannot read {what} {path}: {reason}") from None
    known = ", ".join((*_NUMPY, *_HDF5))
    raise JobError(f"{path} is no {what}; expected one of the endings {known}")


def _text(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8") as f:
        return np.loadtxt(f, ndmin=2)


def _numpy(path: Path, name: str) -> np.ndarray:
    with path.open("rb") as f:  # NumPy leaves a file open that it cannot read
        found = np.load(f)
        return found if isinstance(found, np.ndarray) else found[_chosen(path, list(found), name)]


def _hdf5(path: Path, what: str, name: str) -> np.ndarray:
    if not path.is_file():
        raise JobError(f"cannot read {what} {path}: no such file")
    with h5py.File(path, "r", locking=False) as f:
        names: list[str] = []
        f.visititems(lambda n, item: names.extend([n] * isinstance(item, h5py.Dataset)))
        return np.asarray(f[_chosen(path, names, name)][()])


def _chosen(path: Path, names: list[str], name: str) -> str:
    """The array of this name, or the only one."""
    if name in names or len(names) == 1:
        return name if name in names else names[0]
    held = f"the arrays {', '.join(sorted(names))}" if names else "no array"
    raise JobError(f"{path} holds {held}; it must hold one array, or one called {name}")
