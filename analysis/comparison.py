"""Theory lines to be drawn beside a run: the landscape, and what is exact at finite chi."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcattn import action, linear_exact, theory
from mcattn.model import CopyModel

POINTS = 300
EXACT_POINTS, EXACT_RTOL = 60, 1e-4  # of a quadrature that takes about 0.1 s a point


@dataclass(frozen=True)
class Curve:
    """One theory line: arrays of shape (n,), nan where the state does not exist.

    kind : "stable" or "unstable" in the landscape, or "exact" at the run's chi.
    """

    kind: Literal["stable", "unstable", "exact"]
    label: str
    P: np.ndarray
    m: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    loss: np.ndarray


@dataclass(frozen=True)
class Theory:
    """What is drawn for comparison: lines, and values of P with their labels, ascending."""

    curves: tuple[Curve, ...]
    marks: tuple[tuple[str, float], ...]


NOTHING = Theory((), ())


def lines(model: CopyModel, chi: float, low: float, high: float) -> Theory:
    """Theory between two values of P for a run at this chi; nothing if chi is nan (mixed).

    Softmax: both minima of the landscape, the maximum between them, spinodals and coexistence.
    Linear: the global minimum at chi = inf and its onset, and the exact averages at chi.
    """
    if math.isnan(chi):
        return NOTHING
    return (
        _softmax(model, chi, low, high)
        if model.attention == "softmax"
        else _linear(model, chi, low, high)
    )


def _softmax(model: CopyModel, chi: float, low: float, high: float) -> Theory:
    jump = theory.boundary(model, chi)
    P = np.linspace(low, high, POINTS)
    if jump is None:
        X = theory.branches(model, chi, P).lowest
        return Theory((_curve("stable", "landscape minimum", model, P, X),), ())
    # The lines meet at the spinodals only if these are among their points.
    P = np.union1d(P, [p for p in (jump.P_lo, jump.P_hi) if low < p < high])
    found = theory.branches(model, chi, P)
    curves = (
        _curve("stable", "landscape minima", model, P, found.uniform),
        _curve("stable", "landscape minima", model, P, found.copy),
        _curve("unstable", "landscape maximum", model, P, found.unstable),
    )
    marks = (
        (r"$P_\mathrm{lo}$", jump.P_lo),
        (r"$P\!^*$", jump.P_star),
        (r"$P_\mathrm{hi}$", jump.P_hi),
    )
    return Theory(curves, marks)


def _linear(model: CopyModel, chi: float, low: float, high: float) -> Theory:
    onset = theory.critical_P(model)
    P = np.linspace(low, high, POINTS)
    P = np.union1d(P, [onset] if low < onset < high else [])
    X = theory.branches(model, math.inf, P).lowest
    minimum = _curve("stable", r"minimum at $\chi = \infty$", model, P, X)
    marks = ((r"$P_\mathrm{c}$", onset),)
    if math.isinf(chi):
        return Theory((minimum,), marks)
    P = np.linspace(low, high, EXACT_POINTS)
    at = linear_exact.curve(model, chi, P, EXACT_RTOL)
    columns = [np.asarray(c) for c in (at.signed_m, at.signed_alpha, at.signed_beta, at.loss)]
    exact = Curve("exact", rf"exact at $\chi$ = {chi:g}", P, *columns)
    return Theory((minimum, exact), marks)


def _curve(
    kind: Literal["stable", "unstable", "exact"],
    label: str,
    model: CopyModel,
    P: np.ndarray,
    X: np.ndarray,
) -> Curve:
    alpha, beta = action.alpha_beta(X, model.L)
    return Curve(kind, label, P, X[:, 0], alpha, beta, action.test_loss(X, model, P))
