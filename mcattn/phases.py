"""When does a replica count as having switched phase: one rule for sampling and analysis."""

from __future__ import annotations

import numpy as np

UNIFORM, COPY = 0, 1


def follow(m: np.ndarray, phase: np.ndarray, low: float, high: float) -> np.ndarray:
    """Phase of every replica at every row, shape (t, r), given the phases before the first row.

    A replica turns to COPY when m rises above `high` and back to UNIFORM when it falls below
    `low`; in between it keeps its phase, so that noise around one threshold is no switch.

    Parameters
    ----------
    m : copy overlap, shape (t, r).
    phase : phases before the first row, shape (r,).
    """
    marks = np.where(m > high, COPY, np.where(m < low, UNIFORM, -1)).astype(np.int8)
    marks = np.concatenate([np.asarray(phase, dtype=np.int8)[None], marks])
    rows = np.arange(len(marks))[:, None]
    latest = np.maximum.accumulate(np.where(marks < 0, 0, rows), axis=0)
    return np.take_along_axis(marks, latest, axis=0)[1:]
