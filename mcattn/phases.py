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
    phases = np.empty(m.shape, dtype=np.int8)
    now = np.asarray(phase, dtype=np.int8)
    for t in range(m.shape[0]):
        now = np.where(m[t] > high, COPY, np.where(m[t] < low, UNIFORM, now)).astype(np.int8)
        phases[t] = now
    return phases
