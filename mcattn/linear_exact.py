"""Exact averages of linear attention at any chi and L: the L^2 scores reduced to four numbers.

For linear attention (A = S) the population action depends on S through quantities that most
rotations of the scores leave alone. In an orthonormal basis of the L x L matrices made of

    the matrix of ones / L                      coordinate tau
    the L - 1 other row-sum modes               radius t
    Pi without its row sums, over sqrt(L - 1)   coordinate c = R sin(psi)
    the L^2 - L - 1 directions that are left    radius R cos(psi)

the five sums are m = (tau + sqrt(L - 1) c)/L, r = tau^2 + t^2, L q = |S|^2 = r + R^2, so that

    dS = dtau  t^(L-2) dt  R^(n-1) dR cos^(n-2)(psi) dpsi,   n = L^2 - L,

times the areas of two spheres, and the integral of exp(-F) is one over (tau, t, R, psi). At
fixed (tau, t, R) the action is a quadratic form of sin(psi), whose coefficients are read off
mcattn.action. A -> -A halves the range to tau > 0. Axes of the grid: i (tau), j (t), k (R),
l (psi).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.polynomial.legendre import leggauss

from mcattn import action
from mcattn.errors import ModelError
from mcattn.model import CopyModel, positive

Value = Callable[[np.ndarray], np.ndarray]
Number = float | np.ndarray

DROP = 40.0  # a box ends where ln(weight) is this far below its top: e^-40 = 4e-18
SCAN_CELLS, SCAN_PASSES = 18, 30
SIZES = (26, 36, 50, 70, 96)  # nodes per axis that spans one peak, tried in turn
CORE = 2.0  # depth of the core of a peak; a Gaussian's box is sqrt(DROP/CORE) cores wide


@dataclass(frozen=True)
class Averages:
    """Averages over exp(-F); floats at one P, arrays of shape (n,) along a curve.

    signed_x is the average of sgn(tau) x, for quantities whose plain average is zero by
    A -> -A. ln_z is the logarithm of the integral of exp(-F) over the L^2 scores. error is
    the largest relative difference between the last two resolutions (signed ones relative to
    the root mean square; ln_z absolute); the finer one is reported.
    """

    P: Number
    m2: Number
    tau2: Number
    tau4: Number
    abs_tau: Number
    var_abs_tau: Number
    signed_m: Number
    signed_alpha: Number
    signed_beta: Number
    q: Number
    r: Number
    s2: Number
    loss: Number
    ln_z: Number
    error: Number

    @property
    def binder(self) -> Number:
        """1 - <tau^4>/(3 <tau^2>^2): 0 for a Gaussian tau, 2/3 for two narrow peaks +-tau."""
        return 1 - self.tau4 / (3 * self.tau2**2)


def averages(model: CopyModel, P: float, chi: float, rtol: float = 1e-8) -> Averages:
    """Exact averages of linear attention at one state, any tokens, by quadrature.

    The resolution is raised until two agree to rtol, or to the last of SIZES; see `error`.
    Source: theory.md, "Population action" and "Order parameters".

    Raises
    ------
    ModelError : the model has softmax attention, or P or chi is not finite and > 0.
    """
    if model.attention != "linear":
        raise ModelError("the exact reduction is for linear attention; softmax rows are not free")
    integral = _Integral(model, positive("P", P), positive("chi", chi))
    before = integral.evaluate(SIZES[0])
    for size in SIZES[1:]:
        result = integral.evaluate(size)
        error = _difference(before, result)
        if error <= rtol:
            break
        before = result
    return Averages(**result, error=error)


def curve(model: CopyModel, chi: float, P: Iterable[float], rtol: float = 1e-6) -> Averages:
    """`averages` at each P, shape (n,), as one record of arrays, each of shape (n,)."""
    rows = [averages(model, p, chi, rtol) for p in P]
    names = [field.name for field in fields(Averages)]
    return Averages(**{name: np.array([getattr(row, name) for row in rows]) for name in names})


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    stretch: float = 1.0  # nodes this axis needs, as a multiple of a single peak's

    @property
    def width(self) -> float:
        return self.high - self.low

    def nodes(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Legendre nodes and weights."""
        x, w = leggauss(math.ceil(size * self.stretch))
        half = self.width / 2
        return self.low + half * (x + 1), half * w

    def cells(self) -> np.ndarray:
        return self.low + self.width * (np.arange(SCAN_CELLS) + 0.5) / SCAN_CELLS


class _Integral:
    """The four-dimensional integral at one state and the box that holds its weight."""

    def __init__(self, model: CopyModel, P: float, chi: float) -> None:
        self.model, self.P, self.chi = model, P, chi
        self.rows, self.rest = model.L - 1, model.L**2 - model.L  # dimensions of t and of R

    def _form(self, value: Value, tau: np.ndarray, t: np.ndarray, R: np.ndarray) -> np.ndarray:
        """F or the test loss as a form in sin(psi), shape (3, ...) for powers 0, 1, 2."""
        r = tau**2 + t**2
        X = np.empty((3, *np.broadcast_shapes(r.shape, R.shape), 5))
        X[..., 2], X[..., 3], X[..., 4] = tau, r, r + R**2
        X[..., 1] = X[..., 4] / self.model.L
        root = math.sqrt(self.model.L - 1)
        for probe, sign in zip(X, (0, 1, -1), strict=True):
            probe[..., 0] = (tau + sign * root * R) / self.model.L
        none, plus, minus = value(X)
        return np.stack([none, (plus - minus) / 2, (plus + minus) / 2 - none])

    def _action(self, X: np.ndarray) -> np.ndarray:
        return action.population(X, self.model, self.P, self.chi)

    def _loss(self, X: np.ndarray) -> np.ndarray:
        return action.test_loss(X, self.model, self.P)

    def _ln_weight(
        self, tau: np.ndarray, t: np.ndarray, R: np.ndarray, psi: np.ndarray
    ) -> np.ndarray:
        """Logarithm of the integrand, shape (..., l); tau, t and R broadcast to (...)."""
        F = self._form(self._action, tau, t, R)
        volume = (self.rows - 1) * np.log(t) + (self.rest - 1) * np.log(R)
        s = np.sin(psi)
        grid = F[1][..., None] * -s
        grid -= F[2][..., None] * s**2
        grid += (volume - F[0])[..., None]
        grid += (self.rest - 2) * np.log(np.cos(psi))
        return grid

    @cached_property
    def box(self) -> tuple[list[_Axis], float]:
        """Four axes outside which the weight is below e^-DROP of its top, and ln of the top."""
        *limits, across = self._limits()
        # beta > 0 and beta < 0 can each have a peak; a half of psi has one.
        halves = (_Axis(across.low, 0), _Axis(0, across.high))
        found = [self._zoom([*limits, half]) for half in halves]
        top = max(peak for _, peak in found)
        boxes = [axes for axes, peak in found if peak > top - DROP]
        axes = [
            _Axis(min(a.low for a in same), max(a.high for a in same))
            for same in zip(*boxes, strict=True)
        ]
        profiles = self._profiles(axes)
        return [_stretched(*pair) for pair in zip(axes, profiles, strict=True)], top

    def _zoom(self, limits: list[_Axis]) -> tuple[list[_Axis], float]:
        """The box around the only peak within some limits, and ln of the weight there."""
        axes = limits
        for _ in range(SCAN_PASSES):
            profiles = self._profiles(axes)
            # Cells much wider than the peak along any axis miss the top by a share of this depth.
            unseen = 0.1 * max(profile.max() - np.median(profile) for profile in profiles)
            depth = max(DROP, unseen)
            new = [_shrink(*z, depth) for z in zip(axes, profiles, limits, strict=True)]
            steady = all(b.width > 0.9 * a.width for a, b in zip(axes, new, strict=True))
            axes = new
            if steady and depth == DROP:
                break
        return axes, float(profiles[0].max())

    def _limits(self) -> list[_Axis]:
        """Axes that certainly hold the weight, from F >= chi |S|^2/(2 g_s)."""
        size = self.model.L**2
        typical = size * self.model.g_s / self.chi  # |S|^2 of the prior alone
        X = np.array([0, typical / self.model.L, 0, typical / self.model.L, typical])
        y = 2 * (float(self._action(X)) - size / 2 + 2 * DROP) / size
        reach = math.sqrt(typical * (1 + 2 * y + 2 * math.sqrt(y)))
        return [*[_Axis(0, reach)] * 3, _Axis(-math.pi / 2, math.pi / 2)]

    def _profiles(self, axes: list[_Axis]) -> list[np.ndarray]:
        """Largest ln(weight) on a coarse grid at each cell of each axis."""
        tau, t, R, psi = (axis.cells() for axis in axes)
        grid = self._ln_weight(tau[:, None, None], t[:, None], R, psi)
        others = [tuple(b for b in range(4) if b != a) for a in range(4)]
        return [grid.max(axis=other) for other in others]

    def evaluate(self, size: int) -> dict[str, float]:
        """The averages (all fields but error) with about `size` nodes per axis."""
        axes, top = self.box
        (tau, w_tau), (t, w_t), (R, w_R), (psi, w_psi) = (axis.nodes(size) for axis in axes)
        t, w = t[:, None], w_t[:, None] * w_R
        by_power = w_psi[:, None] * np.sin(psi)[:, None] ** np.arange(3)
        columns = np.empty((6, len(tau)))  # sums over all but tau of 1, c, c^2, t^2, R^2, loss
        for i, x in enumerate(tau):
            grid = self._ln_weight(x, t, R, psi)
            grid -= top
            np.exp(grid, out=grid)
            powers = np.moveaxis(grid @ by_power, -1, 0) * w
            loss = powers * self._form(self._loss, x, t, R)
            terms = (powers[0], powers[1] * R, powers[2] * R**2, powers[0] * t**2)
            columns[:, i] = [y.sum() for y in (*terms, powers[0] * R**2, loss)]
        return self._collect(columns * w_tau, tau, top)

    def _collect(self, columns: np.ndarray, tau: np.ndarray, top: float) -> dict[str, float]:
        weight, c_sum = columns[0], columns[1]
        total = weight.sum()
        c, c2, t2, R2, loss = (columns[1:].sum(axis=1) / total).tolist()
        abs_tau, tau2, tau4 = (float((weight * tau**p).sum() / total) for p in (1, 2, 4))
        tau_c = float((c_sum * tau).sum() / total)
        L, root = self.model.L, math.sqrt(self.model.L - 1)
        return {
            "P": self.P,
            "m2": (tau2 + 2 * root * tau_c + root**2 * c2) / L**2,
            "tau2": tau2,
            "tau4": tau4,
            "abs_tau": abs_tau,
            "var_abs_tau": tau2 - abs_tau**2,
            "signed_m": (abs_tau + root * c) / L,
            "signed_alpha": abs_tau - c / root,
            "signed_beta": c / root,
            "q": (tau2 + t2 + R2) / L,
            "r": tau2 + t2,
            "s2": tau2 + t2 + R2,
            "loss": loss,
            "ln_z": float(top + math.log(total) + self._ln_spheres()),
        }

    def _ln_spheres(self) -> float:
        """ln of 2 (both signs of tau) and the unit spheres in L - 1 and n - 1 dimensions."""
        halves = (self.rows / 2, (self.rest - 1) / 2)
        return math.log(2) + sum(
            math.log(2) + h * math.log(math.pi) - math.lgamma(h) for h in halves
        )


def _shrink(axis: _Axis, profile: np.ndarray, limit: _Axis, depth: float) -> _Axis:
    """The part of an axis, one cell wider on each side, within this depth of the top."""
    kept = axis.cells()[profile > profile.max() - depth]
    cell = axis.width / SCAN_CELLS
    return _Axis(max(kept[0] - cell, limit.low), min(kept[-1] + cell, limit.high))


def _stretched(axis: _Axis, profile: np.ndarray) -> _Axis:
    """The axis with more nodes where its box is wide for the core of its peak."""
    core = np.count_nonzero(profile > profile.max() - CORE) / SCAN_CELLS
    return replace(axis, stretch=min(max(math.sqrt(CORE / DROP) / core, 1.0), 4.0))


def _difference(one: dict[str, float], other: dict[str, float]) -> float:
    scale = {name: abs(value) for name, value in other.items()}
    scale |= {"ln_z": 1.0, "signed_m": math.sqrt(other["m2"])}
    scale |= {"signed_alpha": math.sqrt(other["tau2"]), "signed_beta": math.sqrt(other["m2"])}
    return max(abs(one[name] - other[name]) / scale[name] for name in other)
