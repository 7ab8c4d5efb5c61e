"""The files of a run: immutable parts, one for each commit, behind one file name.

RUN.h5 is what users open. While a run goes on, it is a small master whose datasets are views
of the parts in RUN.h5.parts/; at the end it becomes one plain file and the parts go. A part
holds the rows since the last commit together with everything that continuing needs, so data
and checkpoint cannot disagree. Every file is written under a temporary name, flushed to disk
and renamed: no file that can be seen is ever changed, and no reader needs a lock.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py

from mcattn import layout, lock
from mcattn.errors import RunFileError
from mcattn.layout import Commit, Header, Part
from mcattn.records import Checkpoint
from mcattn.runfile import check_format, legible, open_hdf5

_IN_MEMORY = 2**28  # bytes
_FAN = 16  # parts of one level that are merged into one


class Store:
    """The files of one run, held by one process.

    job : text of the job that `path` holds, as it was when last looked at; None for a new run.

    Raises
    ------
    RunFileError : another process holds the run or has changed it since, the folder cannot be
        written, or a part of the run is missing.
    """

    def __init__(self, path: Path, header: Header, job: str | None) -> None:
        self._path, self._header, self._job = path, header, job
        self._folder = parts_folder(path)
        self._parts: list[Part] = []
        self.pending = False  # an extended run, whose file shows the old one until a commit
        with _explained(path):
            self._lock = lock.hold(lock_file(path), path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, or None if nothing was committed yet."""
        if not self._parts:
            return None
        return layout.read_checkpoint(self._parts[-1].path, len(self._header.states))

    def append(self, commit: Commit) -> None:
        """Add a part; once this returns, a crash can no longer lose these rows."""
        part = self._part(
            first=self._parts[-1].last if self._parts else 0,
            last=commit.checkpoint.sweep,
            rows=len(commit.sweep),
            patterns=len(commit.patterns),
            level=0,
        )
        with _explained(self._path):
            _replace(part.path, lambda f: layout.write_part(f, self._header, commit))
            self._parts.append(part)
            merged = self._merge()
            self._write_master()
            self.pending = False
            for old in merged:
                old.path.unlink()

    def finish(self, tail: Commit) -> None:
        """Replace master and parts by one plain file that ends with the rows of `tail`.

        Its checkpoint is the one before the tail, the plan's last block: what follows from
        there is the same under a longer plan, in which that block may be longer.
        """
        with _explained(self._path):
            for part in self._parts:
                if layout.read_part(part.path, part.first, part.last) != part:
                    raise RunFileError(f"{part.path} was changed by another process")
            size = _size([*self._parts, rest := self._write_tail(tail)])
            # In memory, under a name in the folder to which the names of the parts are relative.
            name = self._path.with_name(self._path.name + ".view")
            with h5py.File(name, "w", driver="core", backing_store=False) as view:
                layout.write_master(view, self._header, [*self._parts, rest])
                _replace(
                    self._path,
                    lambda f: layout.copy_master(view, f, self._header, self._parts),
                    size,
                )
            _clear(self._folder)
            self.close()

    def close(self) -> None:
        """Let go of the run; it can be resumed."""
        self._lock.close()

    def _open(self) -> None:
        """Clear away what a crash may have left, and bring the master up to date."""
        with _explained(self._path):
            temporary = _temporary(self._path)
            for leftover in [*self._folder.glob("*.tmp"), *temporary.parent.glob(temporary.name)]:
                leftover.unlink()
            shown = self._shown()
            if shown is None:
                self._parts, self.pending = self._split(), True
                return
            self._parts, merged = _cover(self._folder)
            if (held := sum(part.rows for part in self._parts)) < shown:
                raise RunFileError(
                    f"{self._path} shows {shown} rows, but {self._folder} holds {held} of them: "
                    "files were removed from it, or it was moved without them"
                )
            self._write_master()
            for path in merged:
                path.unlink()

    def _shown(self) -> int | None:
        """Rows that the run's file shows; None for a finished run that is to be extended.

        Looks again, now that the lock is held, at what was found before.
        """
        if self._job is None:
            if self._path.exists() or has_parts(self._path):
                raise RunFileError(f"{self._path} was begun by another process in this moment")
            return 0
        with open_hdf5(self._path) as f:
            check_format(f, self._path)
            if f.attrs["job"] != self._job:
                raise RunFileError(f"{self._path} was changed by another process in this moment")
            if not f.attrs["complete"]:
                return len(f["samples/sweep"])
        if self._header.attributes["job"] == self._job:
            raise RunFileError(f"{self._path} was finished by another process in this moment")
        return None

    def _split(self) -> list[Part]:
        """The one part that a finished run makes when it is extended."""
        for leftover in self._folder.glob("*.h5"):
            leftover.unlink()
        with open_hdf5(self._path) as whole:
            last = layout.resume_range(whole)
            if last is None:
                return []
            path = self._part(0, last, 0, 0, layout.WHOLE).path
            size = self._path.stat().st_size
            _replace(path, lambda f: layout.split_whole(f, whole), size)
        return [layout.read_part(path, 0, last)]

    def _write_tail(self, tail: Commit) -> Part:
        """The rows after the last commit in a file that a crash makes worthless."""
        path = self._folder / "tail.tmp"
        _replace(path, lambda f: layout.write_part(f, self._header, tail))
        return layout.read_part(path, 0, tail.checkpoint.sweep)

    def _part(self, first: int, last: int, rows: int, patterns: int, level: int) -> Part:
        path = self._folder / f"{first:015d}-{last:015d}.h5"
        return Part(path, first, last, rows, patterns, level)

    def _merge(self) -> list[Part]:
        """Merge the last _FAN parts of one level into one of the next, as long as there are any.

        So a run of n commits keeps O(log n) parts and writes each row O(log n) times.
        Returns the parts that are no longer needed once the master has been written.
        """
        replaced: list[Part] = []
        while len(self._parts) >= _FAN and len({p.level for p in self._parts[-_FAN:]}) == 1:
            old = self._parts[-_FAN:]
            merged = self._part(
                first=old[0].first,
                last=old[-1].last,
                rows=sum(part.rows for part in old),
                patterns=sum(part.patterns for part in old),
                level=old[0].level + 1,
            )

            def fill(f: h5py.File, old: list[Part] = old, merged: Part = merged) -> None:
                layout.join_parts(f, old, merged)

            _replace(merged.path, fill, _size(old))
            self._parts[-_FAN:] = [merged]
            replaced += old
        return replaced

    def _write_master(self) -> None:
        _replace(self._path, lambda f: layout.write_master(f, self._header, self._parts))


def parts_folder(path: Path) -> Path:
    """Where the parts of an unfinished run lie."""
    return path.with_name(path.name + ".parts")


def has_parts(path: Path) -> bool:
    """Whether parts of an unfinished run lie beside `path`."""
    return any(parts_folder(path).glob("*.h5"))


def committed_sweeps(path: Path) -> int:
    """Sweeps that the parts of an unfinished run cover."""
    return max((last for _, last, _ in _ranges(parts_folder(path))), default=0)


def newest_commit(path: Path) -> float | None:
    """When the newest part of an unfinished run was written; None before the first."""
    times = []
    for part in parts_folder(path).glob("*.h5"):
        with suppress(FileNotFoundError):  # it was merged into another meanwhile
            times.append(part.stat().st_mtime)
    return max(times, default=None)


def remove_leftovers(path: Path) -> None:
    """Remove the parts that a crash right after the end of the run left behind."""
    if parts_folder(path).exists():
        with _explained(path), lock.hold(lock_file(path), path):
            _clear(parts_folder(path))


def _clear(folder: Path) -> None:
    """Remove what a run has left in its folder, and the folder if nothing else is in it."""
    for pattern in ("*.h5", "*.tmp", "status.json", "lock"):
        for path in folder.glob(pattern):
            path.unlink()
    with suppress(OSError):
        folder.rmdir()


def lock_file(path: Path) -> Path:
    """The file whose lock the writer of a run holds."""
    return parts_folder(path) / "lock"


def attributes_of(path: Path) -> dict[str, Any]:
    """The attributes of a run file, after checking that it is one."""
    with open_hdf5(path) as f, legible(path):
        check_format(f, path)
        return dict(f.attrs)


def _cover(folder: Path) -> tuple[list[Part], list[Path]]:
    """The parts that make up the run, in order, and those that lie merged within others."""
    parts: list[Part] = []
    merged: list[Path] = []
    end = 0
    for first, last, path in sorted(_ranges(folder), key=lambda item: (item[0], -item[1])):
        if last <= end:
            merged.append(path)
            continue
        if first != end:
            raise RunFileError(
                f"{folder} lacks the part from sweep {end} to {first}: "
                "files were removed from it, so the run cannot go on"
            )
        parts.append(layout.read_part(path, first, last))
        end = last
    return parts, merged


def _ranges(folder: Path) -> list[tuple[int, int, Path]]:
    """First and last sweep of every part, from its name."""
    names = [(path.stem.split("-"), path) for path in folder.glob("*.h5")]
    return [(int(first), int(last), path) for (first, last), path in names]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the file system says into one sentence."""
    try:
        yield
    except OSError as err:
        reason = err.strerror or str(err)
        raise RunFileError(f"cannot write {path}: {reason}") from err


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def _replace(path: Path, fill: Callable[[h5py.File], None], size: int = 0) -> None:
    """Write a whole file so that `path` is the old one or the new one, never in between.

    The file is filled in memory first, since HDF5 does not survive a disk that fills up under
    it; one too large for that (`size`, about, in bytes) is begun only if there is room for it.
    """
    temporary = _temporary(path)
    try:
        if size <= _IN_MEMORY:
            with h5py.File(temporary, "w", driver="core", backing_store=False) as f:
                fill(f)
                f.flush()
                image = f.id.get_file_image()
            temporary.write_bytes(image)
        else:
            if shutil.disk_usage(path.parent).free < 1.2 * size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with h5py.File(temporary, "w", locking=False) as f:
                fill(f)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _size(parts: list[Part]) -> int:
    """Bytes that the parts take."""
    return sum(part.path.stat().st_size for part in parts)
