"""How far a run is: a bar on a terminal, one line a minute in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_LOG_SECONDS = 60.0


def reporter(name: str) -> Callable[[int, int], None]:
    """A function to be told the sweeps done and planned."""
    return _Bar(name) if sys.stderr.isatty() else _Log(name)


class _Bar:
    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.speed:.0f} sweeps/s"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: progress.TaskID | None = None
        self._name = name

    def __call__(self, done: int, planned: int) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(self._name, total=planned, completed=done)
        self._bar.update(self._task, completed=done)
        if done >= planned:
            self._bar.stop()


class _Log:
    def __init__(self, name: str) -> None:
        self._name = name
        self._began: tuple[float, int] | None = None
        self._told = 0.0

    def __call__(self, done: int, planned: int) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began, self._told = (now, done), now
        if now - self._told >= _LOG_SECONDS:
            self._told = now
            rate = (done - self._began[1]) / (now - self._began[0])
            left = (planned - done) / rate if rate else float("inf")
            print(
                f"mcattn: {self._name}: {done} of {planned} sweeps, "
                f"{rate:.0f} sweeps/s, {left / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
