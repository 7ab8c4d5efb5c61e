"""Reading a run file back: one frozen record of everything that analysis needs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mcattn import schema
from mcattn.action import SUMS
from mcattn.errors import McattnError, RunFileError
from mcattn.model import CopyModel

_TRIES, _PAUSE = 20, 0.05


@dataclass(frozen=True)
class Run:
    """The content of a run file, finished or not. Axes: t time, r replica, k state, p pattern.

    `states`, `patterns`, `exchanges` and `training` hold one array for each name of
    schema.STATES, schema.PATTERNS, schema.EXCHANGES and schema.TRAINING; `exact` one for each of
    schema.EXACT, and "set".
    """

    path: Path
    model: CopyModel
    protocol: str
    seed: int
    job: str
    switch: tuple[float, float] | None
    planned_sweeps: int
    bias_along: str
    complete: bool
    versions: dict[str, str]
    sweep: np.ndarray  # (t,)
    state: np.ndarray  # (t, r)
    X: np.ndarray  # (t, r, 5)
    states: dict[str, np.ndarray]  # each (k,)
    patterns: dict[str, np.ndarray]  # each (p, ...)
    exchanges: dict[str, np.ndarray]  # empty arrays but in a tempering run
    training: dict[str, np.ndarray] = field(default_factory=dict)  # (t, r); a training run's
    exact: dict[str, np.ndarray] = field(default_factory=dict)  # (t, r) and (r,); on data sets

    @property
    def replicas(self) -> int:
        return self.state.shape[1]


def open_run(path: str | Path) -> Run:
    """Read a run file; unfinished and running ones give the rows committed so far.

    Raises
    ------
    RunFileError : no such file, not HDF5, not a run, a format this version cannot read, or
        parts of the run are gone.
    """
    path = Path(path)
    reason = ""
    for _ in range(_TRIES):  # a running run may merge the parts that are just being read
        with open_hdf5(path) as f:
            try:
                with legible(path):
                    check_format(f, path)
                    run = _read(f, path)
            except OSError as err:
                reason = str(err)
            else:
                if not _has_holes(run):
                    return run
                reason = f"{path}.parts was moved, or files were removed from it"
        time.sleep(_PAUSE)
    raise RunFileError(f"{path} cannot be read whole: {reason}")


def _has_holes(run: Run) -> bool:
    """Whether rows were read as fill values, as those of a missing part are."""
    whole = (run.sweep, run.state, run.patterns["sweep"], run.patterns["state"])
    return any((a == -1).any() for a in whole) or any(
        np.isnan(a).any()
        for a in (run.X, run.patterns["scores"], *run.training.values(), *run.exact.values())
    )


@contextmanager
def legible(path: Path) -> Iterator[None]:
    """Turn what h5py says of a damaged file into one sentence; OSError may be a passing state."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError, ValueError) as err:
        if isinstance(err, McattnError):
            raise
        raise RunFileError(f"{path} is damaged: {err}") from None


def open_hdf5(path: Path) -> h5py.File:
    """The file open for reading, without locks, or a RunFileError that says what is there."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise RunFileError(f"{path} {what}; expected a run file")
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as err:
        if "locking flag" in str(err):  # open elsewhere in this process, with locks
            return h5py.File(path, "r")
        raise RunFileError(f"{path} is not a readable HDF5 file: {err}") from None


def check_format(f: h5py.File, path: Path) -> None:
    """Refuse files that are not runs, or runs of another format version."""
    if f.attrs.get("format") != schema.FORMAT:
        held = ", ".join(f) or "nothing"
        raise RunFileError(f"{path} is HDF5 but not an mcattn run (it holds: {held})")
    version = int(f.attrs["format_version"])
    if version != schema.FORMAT_VERSION:
        raise RunFileError(
            f"{path} has run-file format {version}; this version of mcattn reads "
            f"format {schema.FORMAT_VERSION}"
        )


def _read(f: h5py.File, path: Path) -> Run:
    missing = [entry.path for entry in schema.TABLE if entry.path not in f]
    if missing:
        raise RunFileError(f"{path} is damaged: it lacks {', '.join(missing)}")
    switch = f.attrs["switch"]
    return Run(
        path=path,
        model=model_from_json(f.attrs["model"]),
        protocol=str(f.attrs["protocol"]),
        seed=int(f.attrs["seed"]),
        job=str(f.attrs["job"]),
        switch=(float(switch[0]), float(switch[1])) if np.all(np.isfinite(switch)) else None,
        planned_sweeps=int(f.attrs["planned_sweeps"]),
        bias_along=str(f.attrs.get("bias_along", "m")),
        complete=bool(f.attrs["complete"]),
        versions=json.loads(f.attrs["versions"]),
        sweep=f["samples/sweep"][:],
        state=f["samples/state"][:],
        X=np.stack([f[f"samples/{name}"][:] for name in SUMS], axis=-1),
        states={entry.name: f[entry.path][:] for entry in schema.STATES},
        patterns={entry.name: f[entry.path][:] for entry in schema.PATTERNS},
        exchanges={entry.name: f[entry.path][:] for entry in schema.EXCHANGES},
        training=_optional(f, schema.TRAINING),
        exact=_optional(f, schema.EXACT + schema.DATA),
    )


def _optional(f: h5py.File, fields: tuple[schema.Field, ...]) -> dict[str, np.ndarray]:
    return {entry.name: f[entry.path][:] for entry in fields if entry.path in f}


def model_from_json(text: str) -> CopyModel:
    """The CopyModel written in a run file's `model` attribute."""
    fields: dict[str, Any] = json.loads(text)
    if fields.get("tokens") is not None:
        fields["tokens"] = tuple(fields["tokens"])
    return CopyModel(**fields)
