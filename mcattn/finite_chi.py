"""Softmax attention at finite chi, its score fluctuations included, without a Markov chain.

The weight of all patterns with row averages (m, q) is p_L(m, q) exp(-U(m, q)), with p_L their
density under the prior (`mcattn.rows`) and U the action without its |S|^2. At each m of a path
from below the uniform to above the copy phase, p_L is known on a line of values of q; summed over
q it gives the profile Phi(m) = -ln p(m) at every P not too far from the path's.
Source: docs/theory.md, "Finite chi, softmax". Axes: j points of the path, y values of q,
n points between which p(m) is smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.special import expit, logit

from mcattn import action
from mcattn.errors import ModelError
from mcattn.model import CopyModel
from mcattn.rows import Cumulants, Rows

SPACING = 0.12  # of the path in ln m/(1 - m); Phi bends on a scale of 1
POINTS = 60  # from line to line: at large chi the peaks of p(m) are narrower than SPACING
DEPTH = 35.0  # p(m) is followed down to e^-DEPTH of its top, at P and at RANGE times it
RANGE = 1.4
LOWEST, HIGHEST = 1e-3, 0.998  # of 1/L and of 1: the path ends there in any case
NEWTON = 60
STRIDE = 1.5  # longest Newton step, in standard deviations of a row
FAR = 4.0  # longest way, in standard deviations, from the path's q to the likeliest at another P
STEP = 0.3  # difference to the saddle point from which p(m) is taken to have steps


class Path(NamedTuple):
    """Fields h and k, both (j,), whose tilted rows have rising m and the likeliest q there."""

    h: np.ndarray
    k: np.ndarray


class Curve(NamedTuple):
    """ln of the density of m up to a constant, with <q> and <loss> at each m; all of shape (n,)."""

    m: np.ndarray
    ln_p: np.ndarray
    q: np.ndarray
    loss: np.ndarray

    def between(self, low: float, high: float) -> Curve:
        """The part with low <= m <= high, its ends interpolated."""
        ends = [m for m in (low, high) if self.m[0] < m < self.m[-1]]
        m = np.sort(np.r_[ends, self.m[(self.m > low) & (self.m < high)]])
        return Curve(m, *(np.interp(m, self.m, y) for y in self[1:]))

    def ln_weight(self) -> float:
        """ln of the integral of the density over m."""
        top = float(self.ln_p.max())
        return top + math.log(np.trapezoid(np.exp(self.ln_p - top), self.m))

    def means(self) -> dict[str, float]:
        """<m>, <q>, <loss> and var m."""
        w = np.exp(self.ln_p - self.ln_weight())
        m, q, loss, square = (
            float(np.trapezoid(w * y, self.m)) for y in (self.m, self.q, self.loss, self.m**2)
        )
        return {"m": m, "q": q, "loss": loss, "var_m": square - m * m}


@dataclass(frozen=True)
class Saddle:
    """p_L at the points of a path by saddle point and Gaussian correction; arrays of shape (j,).

    ln_p : at the mean m, q of the tilted rows. k : the field there. precision : of p_L in q at
    fixed m, so that ln p_L(m, q + x) = ln_p - L k x - precision x^2 / 2.
    """

    model: CopyModel
    chi: float
    m: np.ndarray
    q: np.ndarray
    k: np.ndarray
    ln_p: np.ndarray
    precision: np.ndarray

    def at(self, P: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ln of int dq p_L exp(-U), <q> and <loss> at each m, all (j,); nan far from the path."""
        slope, curvature, _ = slopes(self.model, self.m, self.q, P, self.chi)
        stiffness = self.precision + curvature
        stiffness = np.where(stiffness > 0, stiffness, np.nan)
        pull = (-self.model.L * self.k - slope) / np.sqrt(stiffness)
        ln_p = self.ln_p - energy(self.model, self.m, self.q, P, self.chi) + pull**2 / 2
        ln_p = np.where(np.abs(pull) < FAR, ln_p + np.log(2 * math.pi / stiffness) / 2, np.nan)
        q = self.q + np.nan_to_num(pull / np.sqrt(stiffness))
        return ln_p, q, action.test_loss(sums(self.m, q), self.model, P)

    def curve(self, P: float) -> Curve:
        """The density of m at P, normalised by int dm dq p_L alone."""
        return _curve(self.m, *self.at(P))


@dataclass(frozen=True)
class Lines:
    """ln of p_L(m, q) dq on lines of equal m: m has shape (j,), q and ln_p (j, y).

    ln_p holds the size of p_L, -inf where it is not known, and sign its sign: at the sharp edges
    of short sequences an FFT overshoots. saddle : the same by saddle point.
    """

    model: CopyModel
    chi: float
    m: np.ndarray
    q: np.ndarray
    ln_p: np.ndarray
    sign: np.ndarray
    saddle: Saddle

    def every_other(self) -> Lines:
        """Half of the lines, to see what the interpolation between them does."""
        s = self.saddle
        arrays = (y[::2] for y in (s.m, s.q, s.k, s.ln_p, s.precision))
        saddle = Saddle(self.model, self.chi, *arrays)
        return Lines(
            self.model, self.chi, self.m[::2], self.q[::2], self.ln_p[::2], self.sign[::2], saddle
        )

    def at(self, P: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ln of int dq p_L exp(-U), <q> and <loss> at each m, all of shape (j,).

        Between the phases the rows of long sequences turn on one after another, and p(m) has
        steps of width 1/L there. They touch neither phase; the saddle point, which averages over
        them, then takes the place of the sum.
        """
        ln_w = self.ln_p - energy(self.model, self.m[:, None], self.q, P, self.chi)
        top = ln_w.max(axis=1, keepdims=True)
        w = self.sign * np.exp(ln_w - top)
        total = w.sum(axis=1)
        loss = action.test_loss(sums(self.m[:, None], self.q), self.model, P)
        with np.errstate(invalid="ignore"):
            ln_sum = top[:, 0] + np.log(total)
        exact = np.array([ln_sum, *((w * y).sum(axis=1) / total for y in (self.q, loss))])
        smooth = np.array(self.saddle.at(P))
        step = ~(np.abs(exact[0] - smooth[0]) < STEP)
        out = np.where(step, smooth, exact)
        return out[0], out[1], out[2]

    def curve(self, P: float) -> Curve:
        """The density of m at P, normalised by int dm dq p_L alone."""
        return _curve(self.m, *self.at(P))


def _curve(m: np.ndarray, ln_p: np.ndarray, q: np.ndarray, loss: np.ndarray) -> Curve:
    if np.isnan(ln_p).any():
        raise ModelError("P lies too far from the P of the path, or this theory has no answer")
    x, j = logit(m), np.arange(len(m))
    fine = np.interp(np.arange((len(j) - 1) * POINTS + 1) / POINTS, j, x)
    return Curve(expit(fine), *(CubicSpline(x, y)(fine) for y in (ln_p, q, loss)))


def saddle(nodes: Rows, model: CopyModel, chi: float, path: Path) -> Saddle:
    """p_L along a path by saddle point and Gaussian correction."""
    points = [nodes.cumulants(h, k) for h, k in zip(*path, strict=True)]
    return _saddle(nodes, model, chi, path, points)


def _saddle(
    nodes: Rows, model: CopyModel, chi: float, path: Path, points: list[Cumulants]
) -> Saddle:
    ln_p = np.array([nodes.gaussian(c, h, k) for c, h, k in zip(points, *path, strict=True)])
    m, q = np.array([c.mean for c in points]).T
    precision = model.L * np.linalg.inv([c.covariance for c in points])[:, 1, 1]
    return Saddle(model, chi, m, q, path.k, ln_p, precision)


def lines(nodes: Rows, model: CopyModel, chi: float, path: Path) -> Lines:
    """p_L along a path, exact but for the nodes of a row."""
    found = [nodes.line(h, k) for h, k in zip(*path, strict=True)]
    smooth = _saddle(nodes, model, chi, path, [line.cumulants for line in found])
    length = max(len(line.q) for line in found)
    q = np.stack([_filled(line.q, length, line.q[-1]) for line in found])
    ln_p = np.stack([_filled(line.ln_p, length, -np.inf) for line in found])
    sign = np.stack([_filled(line.sign, length, 0) for line in found])
    return Lines(model, chi, smooth.m, q, ln_p, sign, smooth)


def _filled(x: np.ndarray, length: int, value: float) -> np.ndarray:
    return np.concatenate([x, np.full(length - len(x), value)])


def path(nodes: Rows, model: CopyModel, P: float, chi: float) -> Path:
    """Fields along rising m, from far below the uniform phase to far above the copy phase.

    At each m the field k is the one at which q is most probable at P, k = -(dU/dq) / L.

    Raises
    ------
    ModelError : the fields cannot be found: the action is too steep for double precision.
    """
    start = _point(nodes, model, P, chi, 1 / model.L, (0.0, 0.0))
    up, down = [start], [start]
    while up[-1].m < HIGHEST and not _ended(up, model, P, chi):
        up.append(_point(nodes, model, P, chi, _next(up[-1].m, SPACING), up[-1][:2]))
    while down[-1].m > LOWEST / model.L and down[-1].ln_p > start.ln_p - DEPTH:
        down.append(_point(nodes, model, P, chi, _next(down[-1].m, -SPACING), down[-1][:2]))
    points = [*down[:0:-1], *up]
    return Path(np.array([p.h for p in points]), np.array([p.k for p in points]))


class _Point(NamedTuple):
    """A point of a path; ln_p is that of p_L exp(-U) at (m, q), less its slow factors."""

    h: float
    k: float
    m: float
    q: float
    ln_p: float


def _next(m: float, step: float) -> float:
    return float(expit(logit(m) + step))


def _ended(points: list[_Point], model: CopyModel, P: float, chi: float) -> bool:
    """Whether the last point lies deep below the top, at P and at RANGE times P."""
    if points[-1].m < 0.5:
        return False
    m, q, ln_p = np.array([point[2:] for point in points]).T
    change = energy(model, m, q, P, chi) - energy(model, m, q, RANGE * P, chi)
    return all(y[-1] < y.max() - DEPTH and y[-1] < y[-2] for y in (ln_p, ln_p + change))


def _point(
    nodes: Rows, model: CopyModel, P: float, chi: float, m: float, guess: tuple[float, float]
) -> _Point:
    """Solve K_h = m and k = -(dU/dq)/L by Newton's method, the steps limited."""
    h, k = guess
    L = model.L
    for _ in range(NEWTON):
        K, (mean, q), C = nodes.cumulants(h, k)
        slope, curvature, mixed = slopes(model, mean, q, P, chi)
        error = np.array([mean - m, k + slope / L])
        effect = np.array([mixed, curvature]) @ C / L
        step = np.linalg.solve(np.array([C[0], [effect[0], 1 + effect[1]]]), error)
        length = math.sqrt(max(step @ C @ step, 0.0))
        step /= max(1.0, length / STRIDE)
        h, k = float(h - step[0]), float(k - step[1])
        if length < 1e-5:  # the next step would be its square
            ln_p = L * (K - h * mean - k * q) - float(energy(model, mean, q, P, chi))
            return _Point(h, k, float(mean), float(q), ln_p)
    raise ModelError(
        f"no saddle point at m = {m:.4g} for P = {P:.5g}, chi = {chi:g}: the action is too "
        "steep for this theory"
    )


def energy(model: CopyModel, m: ArrayLike, q: ArrayLike, P: float, chi: float) -> np.ndarray:
    """U(m, q): the action of softmax rows without |S|^2, of the shape of m and q."""
    return action.population(sums(m, q), model, P, chi)


def slopes(
    model: CopyModel, m: ArrayLike, q: ArrayLike, P: float, chi: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dU/dq, d2U/dq2 and d2U/dmdq, of the shape of m and q."""
    m, q = np.asarray(m), np.asarray(q)
    dm, dq = 1e-5 * m, 1e-5 * q
    places = np.stack(
        [sums(*at) for at in ((m, q), (m, q + dq), (m, q - dq), (m + dm, q), (m - dm, q))]
    )
    slope = chi * action.per_chi_gradient(places, model, P, chi)[..., 1]
    return slope[0], (slope[1] - slope[2]) / (2 * dq), (slope[3] - slope[4]) / (2 * dm)


def sums(m: ArrayLike, q: ArrayLike) -> np.ndarray:
    """The five sums X, shape (..., 5), of rows with these averages, with |S|^2 = 0."""
    m, q = np.broadcast_arrays(m, q)
    one = np.ones(m.shape)
    return np.stack([m, q, one, one, 0 * one], axis=-1)
