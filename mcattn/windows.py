"""Umbrella windows along an order parameter u, placed and stiffened by theory.

A window adds strength (u - center)^2 / 2 to the action. Where Phi(u) = -ln p(u) has slope Phi'
and curvature Phi'', a window holds its state at the u where center = u + Phi'/strength, with
variance 1/(strength + Phi''): its strength must exceed the largest -Phi''. All windows have the
same: weaker ones where Phi bends less make the path little shorter. Softmax attention: u = m, and
Phi is that of finite-chi theory. Linear attention: u = |tau| or |beta|, and Phi is the landscape's
at each u; the pilot rounds of a run correct the spacing. Axes: n points, in u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from mcattn import action, coexistence, linear_landscape, linear_stages
from mcattn.errors import JobError, ModelError
from mcattn.model import CopyModel

STIFFNESS = 2.0  # strength over the largest -Phi''
FLOOR = 10.0  # strength at least (FLOOR / width of the range)^2
BEYOND = 0.5  # kT above its well at which the range of two phases ends: a standard deviation
TAIL = 4.5  # kT, the same for a single well: three standard deviations
FARTHEST = 0.95  # end of the range in m
MOST = 2000
_GRID, _COARSE, _FREE = 400, 300, 2001
_POINTS = 101  # of the path along which the pilot rounds move the windows


@dataclass(frozen=True)
class Windows:
    """A path of windows from no order to order.

    along : the order parameter u, one of `action.COORDINATES`.
    u : where theory puts the mean of a window, shape (n,), rising.
    center : of the bias that holds it there, shape (n,).
    count : windows for a rejection rate of about 1/2 between neighbours.
    middle : the u beyond which replicas begin in the copy phase; inf if none does.
    """

    along: str
    P: float
    u: np.ndarray
    center: np.ndarray
    strength: float
    count: int
    middle: float


@lru_cache(maxsize=16)  # a job is checked and planned: twice the same
def place(
    model: CopyModel,
    chi: float,
    P: float | None,
    along: str | None,
    ends: tuple[float, float] | None,
) -> Windows:
    """Windows at P, by default where both phases have equal weight, or order sets in.

    Neighbouring Gaussian windows at a distance du of their means reject with probability
    erf(du sqrt(strength + Phi'')/2) (as `ladder.respaced`), which gives the length of the path.

    Parameters
    ----------
    along : by default m for softmax, tau for linear attention.
    ends : means of the first and last window; by default beyond the wells of Phi.

    Raises
    ------
    JobError : an order parameter that this kind of attention does not have, or theory has no
        answer.
    """
    along = along or ("m" if model.attention == "softmax" else "tau")
    if (along == "m") != (model.attention == "softmax"):
        fitting = '"m"' if model.attention == "softmax" else '"tau" or "beta"'
        raise JobError(f"along is {along!r}; for {model.attention} attention it is {fitting}")
    if ends is not None and along == "m" and not 0 < ends[0] < ends[1] < 1:
        raise JobError(f"range is {list(ends)}; in m it must lie between 0 and 1")
    profile = _softmax if along == "m" else _linear
    try:
        if P is None or ends is None:
            balance, u, phi = profile(model, chi, None, along)
            ends = ends or _ends(u, phi, along)
            P = P or balance
        _, u, phi = profile(model, chi, P, along)
    except ModelError as err:
        raise JobError(f"windows cannot be placed: {err}") from None
    middle = sum(ends) / 2 if along == "m" else math.inf
    return Windows(along, _rounded(P), *_path(CubicSpline(u, phi), *ends), middle)


def _path(phi: CubicSpline, low: float, high: float) -> tuple[np.ndarray, np.ndarray, float, int]:
    """u, center, strength and count of the windows from low to high."""
    u = np.linspace(low, high, _GRID)
    slope, bend = phi(u, 1), phi(u, 2)
    strength = max(STIFFNESS * float(-bend.min()), (FLOOR / (high - low)) ** 2)
    density = np.sqrt((strength + bend) / math.pi)
    length = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(u))])
    points = np.interp(np.linspace(0, length[-1], _POINTS), length, u)
    center = points + np.interp(points, u, slope) / strength
    # Rounded: a resumed run plans anew, maybe on a machine that rounds otherwise.
    rounded = np.round(points, 6), np.round(center, 6), _rounded(strength)
    count = max(4, math.ceil(2 * length[-1]) + 1)
    if count > MOST:
        raise JobError(f"this path needs {count} windows, more than {MOST}: narrow its range")
    return *rounded, count


def _rounded(x: float) -> float:
    return float(f"{x:.5g}")


def _ends(u: np.ndarray, phi: np.ndarray, along: str) -> tuple[float, float]:
    """Where the range ends beyond the wells; in tau it begins at zero."""
    wells = 1 + np.flatnonzero((phi[1:-1] < phi[:-2]) & (phi[1:-1] <= phi[2:]))
    first, last = (wells[0], wells[-1]) if wells.size else (phi.argmin(),) * 2
    depth = BEYOND if wells.size > 1 else TAIL
    below = np.flatnonzero(phi[: first + 1] < phi[first] + depth)[0]
    above = last + np.flatnonzero(phi[last:] < phi[last] + depth)[-1]
    low, high = float(u[below]), float(u[above])
    return 0.0 if along == "tau" else low, min(high, FARTHEST) if along == "m" else high


def _softmax(
    model: CopyModel, chi: float, P: float | None, along: str
) -> tuple[float, np.ndarray, np.ndarray]:
    """P, by default that of equal weights, and Phi, shape (n,), at points of m."""
    P, curve = coexistence.sketch(model, chi, P)
    return P, curve.m, -curve.ln_p


def _linear(
    model: CopyModel, chi: float, P: float | None, along: str
) -> tuple[float, np.ndarray, np.ndarray]:
    """P, by default where order or copying sets in; Phi of alpha and beta alone, shape (n,)."""
    if P is None:
        mark = linear_stages.onset if along == "tau" else linear_stages.crossover
        P = mark(model, chi)
    tau, beta = np.abs(linear_landscape.lowest(model, np.array([P]), chi)[0])
    noise = math.sqrt(model.g_s / chi)
    reach = {"beta": beta / math.sqrt(model.L - 1) + 6 * noise}
    reach["tau"] = max(tau + 6 * noise, reach["beta"])
    u = np.linspace(0, 2 * reach[along], _COARSE)
    free = np.linspace(-2, 2, _FREE) * reach["beta" if along == "tau" else "tau"]
    phi = _marginal(model, chi, P, along, u, free)
    inside = u <= u[phi < phi.min() + 2 * TAIL][-1]
    return P, u[inside], phi[inside]


def _marginal(
    model: CopyModel, chi: float, P: float, along: str, u: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """-ln of the weight of all alpha and beta with this tau, or this beta, shape (n,)."""
    one, other = np.meshgrid(u, free, indexing="ij")
    alpha, beta = (one - other, other) if along == "tau" else (other, one)
    X = linear_landscape.symmetric_sums(alpha, beta, model.L)
    # The scores' fluctuations at A = 0; they move the onset. Source: theory.md, point 5.
    X[..., [1, 3]] += model.L * model.g_s / chi
    return -np.asarray(logsumexp(-action.population(X, model, P, chi), axis=1))
