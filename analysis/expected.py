"""What theory expects of a method at one chi: order parameters and test loss of each phase.

At chi = inf the landscape's minima; at finite chi softmax with the fluctuations of its scores,
linear attention by exact quadrature. All for the population. Axes: n values of P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mcattn import action, coexistence, linear_exact, phases, theory
from mcattn.analysis.series import NAN
from mcattn.errors import ModelError
from mcattn.finite_chi import Curve, sums
from mcattn.model import CopyModel

# m, q, alpha, beta, loss, each (n,), nan where there is no such phase.
Values = dict[str, np.ndarray]
_RTOL = 1e-4
_DEPTH = 1.0  # in kT, of a peak that counts as a phase


@dataclass(frozen=True)
class Expected:
    """Values in each phase, by phases.UNIFORM and phases.COPY, at ascending P, shape (n,).

    Linear attention has the first phase only.
    """

    P: np.ndarray
    phases: dict[int, Values]

    def at(self, P: Sequence[float]) -> dict[int, Values]:
        """The values at some of its P."""
        i = np.searchsorted(self.P, P)
        return {
            phase: {name: x[i] for name, x in values.items()}
            for phase, values in self.phases.items()
        }


def expected(model: CopyModel, chi: float, P: Sequence[float] | np.ndarray) -> Expected:
    """Theory at these P; the test loss is that of networks as they are trained.

    At finite chi these have weights drawn from their posterior.
    """
    at = np.unique(np.asarray(P, dtype=float))
    if model.attention == "linear":
        return Expected(at, {phases.UNIFORM: _linear(model, chi, at)})
    return Expected(at, _landscape(model, at) if math.isinf(chi) else _fluctuating(model, chi, at))


def _landscape(model: CopyModel, P: np.ndarray) -> dict[int, Values]:
    found = theory.branches(model, math.inf, P)
    sides = {phases.UNIFORM: found.uniform, phases.COPY: found.copy}
    return {phase: _from_sums(X, model, P) for phase, X in sides.items()}


def _linear(model: CopyModel, chi: float, P: np.ndarray) -> Values:
    if math.isinf(chi):
        return _from_sums(theory.branches(model, chi, P).lowest, model, P)
    exact = linear_exact.curve(model, chi, P, _RTOL)
    zero = np.zeros_like(P)
    X = np.stack([zero, exact.q, zero, exact.r, zero], axis=-1)
    return {
        "m": np.asarray(exact.signed_m),
        "q": np.asarray(exact.q),
        "alpha": np.asarray(exact.signed_alpha),
        "beta": np.asarray(exact.signed_beta),
        "loss": exact.loss + action.scatter_loss(X, model, P, chi),
    }


def _fluctuating(model: CopyModel, chi: float, P: np.ndarray) -> dict[int, Values]:
    jump = theory.boundary(model, chi)
    split = (jump.m_minus + jump.m_plus) / 2 if jump else 1.0
    density = coexistence.lines(model, chi, math.sqrt(P[0] * P[-1]))
    rows: dict[int, list[list[float]]] = {phases.UNIFORM: [], phases.COPY: []}
    for x in P.tolist():
        try:
            curve = density.curve(x)
        except ModelError:  # beyond the reach of this path
            found = {}
        else:
            found = _sides(curve, split)
        for phase, row in rows.items():
            row.append(found.get(phase, [NAN] * 3))
    return {phase: _from_means(np.array(row), model, chi, P) for phase, row in rows.items()}


def _sides(curve: Curve, split: float) -> dict[int, list[float]]:
    """<m>, <q> and <loss> of each phase that p(m) has a peak for."""
    peaks = coexistence.phases(curve)
    if peaks is None:
        whole = curve.means()
        phase = phases.COPY if whole["m"] > split else phases.UNIFORM
        return {phase: [whole["m"], whole["q"], whole["loss"]]}
    middle, floor = peaks.between
    ends = {phases.UNIFORM: (0.0, middle), phases.COPY: (middle, 1.0)}
    if min(peaks.minus[1], peaks.plus[1]) < floor + _DEPTH:  # no phase that lasts
        del ends[phases.UNIFORM if peaks.minus[1] < peaks.plus[1] else phases.COPY]
    means = {phase: curve.between(*pair).means() for phase, pair in ends.items()}
    return {phase: [one["m"], one["q"], one["loss"]] for phase, one in means.items()}


def _from_means(row: np.ndarray, model: CopyModel, chi: float, P: np.ndarray) -> Values:
    m, q, loss = row.T
    X = sums(m, q)
    known = np.isfinite(m)
    added = np.full_like(m, NAN)
    added[known] = action.scatter_loss(X[known], model, P[known], chi)
    alpha, beta = action.alpha_beta(X, model.L)
    return {"m": m, "q": q, "alpha": alpha, "beta": beta, "loss": loss + added}


def _from_sums(X: np.ndarray, model: CopyModel, P: np.ndarray) -> Values:
    alpha, beta = action.alpha_beta(X, model.L)
    loss = action.test_loss(X, model, P)
    return {"m": X[:, 0], "q": X[:, 1], "alpha": alpha, "beta": beta, "loss": loss}
