"""How far a run is: a bar on a terminal, one line a minute in a log."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable

_LOG_SECONDS = 60.0


def reporter(name: str) -> Callable[[int, int], None]:
    """A function to be told the sweeps done and planned."""
    return _Bar(name) if sys.stderr.isatty() else _Log(name)


class _Pace:
    """Sweeps per second since the first call; a resumed run does not count its past."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def rate(self, done: int) -> float:
        """Sweeps per second; 0 until there is a second call."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        seconds = now - self._began[0]
        return (done - self._began[1]) / seconds if seconds > 0 else 0.0


class _Bar:
    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        self._pace = _Pace()
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("sweeps, {task.fields[rate]:.0f}/s, left:"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(name, total=None, rate=0.0)
        atexit.register(self._bar.stop)  # a bar left running leaves the cursor hidden

    def __call__(self, done: int, planned: int) -> None:
        self._bar.start()
        self._bar.update(self._task, completed=done, total=planned, rate=self._pace.rate(done))
        if done >= planned:  # whatever is said next belongs below the bar
            self._bar.stop()


class _Log:
    def __init__(self, name: str) -> None:
        self._name, self._pace, self._told = name, _Pace(), time.monotonic()

    def __call__(self, done: int, planned: int) -> None:
        rate = self._pace.rate(done)
        if time.monotonic() - self._told < _LOG_SECONDS:
            return
        self._told = time.monotonic()
        left = f"{(planned - done) / rate / 60:.0f} min left" if rate else "rate unknown yet"
        print(
            f"mcattn: {self._name}: {done} of {planned} sweeps, {rate:.0f} sweeps/s, {left}",
            file=sys.stderr,
            flush=True,
        )
