"""Where linear attention sets in, and how: from runs at one chi or several.

Finite chi rounds the second-order transition: var |tau| has a peak in P, and the cumulant
B = 1 - <tau^4>/(3 <tau^2>^2) goes from 0 to 2/3. Both marks tend to P_c as chi grows; the cumulants
of two chi cross near P_c, nearer than either mark. Above P_c alpha grows like (P - P_c)^b, b = 1/2
close to P_c. Axes: n sample; b draw; j point in P.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from mcattn import action, linear_exact, linear_stages, theory
from mcattn.analysis import fixed, mbar, peak, resample, series, twophase
from mcattn.analysis.mbar import Pool
from mcattn.analysis.resample import Draws
from mcattn.analysis.series import NAN, Estimate, short
from mcattn.errors import RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

HALF = 1 / 3  # of the cumulant, halfway from no order to order
CURVE = 31  # points of the curves of a figure
RISE = np.geomspace(1.02, 1.1, 8)  # P over P_c at which alpha is followed
_NARROW = 0.04  # relative half-width in P of the root's neighbourhood
_ACCURATE = 1e-5


@dataclass(frozen=True)
class Mark:
    """A number of the run beside the exact one of the same definition, and their distance."""

    found: Estimate
    exact: float

    @property
    def pull(self) -> float:
        return (self.found.value - self.exact) / self.found.error


@dataclass(frozen=True)
class Onset:
    """One run: its marks at its chi.

    half : P where B = 1/3; peak, var : P of the largest var |tau|, and that variance.
    exponent : b of alpha = c (P - P_c)^b, with P_c that of chi = inf, fitted for P/P_c in RISE, as
        far as states were sampled there; the exact one comes from the same fit.
    critical : P where the landscape of this chi becomes unstable at A = 0 (theory.critical_P).
    maxima : 1 where p(|tau|) has a single maximum at every P within reach, else 2.
    P, B, alpha : curves with errors, shapes (j,), (j, 2) and (j, 2).
    """

    path: Path
    chi: float
    complete: bool
    half: Mark
    peak: Mark
    var: Mark
    exponent: Mark
    critical: float
    maxima: int
    P: np.ndarray
    B: np.ndarray
    alpha: np.ndarray


@dataclass(frozen=True)
class OnsetResult:
    """The onset at each chi, in rising order, where cumulants of neighbouring chi cross, and P_c.

    P_c : of chi = inf. crossings : one less than runs.
    """

    model: CopyModel
    onsets: tuple[Onset, ...]
    crossings: tuple[Mark, ...]
    P_c: float
    verdict: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, without the curves of the figure."""
        curves = ("P", "B", "alpha")
        onsets = [
            {k: series.plain(v) for k, v in vars(onset).items() if k not in curves}
            | {"path": str(onset.path)}
            for onset in self.onsets
        ]
        return {
            "view": "onset",
            "model": series.plain(self.model),
            "onsets": onsets,
            "crossings": series.plain(self.crossings),
            "P_c": self.P_c,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
        }


def analyze(runs: Sequence[Run]) -> OnsetResult:
    """The onset from umbrella runs in tau, or tempering and fixed runs, of one linear model.

    Raises
    ------
    RunFileError : softmax attention, different models, or one chi twice.
    TooFewSamplesError : a run does not reach B = 1/3, or the largest var |tau|.
    SamplingError : states that do not overlap.
    """
    _comparable(runs)
    runs = sorted(runs, key=lambda run: float(run.states["chi"].max()))
    pools = [_pool(run) for run in runs]
    found = [_onset(run, *pool) for run, pool in zip(runs, pools, strict=True)]
    crossings = tuple(_crossing(a, b) for a, b in pairwise(pools))
    model = runs[0].model
    P_c = theory.critical_P(model)
    return OnsetResult(
        model=model,
        onsets=tuple(found),
        crossings=crossings,
        P_c=P_c,
        verdict=_verdict(found, crossings, P_c),
        warnings=tuple(
            f"{run.path}: {text}" for run in runs for text in fixed.general_warnings(run)
        ),
    )


@dataclass(frozen=True)
class _Pooled:
    """Samples in which |tau| is the order parameter, whatever the biases acted on."""

    pool: Pool
    chi: float
    draws: Draws
    half: float

    def read(self, P: float, whole: bool) -> np.ndarray:
        """B and <sgn(tau) alpha> at P of the whole, shape (1, 2), or of the draws, (b, 2)."""
        base = self.pool.weights(P, self.chi)
        if whole:
            return _moments(self.pool, base[None])
        chunks = self.draws.chunks()
        return np.concatenate([_moments(self.pool, self.draws.weights(base, c)) for c in chunks])


def _moments(pool: Pool, weights: np.ndarray) -> np.ndarray:
    """B and <sgn(tau) alpha>, shape (b, 2), of weights, shape (b, n)."""
    tau, total = pool.X[:, 2], weights.sum(axis=1)
    alpha = np.sign(tau) * action.alpha_beta(pool.X, pool.model.L)[0]
    two, four, rise = ((weights @ y) / total for y in (tau**2, tau**4, alpha))
    return np.stack([1 - four / (3 * two**2), rise], axis=1)


def _comparable(runs: Sequence[Run]) -> None:
    chis: dict[float, Path] = {}
    for run in runs:
        chi = float(run.states["chi"].max())
        if run.model.attention != "linear":
            raise RunFileError(
                f"{run.path}: softmax attention jumps; see mcattn analyze --view sizes"
            )
        if run.model != runs[0].model:
            raise RunFileError(
                f"{run.path} has another model than {runs[0].path}: {run.model} instead of "
                f"{runs[0].model}"
            )
        if chi in chis:
            raise RunFileError(f"{run.path} and {chis[chi]} are both at chi = {chi:g}; give one")
        chis[chi] = run.path


def _pool(run: Run) -> tuple[_Pooled, tuple[float, float], int]:
    """Samples of a run, P within their reach, and how many maxima p(|tau|) has."""
    pool = mbar.pool(run)
    chi = float(pool.states.chi.max())
    two, reach = twophase.scan(pool, chi)
    if not np.isfinite(reach[0]):
        raise TooFewSamplesError(f"{run.path}: too few samples at chi = {chi:g}")

    def excess(P: float) -> float:
        return float(_moments(pool, pool.weights(P, chi)[None])[0, 0]) - HALF

    if not excess(reach[0]) < 0 < excess(reach[1]):
        raise TooFewSamplesError(
            f"{run.path}: within its reach, P = {reach[0]:.5g} to {reach[1]:.5g}, the cumulant of "
            "tau does not pass 1/3: sample nearer to the onset"
        )
    half = float(brentq(excess, *reach, rtol=1e-8))
    draws = resample.draw(pool, peak.influence(pool, chi, half))
    return _Pooled(pool, chi, draws, half), reach, 1 if isinstance(two, str) else 2


def _onset(run: Run, data: _Pooled, reach: tuple[float, float], maxima: int) -> Onset:
    model, chi, half = run.model, data.chi, data.half
    at = peak.place(data.pool, chi, reach)
    if at is None:
        raise TooFewSamplesError(
            f"{run.path}: var |tau| is largest at an end of its reach, P = {reach[0]:.5g} to "
            f"{reach[1]:.5g}: sample nearer to the onset"
        )
    top = peak.estimate(data.pool, data.draws, chi, at)
    P_exact, var_exact = exact_peak(model, chi, at)
    rise = theory.critical_P(model) * RISE
    P = np.linspace(max(reach[0], 0.9 * half), min(reach[1], 1.15 * half), CURVE)
    curves = [_with_error(data, x) for x in P]
    exact_half = linear_stages.onset(model, chi)
    return Onset(
        path=run.path,
        chi=chi,
        complete=run.complete,
        half=Mark(_root(data, half, lambda P, whole: data.read(P, whole)[:, 0] - HALF), exact_half),
        peak=Mark(top.P, P_exact),
        var=Mark(top.var, var_exact),
        exponent=_exponent(data, rise[rise <= data.pool.states.P.max()]),
        critical=theory.critical_P(model, chi),
        maxima=maxima,
        P=P,
        B=np.array([c[0] for c in curves]),
        alpha=np.array([c[1] for c in curves]),
    )


def _with_error(data: _Pooled, P: float) -> np.ndarray:
    """B and alpha with their errors, shape (2, 2)."""
    spread = data.read(P, False).std(axis=0, ddof=1)
    return np.stack([data.read(P, True)[0], data.draws.widened(spread)], axis=1)


def _root(data: _Pooled, P: float, excess: Callable[[float, bool], np.ndarray]) -> Estimate:
    """The root of `excess` near P, where that of the whole is zero, with its error."""
    width = 0.02 * P
    slope = float((excess(P + width, True) - excess(P - width, True))[0]) / (2 * width)
    return data.draws.estimate(P, P - excess(P, False) / slope)


def _crossing(
    a: tuple[_Pooled, tuple[float, float], int], b: tuple[_Pooled, tuple[float, float], int]
) -> Mark:
    """Where the cumulants of two chi cross, below the P_half of both."""
    one, other = a[0], b[0]

    def excess(P: float, whole: bool) -> np.ndarray:
        return other.read(P, whole)[:, 0] - one.read(P, whole)[:, 0]

    low = max(a[1][0], b[1][0], (1 - 2 * _NARROW) * other.half)
    high = min(one.half, other.half)
    nothing = Mark(Estimate(NAN, NAN, NAN, 0.0, "no crossing within reach"), NAN)
    if not excess(low, True)[0] < 0 < excess(high, True)[0]:
        return nothing
    P = float(brentq(lambda x: float(excess(x, True)[0]), low, high, rtol=1e-7))
    return Mark(_root(other, P, excess), _exact_crossing(one, other, P))


def _exact_crossing(one: _Pooled, other: _Pooled, P: float) -> float:
    model = one.pool.model

    def excess(x: float) -> float:
        low, high = (linear_exact.averages(model, x, y.chi, _ACCURATE) for y in (one, other))
        return float(high.binder - low.binder)

    ends = (1 - _NARROW) * P, (1 + _NARROW) * P
    return float(brentq(excess, *ends, rtol=1e-5)) if excess(ends[0]) < 0 < excess(ends[1]) else NAN


def exact_peak(model: CopyModel, chi: float, P: float) -> tuple[float, float]:
    """P of the largest var |tau| near P, and that variance, exactly."""
    bounds = (1 - _NARROW) * P, (1 + _NARROW) * P
    best = minimize_scalar(
        lambda x: -float(linear_exact.averages(model, x, chi, _ACCURATE).var_abs_tau),
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-4 * P},
    )
    return float(best.x), -float(best.fun)


def _exponent(data: _Pooled, P: np.ndarray) -> Mark:
    """b of alpha at the points P, shape (j,); nan with fewer than 5 of them."""
    if len(P) < 5:
        return Mark(Estimate(NAN, NAN, NAN, 0.0, "no states far enough above the onset"), NAN)
    model = data.pool.model
    whole = np.array([data.read(x, True)[0, 1] for x in P])
    drawn = np.stack([data.read(x, False)[:, 1] for x in P], axis=1)
    P_c = theory.critical_P(model)
    fits = np.array([power(P, alpha, P_c) for alpha in drawn])
    estimate = data.draws.estimate(power(P, whole, P_c), fits)
    exact = linear_exact.curve(model, data.chi, P, _ACCURATE).signed_alpha
    return Mark(estimate, power(P, np.asarray(exact), P_c))


def power(P: np.ndarray, alpha: np.ndarray, P_c: float) -> float:
    """b of the line b ln(P - P_c) + c nearest to ln alpha, shape (j,)."""
    return float(np.polyfit(np.log(P - P_c), np.log(alpha), 1)[0])


def _verdict(found: Sequence[Onset], crossings: Sequence[Mark], P_c: float) -> str:
    last = found[-1]
    order = all(onset.maxima == 1 for onset in found)
    kind = "Continuous" if order else "Not continuous"
    said = "a single maximum" if order else "two maxima"
    text = f"{kind}: p(|tau|) has {said} at every P within reach"
    for (one, other), mark in zip(pairwise(found), crossings, strict=True):
        if math.isfinite(mark.found.value):
            P = short(mark.found.value, mark.found.error)
            text += f"; the cumulants of chi = {one.chi:g} and {other.chi:g} cross at P = {P}"
    text += f"; P_c of chi = inf is {P_c:.6g}"
    b = last.exponent
    if math.isfinite(b.found.value):
        value = short(b.found.value, b.found.error)
        text += (
            f"; above it alpha grows like (P - P_c)^b with b = {value} at chi = {last.chi:g}, "
            f"exactly {b.exact:.3f} over the same P (1/2 at P_c itself)"
        )
    return f"{text}."
