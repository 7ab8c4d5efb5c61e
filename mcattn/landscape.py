"""Softmax attention with equal rows: the action as a function of one score gap.

Every row of A gives the copied position a score `gap` above the others (theory.md, "Order
parameters"), which makes F a function of the gap s at each P. Where s is stationary, P is a
single-valued function of it (see `equation_of_state`); the minima are the stretches on which
that P rises with s, and their ends are the spinodals. Axes: n gaps or states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import elementwise
from scipy.special import expit

from mcattn import action
from mcattn.errors import ModelError
from mcattn.model import CopyModel

# P(s) has structure of width ~1 in s; a 9-point polynomial at this spacing is exact to 1e-10.
SPACING = 0.03
HALF_STENCIL = 4
RESOLVED = 1e-11  # smallest share of q whose effect on F' keeps a few digits
# For gaps this far above ln L the copy is complete and P(s) can only rise.
BEYOND_LOG_L = 8.0
LN_P_REACH = 300.0  # how far from a guess of ln P to search; further, floats overflow


def softmax_sums(gap: ArrayLike, L: int) -> np.ndarray:
    """The five sums X, shape (..., 5), of softmax rows with this score gap, shape (...).

    Finite for any L that fits a float and gaps of either sign; nan gives nan. Source:
    theory.md, "Order parameters"; the mean score of a row is zero, which makes |S|^2 smallest.
    """
    gap, others = np.asarray(gap, dtype=float), float(L) - 1
    m = expit(gap - math.log(others))
    rest = expit(math.log(others) - gap)
    one = np.where(np.isnan(m), np.nan, 1.0)
    return np.stack([m, m * m + rest * rest / others, one, one, others * gap * gap], axis=-1)


def softmax_slopes(gap: ArrayLike, L: int) -> np.ndarray:
    """Derivative of `softmax_sums` with respect to the gap, shape (..., 5)."""
    gap, others = np.asarray(gap, dtype=float), float(L) - 1
    m = expit(gap - math.log(others))
    rest = expit(math.log(others) - gap)
    # 1 - exp(-gap) times m is the distance of m from an equal share, without cancellation.
    excess = np.where(gap > 0, m, rest / others) * np.sign(gap) * -np.expm1(-np.abs(gap))
    zero = np.zeros_like(m)
    return np.stack([m * rest, 2 * m * rest * excess, zero, zero, 2 * others * gap], axis=-1)


def force(gap: ArrayLike, model: CopyModel, P: ArrayLike, chi: float) -> np.ndarray:
    """Derivative of F/(chi L) with respect to the gap, shape of gap and P broadcast."""
    X, dX = _rescaled(model, gap)
    L = float(model.L)
    slope = action.per_chi_gradient(X, model, np.asarray(P, dtype=float) / L, chi * L)
    return (slope * dX).sum(axis=-1)


def height(gap: ArrayLike, model: CopyModel, P: ArrayLike, chi: float) -> np.ndarray:
    """F/(chi L) up to a constant at each P, shape of gap and P broadcast."""
    X, _ = _rescaled(model, gap)
    L = float(model.L)
    return action.per_chi(X, model, np.asarray(P, dtype=float) / L, chi * L)


def _rescaled(model: CopyModel, gap: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Sums and their slopes, both (..., 5), for numbers of order 1 at any L.

    The action is the same, up to a factor L, for (sqrt(L) m, L q, sqrt(L) tau, L r, |S|^2/L)
    at P/L and chi L.
    """
    L = float(model.L)
    scale = np.array([math.sqrt(L), L, math.sqrt(L), L, 1 / L])
    return softmax_sums(gap, model.L) * scale, softmax_slopes(gap, model.L) * scale


def equation_of_state(model: CopyModel, chi: float, gaps: ArrayLike) -> np.ndarray:
    """P, shape (n,), at which the landscape is stationary at each gap > 0, shape (n,).

    Unique for uniform tokens: (P q + c)^2 F'(s) is a cubic in P whose coefficients change sign
    once, since m^2/q rises with s. Source: theory.md, point 1.

    Raises
    ------
    ModelError : linear attention, chi or a gap that is not > 0, or a gap too large for doubles.
    """
    if model.attention != "softmax":
        raise ModelError("the equation of state is for softmax; linear attention has no score gap")
    if not chi > 0:
        raise ModelError(f"chi is {chi}; it must be > 0")
    gaps = np.atleast_1d(np.asarray(gaps, dtype=float))
    if not np.all(np.isfinite(gaps) & (gaps > 0)):
        raise ModelError("the gaps must be finite and > 0; at a gap of 0 the only P is 0")
    ln_p = _stationary(model, chi, gaps)
    if np.isnan(ln_p).any():
        gap = gaps[np.isnan(ln_p)][0]
        raise ModelError(f"gap {gap:.6g} is too large: its P lies beyond double precision")
    return np.exp(ln_p)


def _stationary(model: CopyModel, chi: float, gaps: np.ndarray) -> np.ndarray:
    """ln P of the equation of state, shape (n,); nan where rounding hides the answer."""

    def tilt(ln_p: np.ndarray, gap: np.ndarray) -> np.ndarray:
        return force(gap, model, np.exp(ln_p), chi) / gap

    guess = np.log(model.kappa / model.g_s * float(model.L) * (1 + gaps) ** 2)
    limits = {"xmin": guess - LN_P_REACH, "xmax": guess + LN_P_REACH}
    start = elementwise.bracket_root(tilt, guess, guess + 4, args=(gaps,), **limits)
    root = elementwise.find_root(tilt, start.bracket, args=(gaps,), tolerances={"xatol": 1e-12})
    ln_p = np.where(start.success & root.success, root.x, np.nan)
    # F' holds m^2/(q + eps), which stops changing with s once q - m^2 and eps drown in q.
    m, q = softmax_sums(gaps, model.L)[:, :2].T
    slack = (1 - m) ** 2 / (float(model.L) - 1) + model.kappa * model.V / model.g_w * np.exp(-ln_p)
    return np.where(slack > RESOLVED * q, ln_p, np.nan)


@dataclass(frozen=True)
class StateCurve:
    """P(s) of one model and chi, cut where it turns: segments 0, 2, ... hold the minima.

    Shapes: gaps and P (n,), from the point (0, 0) on, the turning points included; ends
    (k + 1,), indices of the segments' ends, so that P is monotone from ends[i] to ends[i + 1].
    """

    model: CopyModel
    chi: float
    gaps: np.ndarray
    P: np.ndarray
    ends: np.ndarray

    @property
    def segments(self) -> int:
        return len(self.ends) - 1

    def span(self, segment: int) -> tuple[float, float]:
        """Lowest and highest P of a segment."""
        a, b = sorted(self.P[self.ends[segment : segment + 2]].tolist())
        return a, b

    def solve(self, segment: ArrayLike, P: ArrayLike) -> np.ndarray:
        """Gap at P on a segment, shapes broadcast; nan where the segment does not reach P."""
        segment, P = np.broadcast_arrays(segment, np.asarray(P, dtype=float))
        low, high = np.full(P.shape, np.nan), np.full(P.shape, np.nan)
        for i in np.unique(segment):
            knots = slice(self.ends[i], self.ends[i + 1] + 1)
            p, s = self.P[knots], self.gaps[knots]
            if i % 2:
                p, s = p[::-1], s[::-1]
            cell = np.clip(np.searchsorted(p, P), 1, len(p) - 1)
            here = (segment == i) & (p[0] <= P) & (p[-1] >= P)
            low[here], high[here] = s[cell - 1][here], s[cell][here]
        gap = np.full(P.shape, np.nan)
        known = ~np.isnan(low)
        if known.any():
            gap[known] = self._root(low[known], high[known], P[known])
        return gap

    def crossing(self, high: int) -> float | None:
        """Estimate of ln P, from the knots alone, where segments 0 and `high` are equally deep."""
        knots, depth = [], []
        for i in (0, high):
            inside = slice(max(self.ends[i], 1), self.ends[i + 1] + 1)
            s, P = self.gaps[inside], self.P[inside]
            # Less the value at no gap: what is left bends little from knot to knot.
            ground = height(np.zeros_like(s), self.model, P, self.chi)
            knots.append(np.log(P))
            depth.append(height(s, self.model, P, self.chi) - ground)
        x = np.union1d(*knots)
        # Below its first knot segment 0 is flat, and np.interp continues it so.
        x = x[(x >= knots[1][0]) & (x <= min(knots[0][-1], knots[1][-1]))]
        excess = np.interp(x, knots[1], depth[1]) - np.interp(x, knots[0], depth[0])
        turn = np.flatnonzero((excess[:-1] > 0) & (excess[1:] <= 0))
        if not len(turn):
            return None
        i = turn[0]
        return float(x[i] + (x[i + 1] - x[i]) * excess[i] / (excess[i] - excess[i + 1]))

    def _root(self, low: np.ndarray, high: np.ndarray, P: np.ndarray) -> np.ndarray:
        ends = np.stack([force(s, self.model, P, self.chi) for s in (low, high)])
        # At a spinodal the knot itself is the root and rounding decides the signs.
        bracketed = ends[0] * ends[1] < 0
        gap = np.where(np.abs(ends[0]) < np.abs(ends[1]), low, high)
        if bracketed.any():
            found = elementwise.find_root(
                lambda s, p: force(s, self.model, p, self.chi),
                (low[bracketed], high[bracketed]),
                args=(P[bracketed],),
                tolerances={"xrtol": 1e-13},
            )
            gap[bracketed] = found.x
        return gap


def state_curve(model: CopyModel, chi: float, P_max: float = 0.0) -> StateCurve:
    """The curve P(s), long enough to hold every turning point and the minima up to P_max.

    Pairs of turning points closer than SPACING in s are not seen: their P differ by less than
    about 1e-5 of P.

    Raises
    ------
    ModelError : P_max is so large that rounding hides where the minimum is.
    """
    top = math.log(float(model.L)) + BEYOND_LOG_L
    while P_max > 0 and force(top, model, P_max, chi) <= 0:
        top *= 1.5
    gaps = np.linspace(0, top, math.ceil(top / SPACING) + 1)[1:]
    ln_p = _stationary(model, chi, gaps)
    known = len(gaps) if np.isfinite(ln_p).all() else int(np.argmax(np.isnan(ln_p)))
    gaps, ln_p = gaps[:known], ln_p[:known]
    if P_max > np.exp(ln_p[-1]):
        raise ModelError(f"P is {P_max:g}; beyond {np.exp(ln_p[-1]):.3g} rounding hides the minima")
    turns = np.flatnonzero(np.diff(np.sign(np.diff(ln_p)))) + 1
    extra = np.array([_turning_point(gaps, ln_p, i) for i in turns.tolist()]).reshape(-1, 2)
    at = np.searchsorted(gaps, extra[:, 0])
    gaps = np.append(0, np.insert(gaps, at, extra[:, 0]))
    P = np.append(0, np.exp(np.insert(ln_p, at, extra[:, 1])))
    ends = np.array([0, *np.searchsorted(gaps, extra[:, 0]), len(P) - 1])
    return StateCurve(model, chi, gaps, P, ends)


def _turning_point(gaps: np.ndarray, ln_p: np.ndarray, i: int) -> tuple[float, float]:
    """Gap and ln P where the polynomial through the knots around knot i has zero slope."""
    start = min(max(i - HALF_STENCIL, 0), len(gaps) - 2 * HALF_STENCIL - 1)
    knots = slice(start, start + 2 * HALF_STENCIL + 1)
    unit = gaps[1] - gaps[0]
    x = (gaps[knots] - gaps[i]) / unit
    curve = np.polynomial.Polynomial(np.linalg.solve(np.vander(x, increasing=True), ln_p[knots]))
    roots = curve.deriv().roots()
    real = roots[np.abs(roots.imag) < 1e-6].real
    turn = real[np.argmin(np.abs(real))]
    return float(gaps[i] + unit * turn), float(curve(turn))
