"""How a run is doing, told from its files alone: cheap, and never in the run's way.

The process that writes a run also leaves a few numbers in RUN.h5.parts/status.json every few
seconds, since commits may be rare. What a killed run had committed is told without them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mcattn import lock
from mcattn.ladder import RoundTrips
from mcattn.lock import this_process
from mcattn.runfile import check_format, open_hdf5
from mcattn.store import committed_sweeps, lock_file, newest_commit, parts_folder

_PULSE_SECONDS = 2.0
_SLAB = 2**20  # states read at a time


@dataclass(frozen=True)
class Status:
    """State of a run. Times are in seconds, rates in sweeps of every replica per second."""

    path: str
    state: str  # "running", "finished" or "interrupted"
    protocol: str
    sweep: int  # done, as last told
    committed: int  # done and safe
    planned: int
    rows: int
    rate: float | None
    left: float | None  # until the planned end at this rate
    checkpoint_age: float | None
    ranks: int | None
    holder: str | None  # process and host that write the run
    silent: float | None  # since that process last told how far it is
    measures: dict[str, float]


class Pulse:
    """Tells, every few seconds, how far the run is; called after every block on rank 0."""

    def __init__(self, path: Path, ranks: int) -> None:
        self._file = parts_folder(path) / "status.json"
        self._ranks = ranks
        self._began: tuple[float, int] | None = None
        self._told = -np.inf

    def __call__(self, done: int, planned: int) -> None:
        now = time.monotonic()
        self._began = self._began or (now, done)
        if now - self._told < _PULSE_SECONDS:
            return
        self._told = now
        seconds, sweeps = now - self._began[0], done - self._began[1]
        rate = sweeps / seconds if sweeps else None
        told = {"holder": this_process(), "ranks": self._ranks, "sweep": done, "rate": rate}
        temporary = self._file.with_suffix(".tmp")
        with suppress(OSError):  # a full disk stops the run at its next commit, not here
            temporary.write_text(json.dumps(told))
            os.replace(temporary, self._file)


def read(path: Path, trips: RoundTrips | None = None) -> Status:
    """The status of the run in `path`.

    Parameters
    ----------
    trips : what earlier looks at this run counted; only rows that came since are read then.

    Raises
    ------
    RunFileError : there is no run in this file.
    """
    holder = lock.holder(lock_file(path), path)
    told = _told(parts_folder(path) / "status.json", holder)
    with open_hdf5(path) as f:
        check_format(f, path)
        planned, complete = int(f.attrs["planned_sweeps"]), bool(f.attrs["complete"])
        protocol, rows = str(f.attrs["protocol"]), len(f["samples/sweep"])
        measures = measured(f, trips or RoundTrips())
    committed = planned if complete else committed_sweeps(path)
    sweep, rate = max(committed, told.get("sweep", 0)), told.get("rate")
    newest = path.stat().st_mtime if complete else newest_commit(path)
    return Status(
        path=str(path),
        state="running" if holder else "finished" if complete else "interrupted",
        protocol=protocol,
        sweep=sweep,
        committed=committed,
        planned=planned,
        rows=rows,
        rate=rate,
        left=(planned - sweep) / rate if rate else None,
        checkpoint_age=None if newest is None else max(0.0, time.time() - newest),
        ranks=told.get("ranks"),
        holder=holder,
        silent=told.get("age"),
        measures=measures,
    )


def follow(path: Path) -> Iterator[Status]:
    """The status again and again, until no process holds the run."""
    trips = RoundTrips()
    while True:
        now = read(path, trips)
        yield now
        if now.holder is None:
            return
        time.sleep(_PULSE_SECONDS)


def measured(f: h5py.File, trips: RoundTrips) -> dict[str, float]:
    """What the sampler says about itself, up to the last commit; only what there is so far."""
    attempted, accepted = f["states/attempted"][:], f["states/accepted"][:]
    seen = attempted > 0
    if not seen.any():
        return {}
    rates = accepted[seen] / attempted[seen]
    measures = {
        "acceptance": float(accepted.sum() / attempted.sum()),
        "lowest acceptance of a state": float(rates.min()),
        "highest acceptance of a state": float(rates.max()),
        "drift of the caches": float(f["states/drift"][:].max()),
    }
    return measures | _exchanged(f, trips)


def _exchanged(f: h5py.File, trips: RoundTrips) -> dict[str, float]:
    """Swaps and round trips of a run with a ladder; nothing without one, or before its first."""
    attempted = f["exchanges/attempted"][:].sum(axis=0)
    if not attempted.sum():
        return {}
    accepted, low = f["exchanges/accepted"][:].sum(axis=0), f["exchanges/low"][:]
    tried = np.flatnonzero(attempted)
    rates = accepted[tried] / attempted[tried]
    weakest = int(rates.argmin())
    _count(f["samples/state"], len(f["states/P"]), trips)
    return {
        "swap acceptance": float(accepted.sum() / attempted.sum()),
        "lowest swap acceptance": float(rates[weakest]),
        "lower state of that pair": float(low[tried[weakest]]),
        "round trips": float(trips.counts.sum()),
    }


def _count(state: h5py.Dataset, states: int, trips: RoundTrips) -> None:
    """Count the rows of /samples/state that `trips` lacks: a week of them fits no small memory."""
    rows = max(1, _SLAB // state.shape[1])
    for start in range(trips.rows, len(state), rows):
        found = state[start : start + rows]
        if (found < 0).any():  # its part was just merged into another: the next look counts it
            return
        trips.add(found, states)


def lines(status: Status) -> str:
    """The status in a few lines for people."""
    share = 100 * status.sweep / status.planned
    out = [
        f"{status.path}: {status.state}, {status.protocol}",
        f"  sweeps      {status.sweep} of {status.planned} ({share:.1f} %), {status.rows} rows",
    ]
    if status.rate:
        out.append(f"  rate        {status.rate:.4g} sweeps/s, {spoken(status.left)} left")
    if status.checkpoint_age is None:
        out.append("  checkpoint  none yet")
    else:
        age = spoken(status.checkpoint_age)
        out.append(f"  checkpoint  {age} ago, after {status.committed} sweeps")
    if status.holder:
        ranks = f", {status.ranks} ranks" if status.ranks else ""
        heard = "" if status.silent is None else f", last heard of {spoken(status.silent)} ago"
        out.append(f"  written by  {status.holder}{ranks}{heard}")
    elif status.state == "interrupted":
        out.append(f"  written by  nobody; go on with: mcattn resume {status.path}")
    out += [f"  {name}: {value:.3g}" for name, value in status.measures.items()]
    return "\n".join(out)


def json_text(status: Status) -> str:
    return json.dumps(asdict(status))


def spoken(seconds: float | None) -> str:
    """A time in the unit that suits it."""
    if seconds is None:
        return "unknown time"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _told(path: Path, holder: str | None) -> dict[str, Any]:
    """What the process that holds the run told last, and how long ago; nothing before that."""
    try:
        told, age = json.loads(path.read_text()), time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return {}
    return {**told, "age": max(0.0, age)} if told["holder"] == holder else {}
