"""What the population action says without sampling: minima, phase boundary, onset, laws.

Softmax attention jumps between two minima in the score gap (`boundary`); linear attention
leaves A = 0 continuously (`critical_P`). Both are landscapes of patterns with equal rows: the
log-determinant is in them, the fluctuations of the scores are not, so at finite chi Monte
Carlo lies above them (theory.md, points 4 and 5; `mcattn.linear_exact` has the exact averages
of linear attention). chi = inf is training with weight decay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from mcattn import action, linear_landscape
from mcattn.errors import ModelError
from mcattn.landscape import StateCurve, equation_of_state, height, softmax_sums, state_curve
from mcattn.linear_landscape import symmetric_sums
from mcattn.model import CopyModel, positive, temperature

__all__ = [
    "Boundary",
    "Branches",
    "Minimum",
    "asymptotic_P",
    "boundary",
    "branches",
    "critical_P",
    "equation_of_state",
    "minima",
    "report",
    "softmax_sums",
    "symmetric_sums",
]


@dataclass(frozen=True)
class Minimum:
    """One minimum of the landscape: its sums X, shape (5,), and what they mean."""

    X: np.ndarray
    F_per_chi: float
    alpha: float
    beta: float
    m: float
    q: float
    gap: float  # score gap; nan for linear attention
    loss: float  # population test loss per position


@dataclass(frozen=True)
class Boundary:
    """The jump of softmax attention: spinodals, coexistence and the two minima there."""

    P_lo: float  # the copy minimum exists above
    P_star: float  # both minima are equally deep
    P_hi: float  # the uniform minimum exists below
    m_minus: float  # copy overlap of the uniform minimum at P_star
    m_plus: float  # copy overlap of the copy minimum at P_star
    barrier: float  # (F_top - F_min)/chi at P_star, rows moving together
    gap_minus: float  # score gaps of the two minima at P_star
    gap_plus: float


@dataclass(frozen=True)
class Branches:
    """Sums X, shape (n, 5), along the stationary points of each P, shape (n,); nan where none.

    uniform, copy and unstable belong to softmax's first jump: the minimum below it, the one
    above, and the maximum next to the uniform minimum. Without a jump the only minimum is
    called uniform; for linear attention all three are nan. lowest is the global minimum.
    """

    P: np.ndarray
    uniform: np.ndarray
    copy: np.ndarray
    unstable: np.ndarray
    lowest: np.ndarray


def minima(model: CopyModel, P: float, chi: float = math.inf) -> tuple[Minimum, ...]:
    """All minima of the landscape at P, lowest first.

    Softmax: in the score gap. Linear: in (alpha, beta), one of each pair A, -A, with
    tau >= 0; A = 0 counts where it is a minimum. Source: theory.md, points 1 and 5.

    Raises
    ------
    ModelError : P or chi is not > 0, or P is so large that rounding hides the minima.
    """
    P, chi = positive("P", P), temperature(chi)
    if model.attention == "softmax":
        curve = state_curve(model, chi, P)
        gaps = curve.solve(np.arange(0, curve.segments, 2), P)
        gaps = gaps[~np.isnan(gaps)]
        X = softmax_sums(gaps, model.L)
    else:
        X = linear_landscape.sums_at(linear_landscape.all_minima(model, P, chi), model.L)
        gaps = np.full(len(X), math.nan)
    F = action.per_chi(X, model, P, chi)
    alpha, beta = action.alpha_beta(X, float(model.L))  # type: ignore[arg-type]
    loss = action.test_loss(X, model, P)
    columns = (F, alpha, beta, X[:, 0], X[:, 1], gaps, loss)
    rows = [Minimum(x, *map(float, row)) for x, *row in zip(X, *columns, strict=True)]
    return tuple(sorted(rows, key=lambda row: row.F_per_chi))


def boundary(model: CopyModel, chi: float = math.inf) -> Boundary | None:
    """The jump between the uniform and the copy minimum; None where there is no jump.

    Tokens of very different frequency can be learnt in several jumps (P(s) turns more than
    twice): this is the first, out of the uniform minimum; `minima` shows the later ones.
    Linear attention has no jump. Source: theory.md, point 1.

    Raises
    ------
    ModelError : chi is not > 0.
    """
    chi = temperature(chi)
    if model.attention != "softmax":
        return None
    return _first_jump(state_curve(model, chi))[0]


def critical_P(model: CopyModel, chi: float = math.inf) -> float:
    """P at which linear attention leaves A = 0: where the curvature of F in (alpha, beta) ends.

    Any tokens. At finite chi this is a lower bound: it has the log-determinant but not the
    fluctuations of the scores, which fill q and r to about L g_s/chi and raise the onset
    further, so it is of use for chi >> L only. Source: theory.md, point 5.

    Raises
    ------
    ModelError : the model has softmax attention, or chi is not > 0.
    """
    if model.attention != "linear":
        raise ModelError("softmax attention has no critical P: it jumps; see theory.boundary")
    return linear_landscape.origin_instability(model, temperature(chi))


def asymptotic_P(model: CopyModel, order: int = 0) -> float:
    """Law for P* of softmax attention at large L.

    Order 0 is (1/4) kappa/g_s L ln^2 L / (1 - sum p^2), which is (1/4) V/(V-1) (kappa/g_s)
    L ln^2 L for uniform tokens; its relative correction is of order ln ln L / ln L and of
    order ln(1 + L eps)/ln L, with eps = kappa V/(g_w P), so it holds for astronomical L only.
    Order 1 (uniform tokens) keeps both: while m << 1, m^2/(q + eps) = y/(1 + y) with
    y = e^{2s}/(L + L^2 eps), and equal depth at a stationary gap s means s = 1 + y and
    P* = V/(V-1) (kappa/g_s) L s^3/(s - 1); what is left out is of order m = e^s/L. The
    log-determinant of finite chi is below both orders. Source: theory.md, point 2.

    Raises
    ------
    ModelError : linear attention; order 1 with unequal tokens, or with L too small for it.
    """
    if model.attention != "softmax":
        raise ModelError("the law is for softmax attention; see critical_P for linear attention")
    p, n = model.token_groups
    L = float(model.L)
    unit = model.kappa / model.g_s * L / (1 - float((n * p * p).sum()))
    if order == 0:
        return unit * math.log(L) ** 2 / 4
    if order != 1:
        raise ModelError(f"order is {order!r}; the law is known to order 0 and 1")
    if model.tokens is not None:
        raise ModelError("the law of order 1 is for uniform tokens; see theory.boundary")

    def mismatch(s: float) -> float:
        ridge = model.kappa * model.V / (model.g_w * unit * s**3 / (s - 1))
        return 2 * s - math.log(s - 1) - math.log(L) - math.log1p(L * ridge)

    if mismatch(1.5) > 0:  # s^3/(s - 1) is smallest there: below, no minimum over s
        raise ModelError(f"L = {model.L} is too small for the law of order 1; see theory.boundary")
    s = brentq(mismatch, 1.5, 2 * math.log(L) + 1e3, xtol=1e-13)
    return float(unit * s**3 / (s - 1))


def branches(model: CopyModel, chi: float, P: ArrayLike) -> Branches:
    """The stationary points at every P of an array, shape (n,), for figures.

    Raises
    ------
    ModelError : P is not an array of numbers > 0, or chi is not > 0.
    """
    chi, P = temperature(chi), np.atleast_1d(np.asarray(P, dtype=float))
    if P.ndim != 1 or not len(P) or not np.all(np.isfinite(P) & (P > 0)):
        raise ModelError(f"P has shape {P.shape}; it must be a list of finite numbers > 0")
    nothing = np.full((len(P), 5), math.nan)
    if model.attention == "linear":
        v = linear_landscape.lowest(model, P, chi)
        return Branches(P, nothing, nothing, nothing, linear_landscape.sums_at(v, model.L))
    curve = state_curve(model, chi, float(P.max()))
    jump, high = _first_jump(curve)
    gaps = curve.solve(np.arange(curve.segments)[:, None], P)
    X = softmax_sums(gaps, model.L)
    depth = np.nan_to_num(height(gaps[::2], model, P, chi), nan=math.inf)
    lowest = X[::2][depth.argmin(axis=0), np.arange(len(P))]
    if jump is None:
        return Branches(P, lowest, nothing, nothing, lowest)
    return Branches(P, X[0], X[high], X[1], lowest)


def report(model: CopyModel, chi: float = math.inf) -> dict[str, float | None]:
    """The numbers of this file as plain floats, None where one does not apply.

    Keys: the fields of Boundary, loss_minus and loss_plus (test losses of the two minima at
    P_star), P_c, asymptotic_P.

    Raises
    ------
    ModelError : chi is not > 0.
    """
    out: dict[str, float | None] = dict.fromkeys(field.name for field in fields(Boundary))
    out |= dict.fromkeys(("loss_minus", "loss_plus", "P_c", "asymptotic_P"))
    if model.attention == "linear":
        return out | {"P_c": critical_P(model, chi)}
    out["asymptotic_P"] = asymptotic_P(model)
    jump = boundary(model, chi)
    if jump is None:
        return out
    X = softmax_sums([jump.gap_minus, jump.gap_plus], model.L)
    minus, plus = action.test_loss(X, model, jump.P_star).tolist()
    return out | vars(jump) | {"loss_minus": minus, "loss_plus": plus}


def _first_jump(curve: StateCurve) -> tuple[Boundary | None, int]:
    """The jump out of the uniform minimum, and the segment of the minimum it leads to."""
    for high in range(2, curve.segments, 2):
        P = _coexistence(curve, high)
        if P is None:
            continue
        gaps = curve.solve(np.arange(curve.segments), P)
        F = height(gaps, curve.model, P, curve.chi)
        if np.nanmin(F[::2]) < F[0] - 1e-9 * abs(F[0]):
            continue  # a third minimum is deeper where these two meet
        m = softmax_sums(gaps, curve.model.L)[:, 0]
        barrier = float(curve.model.L) * (np.nanmax(F[1:high:2]) - F[0])
        P_lo, P_hi = curve.span(high)[0], curve.span(0)[1]
        values = (P_lo, P, P_hi, m[0], m[high], barrier, gaps[0], gaps[high])
        return Boundary(*map(float, values)), high
    return None, 0


def _coexistence(curve: StateCurve, high: int) -> float | None:
    """P where the minima of segments 0 and `high` are equally deep: Newton's method in ln P."""
    x, shift = curve.crossing(high), 1e-4 * np.array([-1, 0, 1])
    if x is None:
        return None
    left, right = np.log(curve.span(high)[0]), np.log(curve.span(0)[1])
    for _ in range(30):
        gaps = curve.solve([0, high], np.exp(x))
        # A minimum's gap moves F at second order only: the slope needs no new gaps.
        F = height(gaps[:, None], curve.model, np.exp(x + shift), curve.chi)
        before, excess, after = F[1] - F[0]
        step = excess * (shift[2] - shift[0]) / (before - after)
        x = min(max(x + step, left), right)
        if abs(step) < 1e-7:  # Newton's next step would be its square
            break
    return float(np.exp(x))
