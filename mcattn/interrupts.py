"""Signals that ask a run to stop: SIGTERM, SIGINT and SIGUSR1 set a flag, a second one ends it.

Install the handlers before MPI or the kernels are loaded: a signal that arrives earlier kills.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_AGAIN_AFTER = 1.0  # launchers repeat one request within moments
_asked_at: float | None = None


def install() -> None:
    """Handle the stop signals from now on."""
    for number in _SIGNALS:
        signal.signal(number, _handle)


def requested() -> bool:
    """Whether this process was asked to stop."""
    return _asked_at is not None


def _handle(number: int, frame: FrameType | None) -> None:
    global _asked_at
    import time

    now = time.monotonic()
    if _asked_at is None:
        _asked_at = now
    elif now - _asked_at > _AGAIN_AFTER:
        os._exit(128 + number)  # what was committed stays; nothing else is promised
