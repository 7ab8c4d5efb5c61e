"""Umbrella windows in the copy overlap, placed and stiffened by the landscape alone.

A window adds strength (m - center)^2 / 2 to the action F. Where F(m) has curvature F'' and
slope F', a window holds its state at the m where center = m + F'/strength, with variance
1/(strength + F''): its strength must exceed the largest -F''. All windows have the same: weaker
ones where the landscape bends less make the path little shorter, and fluctuations of the scores
move the bend. Axes: n points, in m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mcattn import landscape, theory
from mcattn.errors import JobError
from mcattn.model import CopyModel

STIFFNESS = 2.0  # strength over the largest -F''
FLOOR = 10.0  # strength at least (FLOOR / width of the range)^2
LARGEST_M = 0.95
_GRID = 400
_POINTS = 101  # of the path along which the pilot rounds move the windows


@dataclass(frozen=True)
class Windows:
    """A path of windows from the uniform to the copy phase.

    m : where the landscape puts the mean of a window, shape (n,), rising.
    center : of the bias that holds it there, shape (n,).
    count : windows for a rejection rate of about 1/2 between neighbours.
    middle : the m that separates the two phases.
    """

    P: float
    m: np.ndarray
    center: np.ndarray
    strength: float
    count: int
    middle: float


def place(
    model: CopyModel, chi: float, P: float | None, m_range: tuple[float, float] | None
) -> Windows:
    """Windows at P, by default where the landscape has both phases equally deep.

    Neighbouring Gaussian windows at a distance dm of their means reject with probability
    erf(dm sqrt(strength + F'')/2) (as `ladder.respaced`), which gives the length of the path.

    Parameters
    ----------
    m_range : means of the first and last window; by default one standard deviation outside the
        landscape's two minima.

    Raises
    ------
    JobError : linear attention, or a landscape of one phase that leaves P or m_range open.
    """
    if model.attention != "softmax":
        raise JobError(
            "umbrella windows are for softmax attention, which jumps; linear attention changes "
            "continuously: take a fixed or tempering run (and mcattn theory for the exact onset)"
        )
    P, low, high = _ends(model, chi, P, m_range)
    m = np.linspace(low, high, _GRID)
    curvature = _slopes(model, chi, P, m)[1]
    strength = max(STIFFNESS * float(-curvature.min()), (FLOOR / (high - low)) ** 2)
    length = np.sqrt((strength + curvature) / math.pi)
    barrier = np.concatenate([[0.0], np.cumsum((length[1:] + length[:-1]) / 2 * np.diff(m))])
    points = np.interp(np.linspace(0, barrier[-1], _POINTS), barrier, m)
    center = points + _slopes(model, chi, P, points)[0] / strength
    count = max(4, math.ceil(2 * barrier[-1]) + 1)
    return Windows(P, points, center, strength, count, (low + high) / 2)


def _ends(
    model: CopyModel, chi: float, P: float | None, m_range: tuple[float, float] | None
) -> tuple[float, float, float]:
    """P and the means of the first and last window."""
    jump = theory.boundary(model, chi) if P is None or m_range is None else None
    if jump is None and (P is None or m_range is None):
        open_ = " and ".join(n for n, v in (("P", P), ("m_range", m_range)) if v is None)
        raise JobError(
            f"the landscape of L = {model.L}, V = {model.V} at chi = {chi:g} has one phase at "
            f"every P, so that windows cannot be placed; give {open_}"
        )
    if P is None:
        assert jump is not None
        P = jump.P_star
    if m_range is not None:
        return P, *m_range
    assert jump is not None
    low, high = (_width(model, chi, jump.P_star, m) for m in (jump.m_minus, jump.m_plus))
    return P, max(jump.m_minus - low, jump.m_minus / 2), min(jump.m_plus + high, LARGEST_M)


def _width(model: CopyModel, chi: float, P: float, m: float) -> float:
    """Standard deviation of m in the landscape's minimum at m."""
    curvature = _slopes(model, chi, P, m * np.array([0.98, 1, 1.02]))[1][1]
    return 1 / math.sqrt(curvature)


def _slopes(model: CopyModel, chi: float, P: float, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dF/dm and d2F/dm2 of equal rows, shape (n,) each."""
    gap = np.log(m / (1 - m)) + math.log(model.L - 1)
    dm = landscape.softmax_slopes(gap, model.L)[:, 0]
    slope = chi * model.L * landscape.force(gap, model, P, chi) / dm
    return slope, np.gradient(slope, m)
