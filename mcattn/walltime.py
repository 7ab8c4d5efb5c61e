"""Time limits: how long a run may take, and when it has to stop to be done in time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mcattn.errors import JobError

_FORMS = "MINUTES, M:S, H:M:S, D-H, D-H:M or D-H:M:S"
_MARGIN_SHARE, _MARGIN_MOST = 0.05, 60.0


def seconds(text: str) -> float:
    """A time as Slurm writes it, in seconds: "90" and "1:30:00" are an hour and a half.

    Raises
    ------
    JobError : the text is no such time, or is zero.
    """
    days, dash, clock = text.strip().rpartition("-")
    fields = clock.split(":")
    numbers = [int(x) for x in ([days] if dash else []) + fields if x.isascii() and x.isdigit()]
    if len(numbers) != len(fields) + bool(dash) or len(fields) > 3:
        raise JobError(f"--walltime {text}: expected {_FORMS}")
    undated = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}
    units = (86400, 3600, 60, 1) if dash else undated[len(fields)]
    total = sum(n * unit for n, unit in zip(numbers, units, strict=False))
    if not total:
        raise JobError(f"--walltime {text}: the time must be longer than zero")
    return float(total)


def granted(environment: Mapping[str, str] = os.environ) -> float | None:
    """Seconds that the batch system leaves this job; None outside a job or without a limit."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    left = int(end) - time.time() if end.isascii() and end.isdigit() else 0.0
    return left if left > 0 else None


class Limit:
    """When to stop: asked after every block, it learns how long a block and its commit take.

    A run stops so early that the slowest stretch between two questions seen so far would still
    fit twice, besides a margin of a twentieth of the limit (at most a minute) for what has not
    been seen yet.

    Parameters
    ----------
    limit : seconds from now; None for no limit.
    """

    def __init__(self, limit: float | None) -> None:
        self._asked: float | None = None
        self._slowest = 0.0
        self._end: float | None = None
        if limit is not None:
            self._end = time.monotonic() + limit - min(_MARGIN_SHARE * limit, _MARGIN_MOST)

    def reached(self) -> bool:
        """Whether it is time to stop."""
        now = time.monotonic()
        if self._asked is not None:
            self._slowest = max(self._slowest, now - self._asked)
        self._asked = now
        return self._end is not None and now + 2 * self._slowest > self._end


def limit(text: str | None) -> Limit:
    """The limit of a command: what the user wrote, else what the batch system granted."""
    return Limit(seconds(text) if text is not None else granted())
