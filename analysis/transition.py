"""The transition from one run of overlapping states: profile, equal weight, equal height, barrier.

All of it by reweighting (`mcattn.analysis.mbar`); errors by a bootstrap over stretches of
time. Axes: k states, n rows, c bins of m, b bootstrap samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import brentq
from scipy.signal import find_peaks

from mcattn import action
from mcattn.analysis import fixed, mbar, series
from mcattn.analysis.mbar import Fit, Pool
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import ModelError, RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

BINS = 100
SMOOTH = 1.5  # bins, of the profile in which minima are looked for
SLIGHT = 0.5  # kT: a lower barrier makes no two phases
BOOTSTRAP = 60
NEAR = 1.0  # kT above a minimum that its parabola is fitted to
STEP = 0.004  # relative step in P when the transition is looked for
NAMES = ("P_equal_weight", "P_equal_height", "barrier", "dm", "m_minus", "m_plus")
MOMENTS = ("var_m", "binder")


@dataclass(frozen=True)
class Profile:
    """Phi = -ln p(m) at one P, on bins with these centres; nan where no row fell.

    error : 68 % half-width of Phi relative to its mean over the bins' weight, shape (c,).
    """

    P: float
    m: np.ndarray
    phi: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class Transition:
    """What a run says of the transition.

    P_equal_weight : both phases have equal weight; m_minus and m_plus are <m> in each of them
        there, dm their difference, var_m and binder = 1 - <d^4>/(3 <d^2>^2), d = m - <m>,
        moments of all.
    P_equal_height : both peaks of p(m) are equally high; barrier is the height of the top of
        Phi over them, in kT.
    None of these, but `phases` = 1, where p(m) has a single peak.
    """

    path: Path
    model: CopyModel
    chi: float
    protocol: str
    seed: int
    complete: bool
    versions: dict[str, str]
    rows: int
    stride: int
    phases: int
    estimates: dict[str, Estimate]
    profiles: tuple[Profile, ...]
    P: np.ndarray
    copy_weight: np.ndarray
    copy_weight_error: np.ndarray
    overlap: np.ndarray
    weakest: tuple[int, int, float]
    verdict: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        names = ("model", "chi", "protocol", "seed", "complete", "versions", "rows", "stride")
        out = {name: series.plain(getattr(self, name)) for name in (*names, "phases")}
        out |= {name: series.plain(value) for name, value in self.estimates.items()}
        out["profiles"] = [
            {"P": p.P} | {n: series.plain(getattr(p, n).tolist()) for n in ("m", "phi", "error")}
            for p in self.profiles
        ]
        columns = ("P", "copy_weight", "copy_weight_error", "overlap")
        out["weights"] = {name: getattr(self, name).tolist() for name in columns[:3]}
        out |= {"overlap": self.overlap.tolist(), "weakest_overlap": list(self.weakest)}
        return out | {"verdict": self.verdict, "warnings": list(self.warnings)}


class Reweighted:
    """p(m) at any P from one fit, with the rows binned once."""

    def __init__(self, fit: Fit, chi: float, edges: np.ndarray) -> None:
        self.fit, self.chi, self.edges = fit, chi, edges
        self.m = (edges[1:] + edges[:-1]) / 2
        self._bin = np.clip(np.digitize(fit.X[:, 0], edges) - 1, 0, len(self.m) - 1)

    def weights(self, P: float) -> np.ndarray:
        """Normalised weights of the rows at P, shape (n,)."""
        ln_w = self.fit.ln_weights(P, self.chi)
        w = np.exp(ln_w - ln_w.max())
        return w / w.sum()

    def phi(self, P: float) -> np.ndarray:
        """-ln of the density of m, shape (c,); inf in empty bins."""
        share = np.bincount(self._bin, self.weights(P), len(self.m))
        with np.errstate(divide="ignore"):
            return -np.log(share / np.diff(self.edges))

    def ln_ratio(self, P: float, split: float) -> float:
        """ln of the weight above the split over that below."""
        w = self.weights(P)
        above = self.fit.X[:, 0] >= split
        return math.log(w[above].sum() / w[~above].sum())

    def balance(self, split: float, near: float) -> float:
        """P at which the weights above and below the split are equal; nan out of reach."""
        low = high = near
        if self.ln_ratio(near, split) > 0:
            while self.ln_ratio(low, split) > 0:
                low *= 1 - STEP
                if not self.in_reach(low):
                    return NAN
        else:
            while self.ln_ratio(high, split) < 0:
                high *= 1 + STEP
                if not self.in_reach(high):
                    return NAN
        return float(brentq(self.ln_ratio, low, high, args=(split,), xtol=1e-6 * near))

    def in_reach(self, P: float) -> bool:
        return self.fit.effective(P, self.chi) >= mbar.REACH

    def peaks(self, P: float) -> tuple[int, int, int] | None:
        """Bins of the two minima of Phi and of the top between them; None with one minimum."""
        phi = self.phi(P)
        known = np.flatnonzero(np.isfinite(phi))
        curve = gaussian_filter1d(phi[known], SMOOTH, mode="nearest")
        padded = np.concatenate([[np.inf], curve, [np.inf]])
        minima, found = find_peaks(-np.minimum(padded, 1e6), prominence=SLIGHT)
        if minima.size < 2:
            return None
        first, second = np.sort(minima[np.argsort(-found["prominences"], kind="stable")[:2]]) - 1
        top = first + int(curve[first : second + 1].argmax())
        return int(known[first]), int(known[top]), int(known[second])

    def height(self, phi: np.ndarray, i: int, sign: float) -> float:
        """Phi at a minimum (sign 1) or a top (-1), from a parabola through the bins near it."""
        near = np.isfinite(phi) & (sign * (phi - phi[i]) < NEAR)
        low, high = i, i
        while low > 0 and near[low - 1]:
            low -= 1
        while high < len(phi) - 1 and near[high + 1]:
            high += 1
        if high - low < 4:
            return float(phi[i])
        x = self.m[low : high + 1] - self.m[i]
        a, b, c = np.polyfit(x, phi[low : high + 1], 2)
        return float(c - b * b / (4 * a)) if sign * a > 0 else float(phi[i])

    def excess(self, P: float, at: tuple[int, int, int]) -> float:
        phi = self.phi(P)
        return self.height(phi, at[0], 1) - self.height(phi, at[2], 1)


def numbers(view: Reweighted, near: float) -> dict[str, float] | None:
    """The transition's numbers from one fit; None where p(m) has one peak or none is in reach."""
    X = view.fit.X
    ends = np.quantile(X[:, 0], (0.02, 0.98))
    split, P, at = float(ends.mean()), near, None
    for _ in range(3):
        P = view.balance(split, P)
        at = view.peaks(P) if math.isfinite(P) else None
        if at is None:
            return None
        split = float(view.m[at[1]])
    P = view.balance(split, P)
    w, copy = view.weights(P), X[:, 0] >= split
    m_minus, m_plus = (float((w * X[:, 0])[s].sum() / w[s].sum()) for s in (~copy, copy))
    d = X[:, 0] - (w * X[:, 0]).sum()
    var = float((w * d**2).sum())
    low, high = P * (1 - STEP), P * (1 + STEP)
    while view.excess(low, at) > 0:
        low *= 1 - STEP
    while view.excess(high, at) < 0:
        high *= 1 + STEP
    level = float(brentq(view.excess, low, high, args=(at,), xtol=1e-6 * P))
    phi = view.phi(level)
    return {
        "P_equal_weight": P,
        "P_equal_height": level,
        "barrier": view.height(phi, at[1], -1) - view.height(phi, at[0], 1),
        "dm": m_plus - m_minus,
        "m_minus": m_minus,
        "m_plus": m_plus,
        "var_m": var,
        "binder": 1 - float((w * d**4).sum()) / (3 * var**2),
        "split": split,
    }


def analyze(run: Run) -> Transition:
    """Where the phases of softmax attention balance, from an umbrella, tempering or fixed run.

    Raises
    ------
    RunFileError : another protocol or linear attention; states that do not overlap; several
        values of chi of which none is the first state's.
    TooFewSamplesError : not enough rows yet.
    """
    mbar.expect_states(run)
    if run.model.attention != "softmax":
        raise RunFileError(
            f"{run.path}: linear attention has no two phases of m; its onset is exact, see "
            "mcattn theory and mcattn.linear_exact"
        )
    data = mbar.pool(run)
    fit = mbar.solve(data)
    matrix = mbar.overlap(data, fit)
    mbar.expect_connected(run, matrix)
    chi = float(data.chi[0])
    edges = np.linspace(data.X[:, 0].min(), data.X[:, 0].max() * (1 + 1e-12), BINS + 1)
    view = Reweighted(fit, chi, edges)
    own = data.P[data.chi == chi]
    near = float(own.mean())
    found = numbers(view, near)
    boot = [mbar.solve(data, rows, fit.f) for rows in mbar.resampled(data, run.seed, BOOTSTRAP)]
    views = [Reweighted(one, chi, edges) for one in boot]
    estimates, failed = _estimates(view, views, found, near, data)
    asked = [near] if found is None else [found["P_equal_weight"], found["P_equal_height"]]
    P, weight, error = _weights(view, views, found, data.units)
    return Transition(
        path=run.path,
        model=run.model,
        chi=chi,
        protocol=run.protocol,
        seed=run.seed,
        complete=run.complete,
        versions=run.versions,
        rows=len(data.X),
        stride=data.stride,
        phases=1 if found is None else 2,
        estimates=estimates,
        profiles=tuple(_profile(view, views, p, data.units) for p in asked),
        P=P,
        copy_weight=weight,
        copy_weight_error=error,
        overlap=matrix,
        weakest=mbar.weakest(matrix),
        verdict=_verdict(run, chi, estimates, view, near),
        warnings=tuple(_warnings(run, data, matrix, failed)),
    )


def _estimates(
    view: Reweighted,
    views: list[Reweighted],
    found: dict[str, float] | None,
    near: float,
    data: Pool,
) -> tuple[dict[str, Estimate], int]:
    """The numbers with bootstrap errors, and in how many samples there was no transition."""
    if found is None:
        return {}, 0
    again = [numbers(one, found["P_equal_weight"]) for one in views]
    good = [values for values in again if values is not None]
    if len(good) < len(views) / 2:
        return {}, len(views) - len(good)
    flag = series.TOO_SHORT if data.unit_rows < mbar.LONG * data.tau else None
    out = {}
    for name in (*NAMES, *MOMENTS):
        width = mbar.half_width(np.array([values[name] for values in good]), data.units)
        out[name] = Estimate(found[name], float(width), data.tau, float(data.units), flag)
    return out, len(views) - len(good)


def _profile(view: Reweighted, views: list[Reweighted], P: float, units: int) -> Profile:
    """Phi with its band; bins that some bootstrap sample left empty have no error."""
    phi = view.phi(P)
    others = np.array([one.phi(P) for one in views])
    with np.errstate(invalid="ignore"):
        error = mbar.half_width(others, units)
    lost = ~np.isfinite(phi)
    return Profile(P, view.m, np.where(lost, NAN, phi), np.where(lost, NAN, error))


def _weights(
    view: Reweighted, views: list[Reweighted], found: dict[str, float] | None, units: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weight of the copy phase against P around the transition, with errors."""
    if found is None:
        return np.empty(0), np.empty(0), np.empty(0)
    center, split = found["P_equal_weight"], found["split"]
    slope = (view.ln_ratio(center * 1.001, split) - view.ln_ratio(center, split)) / (
        0.001 * center
    )
    P = center + np.linspace(-6, 6, 25) / slope
    ratios = np.array([[one.ln_ratio(p, split) for p in P] for one in (view, *views)])
    share = 1 / (1 + np.exp(-ratios))
    return P, share[0], mbar.half_width(share[1:], units)


def _verdict(
    run: Run, chi: float, estimates: dict[str, Estimate], view: Reweighted, near: float
) -> str:
    """One sentence that says what was found."""
    if estimates:
        P, barrier = estimates["P_equal_weight"], estimates["barrier"]
        return (
            f"First order: two phases of equal weight at P = {series.short(P.value, P.error)}, "
            f"{series.short(estimates['dm'].value, estimates['dm'].error)} apart in m, behind a "
            f"barrier of {series.short(barrier.value, barrier.error)} kT."
        )
    ends = np.quantile(view.fit.X[:, 0], (0.02, 0.98))
    P = view.balance(float(ends.mean()), near)
    if not math.isfinite(P):
        return (
            f"No transition in reach: from P = {near:.5g} the rows can be reweighted no further "
            "than to where one phase still has all of the weight; sample at another P."
        )
    return (
        f"One phase: p(m) has a single peak (no barrier above {SLIGHT:g} kT) where its weight "
        f"passes m = {ends.mean():.3g}, at P = {P:.5g}, chi = {chi:g}."
    )


def _warnings(run: Run, data: Pool, matrix: np.ndarray, failed: int) -> list[str]:
    found = fixed.general_warnings(run)
    low, high, value = mbar.weakest(matrix)
    if value < mbar.GOOD_OVERLAP:
        found.append(f"weak overlap {value:.2g} between states {low} and {high}: add states there")
    if data.unit_rows < mbar.LONG * data.tau:
        found.append(
            f"the {data.units} stretches of {data.unit_rows} rows that errors rest on are short "
            f"for an autocorrelation time of {data.tau:.3g} rows: sample longer"
        )
    if failed:
        found.append(f"{failed} of {BOOTSTRAP} bootstrap samples show no transition")
    return found


