"""Where softmax attention changes phase at finite chi, fluctuations of the scores included.

The profile Phi(m; P) = -ln p(m) of `mcattn.finite_chi` is a smooth function of P: a few values of P
give it for a whole range. Two phases exist at P where it has two minima. Axes: n values of m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import brentq

from mcattn import finite_chi, landscape, rows, theory
from mcattn.errors import ModelError
from mcattn.finite_chi import Table, Tilt
from mcattn.model import CopyModel, positive

WIDE = 0.4  # relative half-width of the range of P searched
NODES = 9  # Chebyshev nodes in P
MIDDLE = 0.35  # m whose landscape P begins the search where the landscape has no transition
POINTS = 40  # of the grid of m in each spread of a table
SLIGHT = 1e-3  # relative fall of the state curve up to which it counts as monotone
SMALLEST = 4  # L: the summed rows of shorter sequences have no smooth density
SADDLE_POINTS = 3000  # on either side of the top
COARSE = 2  # gathering of the second estimate, relative to the first


class Value(NamedTuple):
    """A number of this theory and the size of its numerical error."""

    value: float
    error: float


@dataclass(frozen=True)
class Coexistence:
    """The transition between the uniform and the copy phase at one chi.

    P_exact : both phases have equal weights, from sums over all (m, q).
    P_equal_height : both peaks of p(m) are equally high.
    P_saddle : equal weights by the saddle point over the fields of m and q with its Gaussian
        correction; its error contains the distance to P_exact.
    P_lower, P_upper : Phi has two minima between them; nan beyond 40 % of P_exact.
    m_minus, m_plus : <m> in each phase at P_exact; dm is their difference.
    barrier : height of the top of Phi over its minima, in kT, at P_equal_height.
    loss_minus, loss_plus : <test loss> in each phase at P_exact.
    """

    P_exact: Value
    P_equal_height: Value
    P_saddle: Value
    P_lower: Value
    P_upper: Value
    m_minus: Value
    m_plus: Value
    dm: Value
    barrier: Value
    loss_minus: Value
    loss_plus: Value


def coexistence(model: CopyModel, chi: float) -> Coexistence | None:
    """The transition of softmax attention at this chi; None where p(m) never has two peaks.

    The errors are numerical: the change when deviations of the scores are sampled anew and
    gathered more coarsely. Source: docs/theory.md, "Finite chi, softmax".

    Raises
    ------
    ModelError : linear attention, chi not finite and > 0, or an action too steep to be summed.
    """
    chi = _checked(model, chi)
    coarse = rows.sample(model, chi, seed=1, gather=COARSE * rows.GATHER)
    P = _guess(model, chi)
    found = _Range(Table(coarse, model, P, chi, finite_chi.path(coarse, model, P, chi)))
    if found.band is None:
        return None
    P = found.equal_weight()
    fine = rows.sample(model, chi, seed=0)
    tilts = finite_chi.path(fine, model, P, chi)
    estimates = [_numbers(Table(nodes, model, P, chi, tilts)) for nodes in (fine, coarse)]
    if None in estimates:
        return None
    one, other = estimates
    # Gathering changes a result in proportion to the square of its width.
    share = 1 / (COARSE**2 - 1)
    values = {name: Value(one[name], share * abs(one[name] - other[name])) for name in one}
    saddle = _saddle(model, chi, P, tilts, values.pop("top").value)
    exact = values["P_exact"]
    error = abs(saddle - exact.value) + exact.error
    return Coexistence(P_saddle=Value(saddle, error), **values)


def table(model: CopyModel, P: float, chi: float) -> Table:
    """The density of (m, q) for states near P: its profile and averages.

    Raises
    ------
    ModelError : as `coexistence`, or P is not finite and > 0.
    """
    P, chi = positive("P", P), _checked(model, chi)
    nodes = rows.sample(model, chi, seed=0)
    return Table(nodes, model, P, chi, finite_chi.path(nodes, model, P, chi))


class _Range:
    """Phi(m; P) over a range of P around a table's, by Chebyshev interpolation in P."""

    def __init__(self, table: Table) -> None:
        self.center, self.half = table.P, WIDE * table.P
        self.m = table.grid(POINTS)
        nodes = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
        # Not normalised: ln Z turns so sharply at the transition that no polynomial follows.
        values = [-table.ln_p(self.center + x * self.half, self.m) for x in nodes]
        self.coefficients = chebyshev.chebfit(nodes, np.array(values), NODES - 1)
        slopes = np.gradient(np.array(values), self.m, axis=1)
        self.state = self._state_curve(chebyshev.chebfit(nodes, slopes, NODES - 1))
        self.band = self._band()

    def phi(self, P: float) -> np.ndarray:
        """Phi on the grid of m, up to a constant."""
        return chebyshev.chebval((P - self.center) / self.half, self.coefficients)

    def _state_curve(self, slope: np.ndarray) -> np.ndarray:
        """P at which Phi is stationary at each m, nan outside the range."""
        x, derivative = np.zeros(self.m.size), chebyshev.chebder(slope)
        for _ in range(60):
            ratio = _each(slope, x) / _each(derivative, x)
            x = np.clip(x - ratio, -1.001, 1.001)
        return np.where(np.abs(x) <= 1, self.center + x * self.half, np.nan)

    def _band(self) -> tuple[float, float] | None:
        """Ends of the range of P with two minima: where the state curve turns back."""
        P = self.state[np.isfinite(self.state)]
        if P.size < 3:
            return None
        peaks = np.maximum.accumulate(P)
        i = int((peaks - P).argmax())
        if peaks[i] - P[i] <= SLIGHT * self.center:
            return None
        return float(P[i]), float(peaks[i])

    def inside(self, P: float) -> float:
        """P, or nan if it is no more than the end of the range that was searched."""
        return P if abs(P - self.center) < 0.99 * self.half else math.nan

    def phases(self, P: float) -> tuple[int, int, int]:
        """Grid points of the lower minimum, the top and the upper minimum of Phi at P."""
        assert self.band is not None
        phi = self.phi(P)
        inner = phi[1:-1]
        minima = 1 + np.flatnonzero((inner < phi[:-2]) & (inner <= phi[2:]))
        if minima.size < 2:
            raise ModelError(f"Phi has a single minimum at P = {P:.5g}")
        first, second = np.sort(minima[np.argsort(phi[minima])[:2]])
        return first, first + int(phi[first : second + 1].argmax()), second

    def weights(self, P: float) -> float:
        """ln of the ratio of the copy phase's weight to the uniform phase's."""
        phi = self.phi(P)
        _, top, _ = self.phases(P)
        return _ln_sum(-phi[top:], self.m[top:]) - _ln_sum(-phi[: top + 1], self.m[: top + 1])

    def heights(self, P: float) -> float:
        low, _, high = self.phases(P)
        phi = self.phi(P)
        return float(_vertex(phi, low) - _vertex(phi, high))

    def root(self, excess: str) -> float:
        assert self.band is not None
        low, high = self.band
        edge = 0.02 * (high - low)
        function = getattr(self, excess)
        if function(low + edge) > 0 or function(high - edge) < 0:
            raise ModelError("the phases' weights do not balance while both exist")
        return float(brentq(function, low + edge, high - edge, rtol=1e-9))

    def equal_weight(self) -> float:
        return self.root("weights")


def _ln_sum(ln_p: np.ndarray, m: np.ndarray) -> float:
    """ln of the integral of exp(ln_p) over m."""
    top = float(ln_p.max())
    return top + math.log(np.trapezoid(np.exp(ln_p - top), m))


def _each(coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Chebyshev series number i at x[i]; coefficients have shape (degree + 1, n)."""
    return chebyshev.chebval(x, coefficients, tensor=False)


def _vertex(y: np.ndarray, i: int) -> float:
    """Extremum of the parabola through y[i - 1], y[i], y[i + 1]."""
    before, here, after = y[i - 1 : i + 2]
    return float(here - (after - before) ** 2 / (8 * (after - 2 * here + before)))


def _numbers(table: Table) -> dict[str, float] | None:
    """Everything about the transition near this table's P."""
    near = _Range(table)
    if near.band is None:
        return None
    P, level = near.root("weights"), near.root("heights")
    _, top, _ = near.phases(P)
    split = float(near.m[top])
    uniform, copy = (table.averages(P, *ends) for ends in ((0, split), (split, 1)))
    phi = near.phi(level)
    low, peak, _ = near.phases(level)
    return {
        "P_exact": P,
        "P_equal_height": level,
        "P_lower": near.inside(near.band[0]),
        "P_upper": near.inside(near.band[1]),
        "m_minus": uniform["m"],
        "m_plus": copy["m"],
        "dm": copy["m"] - uniform["m"],
        "barrier": _vertex(phi, peak) - _vertex(phi, low),
        "loss_minus": uniform["loss"],
        "loss_plus": copy["loss"],
        "top": split,
    }


def _saddle(model: CopyModel, chi: float, at: float, tilts: list[Tilt], top: float) -> float:
    """Equal weights of the saddle-point profile, from a path made at a P close to the answer."""
    m, q, ln_p = (np.array([getattr(tilt, name) for tilt in tilts]) for name in ("m", "q", "ln_p"))
    ends = ((m[0], top), (top, m[-1]))
    grid = np.concatenate([np.linspace(*pair, SADDLE_POINTS) for pair in ends])
    halves = (slice(SADDLE_POINTS), slice(SADDLE_POINTS, None))
    base = finite_chi.energy(model, m, q, at, chi)

    def excess(P: float) -> float:
        curve = finite_chi.spline(m, ln_p + base - finite_chi.energy(model, m, q, P, chi))(grid)
        low, high = (_ln_sum(curve[part], grid[part]) for part in halves)
        return high - low

    return float(brentq(excess, 0.95 * at, 1.05 * at, rtol=1e-9))


def _guess(model: CopyModel, chi: float) -> float:
    """P at which the landscape has its transition, or else at which its m is MIDDLE."""
    jump = theory.boundary(model, chi)
    if jump is not None:
        return jump.P_star
    gap = math.log(MIDDLE * (model.L - 1) / (1 - MIDDLE))
    return float(landscape.equation_of_state(model, chi, np.array([gap]))[0])


def _checked(model: CopyModel, chi: float) -> float:
    if model.attention != "softmax":
        raise ModelError(
            "this theory is for softmax attention; mcattn.linear_exact has the exact averages "
            "of linear attention"
        )
    if model.L < SMALLEST:
        raise ModelError(f"L is {model.L}; this theory adds up the rows of at least {SMALLEST}")
    return positive("chi", chi)
