"""Filling HDF5 files with a run: rows, checkpoints, views of parts, plain copies.

mcattn.store decides which files there are and in which order; here stands what goes into them.
Axes: t row, r replica.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mcattn import schema
from mcattn.action import SUMS
from mcattn.errors import RunFileError
from mcattn.ladder import Ladder
from mcattn.protocols import States, placed
from mcattn.records import Checkpoint, Exchanged, Pattern, Tables, padded
from mcattn.runfile import legible, open_hdf5

_CHUNK_NUMBERS = 32768
_POSITION = ("stage", "done", "sweep")
_TABLES = ("step", "attempted", "accepted", "drift")
WHOLE = 64  # a level that merging never reaches, so that a finished run's rows stay as they are
_SMALL = ("states", "exchanges")  # groups not worth compressing
_SWAPS = ("attempted", "accepted", "chance")
_UNSCALED = "This is a netCDF dimension but not a netCDF variable."


@dataclass(frozen=True)
class Header:
    """What is known of a run before its first sweep."""

    attributes: dict[str, Any]  # all of schema.ATTRIBUTES but `complete`
    states: States
    replicas: int
    L: int
    ladder: Ladder | None = None
    extra: tuple[schema.Field, ...] = ()  # of schema.EXTRA: the columns of a row after the sums
    set_of: np.ndarray | None = None  # (r,) data set of every replica, if its action is sampled

    @property
    def rows(self) -> tuple[schema.Field, ...]:
        """The datasets that grow with the run."""
        return schema.SAMPLES + schema.PATTERNS + self.extra

    def shape(self, field: schema.Field) -> tuple[int, ...]:
        """Lengths of a field's axes after the first."""
        lengths = {schema.REPLICA: self.replicas, "a": self.L, "b": self.L}
        return tuple(lengths[axis] for axis in field.axes[1:])


@dataclass(frozen=True)
class Commit:
    """Rows and patterns since the last commit, and the state of the run now."""

    sweep: np.ndarray  # (t,)
    state: np.ndarray  # (t, r)
    X: np.ndarray  # (t, r, 5), or with the header's further columns
    patterns: list[Pattern]
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Part:
    """One part on disk: the sweeps it covers and its numbers of rows and patterns.

    level : 0 for a commit, k for 16^k commits merged, WHOLE for a finished run's rows.
    """

    path: Path
    first: int
    last: int
    rows: int
    patterns: int
    level: int

    def length(self, field: schema.Field) -> int:
        """Entries along a field's first axis."""
        return self.rows if field.axes[0] == schema.TIME else self.patterns


def write_part(f: h5py.File, header: Header, commit: Commit) -> None:
    """The rows and patterns of a commit, and the checkpoint that belongs to them."""
    f.attrs["level"] = 0
    columns = {"sweep": commit.sweep, "state": commit.state}
    names = [*SUMS, *(field.name for field in header.extra)]
    columns |= {name: commit.X[..., i] for i, name in enumerate(names)}
    for field in header.rows:
        if field.group != "patterns":
            _dataset(f, field, columns[field.name])
    for field in schema.PATTERNS:
        values = [getattr(pattern, field.name) for pattern in commit.patterns]
        _dataset(f, field, np.array(values).reshape(len(values), *header.shape(field)))
    _write_checkpoint(f, commit.checkpoint)


def read_part(path: Path, first: int, last: int) -> Part:
    """A part's lengths and level, from its file."""
    with open_hdf5(path) as f, legible(path):
        rows, patterns = len(f["samples/sweep"]), len(f["patterns/sweep"])
        return Part(path, first, last, rows, patterns, int(f.attrs["level"]))


def read_checkpoint(path: Path, states: int) -> Checkpoint:
    """The checkpoint in a part, for a plan that may have got further states since."""
    with open_hdf5(path) as f, legible(path):
        group = f["resume"]
        position: dict[str, Any] = {name: int(group.attrs[name]) for name in _POSITION}
        values = {field.name: f[field.path][:] for field in schema.RESUME}
        tables = Tables(*(values.pop(name) for name in _TABLES))
        counts = {name: values.pop(f"swaps_{name}") for name in _SWAPS}
        nothing = np.empty((len(values["phase"]), 0))
        values["memory"] = f[schema.MEMORY.path][:] if schema.MEMORY.path in f else nothing
        exchanged = Exchanged(
            state=values.pop("state"),
            done=int(group.attrs["exchanges"]),
            place=padded(values.pop("place"), states),
            **counts,
        )
        return Checkpoint(**position, tables=tables.padded(states), exchanged=exchanged, **values)


def split_whole(f: h5py.File, whole: h5py.File) -> None:
    """Fill a part with what a finished run held at its last checkpoint."""
    f.attrs["level"] = WHOLE
    kept = _kept(whole)
    for field in _growing(whole):
        _copy_entries(f, field, whole[field.path], kept[field.axes[0]])
    whole.copy("resume", f)


def resume_range(whole: h5py.File) -> int | None:
    """Sweeps done at a finished run's last checkpoint; None if it never had one."""
    return int(whole["resume"].attrs["sweep"]) if "resume" in whole else None


def _growing(f: h5py.File) -> list[schema.Field]:
    """The datasets of a file that grow with its run."""
    fields = schema.SAMPLES + schema.PATTERNS + schema.EXTRA
    return [field for field in fields if field.path in f]


def _kept(whole: h5py.File) -> dict[str, int]:
    attributes = whole["resume"].attrs
    return {schema.TIME: int(attributes["rows"]), schema.PATTERN: int(attributes["patterns"])}


def join_parts(f: h5py.File, parts: list[Part], merged: Part) -> None:
    """The rows and patterns of several parts, and the newest checkpoint, as one part."""
    f.attrs["level"] = merged.level
    with ExitStack() as stack:
        files = [stack.enter_context(open_hdf5(part.path)) for part in parts]
        for field in _growing(files[0]):
            shape = (merged.length(field), *files[0][field.path].shape[1:])
            target = f.create_dataset(field.path, shape, field.dtype, **_storage(shape))
            end = 0
            for file, part in zip(files, parts, strict=True):
                if length := part.length(field):
                    target[end : end + length] = file[field.path][:]
                    end += length
        files[-1].copy("resume", f)


def write_master(f: h5py.File, header: Header, parts: list[Part]) -> None:
    """A file whose datasets show the parts' datasets one after the other."""
    f.attrs.update(header.attributes, complete=False)
    for field in header.rows:
        _view(f, field, parts, header.shape(field))
    count = len(header.states)
    if parts:
        newest = read_checkpoint(parts[-1].path, count)
        _write_states(f, header, newest.tables, newest.exchanged)
    else:
        nothing = Exchanged.nothing(np.zeros(0), count, header.ladder)
        _write_states(f, header, Tables.empty(count), nothing)
    _describe(f)


def copy_master(master: h5py.File, f: h5py.File, header: Header, parts: list[Part]) -> None:
    """A master's content as a plain, complete file, and the checkpoint of the last of `parts`.

    What is written, and in which order, does not depend on how the rows lie in the parts.
    """
    f.attrs.update(header.attributes, complete=True)
    if np.any(master["samples/sweep"][:] < 0):
        raise RunFileError("a part of the run cannot be read; nothing was changed")
    for field in header.rows:
        _copy_entries(f, field, master[field.path], len(master[field.path]))
    for field in schema.STATES + schema.EXCHANGES:
        _dataset(f, field, master[field.path][:])
    _write_sets(f, header)
    _describe(f)
    if parts:
        _write_checkpoint(f, read_checkpoint(parts[-1].path, len(header.states)))
        f["resume"].attrs["rows"] = sum(part.rows for part in parts)
        f["resume"].attrs["patterns"] = sum(part.patterns for part in parts)


def _copy_entries(f: h5py.File, field: schema.Field, source: h5py.Dataset, count: int) -> None:
    """The first entries of a dataset, a slab of whole chunks at a time."""
    shape = (count, *source.shape[1:])
    storage = _storage(shape)
    target = f.create_dataset(field.path, shape, field.dtype, **storage)
    slab = 16 * storage["chunks"][0] if storage else 1
    for start in range(0, count, slab):
        stop = min(count, start + slab)
        target[start:stop] = source[start:stop]


def _write_checkpoint(f: h5py.File, checkpoint: Checkpoint) -> None:
    group = f.create_group("resume")
    for name in _POSITION:
        group.attrs[name] = getattr(checkpoint, name)
    exchanged = checkpoint.exchanged
    group.attrs["exchanges"] = exchanged.done
    values = vars(checkpoint) | vars(checkpoint.tables)
    values |= {"state": exchanged.state, "place": exchanged.place}
    values |= {f"swaps_{name}": getattr(exchanged, name) for name in _SWAPS}
    for field in schema.RESUME:
        group.create_dataset(field.name, data=np.asarray(values[field.name], field.dtype))
    if checkpoint.memory.size:
        group.create_dataset(schema.MEMORY.name, data=checkpoint.memory)


def _write_states(f: h5py.File, header: Header, tables: Tables, exchanged: Exchanged) -> None:
    states = placed(header.states, header.ladder, exchanged.place)
    for field in schema.STATES:
        owner = tables if field.name in _TABLES else states
        _dataset(f, field, getattr(owner, field.name))
    pairs = header.ladder.pairs if header.ladder else np.zeros((2, 0))
    columns = {"low": pairs[0], "high": pairs[1]}
    columns |= {name: getattr(exchanged, name) for name in ("place", *_SWAPS)}
    for field in schema.EXCHANGES:
        _dataset(f, field, columns[field.name])
    _write_sets(f, header)


def _write_sets(f: h5py.File, header: Header) -> None:
    if header.set_of is not None:
        for field in schema.DATA:
            _dataset(f, field, header.set_of)


def _dataset(f: h5py.File, field: schema.Field, values: np.ndarray) -> None:
    values = np.asarray(values, dtype=field.dtype)
    storage = _storage(values.shape) if field.group not in _SMALL else {}
    f.create_dataset(field.path, data=values, **storage)


def _storage(shape: tuple[int, ...]) -> dict[str, Any]:
    """Chunks of whole rows, compressed; nothing for empty datasets."""
    if not np.prod(shape):
        return {}
    row = int(np.prod(shape[1:]))
    chunks = (max(1, min(shape[0], _CHUNK_NUMBERS // row)), *shape[1:])
    return {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True}


def _view(f: h5py.File, field: schema.Field, parts: list[Part], shape: tuple[int, ...]) -> None:
    total = sum(part.length(field) for part in parts)
    if not total:
        f.create_dataset(field.path, shape=(0, *shape), dtype=field.dtype)
        return
    layout = h5py.VirtualLayout((total, *shape), dtype=field.dtype)
    end = 0
    for part in parts:
        if length := part.length(field):
            # HDF5 takes a percent sign in the name of a source as the start of a format.
            name = f"{part.path.parent.name}/{part.path.name}".replace("%", "%%")
            source = h5py.VirtualSource(name, field.path, (length, *shape), field.dtype)
            layout[end : end + length] = source
            end += length
    # A part that cannot be found reads as this.
    missing = -1 if field.dtype.startswith("i") else np.nan
    f.create_virtual_dataset(field.path, layout, fillvalue=missing)


def _describe(f: h5py.File) -> None:
    """Attach meanings, and name every axis through a scale in its group, as netCDF does."""
    for field in schema.TABLE + schema.EXTRA + schema.DATA:
        if field.path not in f:
            continue
        dataset = f[field.path]
        dataset.attrs["long_name"] = field.meaning
        dataset.attrs["units"] = "1"
        for i, axis in enumerate(field.axes):
            name = f"{field.group}/{axis}"
            if name not in f:
                scale = f.create_dataset(name, shape=(dataset.shape[i],), dtype=">f4")
                scale.make_scale(f"{_UNSCALED}{dataset.shape[i]:10d}")
            dataset.dims[i].attach_scale(f[name])
