"""Where softmax attention changes phase at finite chi, fluctuations of the scores included.

Two phases exist at P where p(m), the density of the copy overlap (`mcattn.finite_chi`), has two
peaks. Axes: n points of p(m).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from mcattn import finite_chi, landscape, rows, theory
from mcattn.errors import ModelError
from mcattn.finite_chi import Curve, Lines, Saddle
from mcattn.model import CopyModel, positive

MIDDLE = 0.35  # m whose landscape P begins the search where the landscape has no transition
SLIGHT = 1e-3  # kT: a lower barrier is not told from none
SEARCH, SETTLED = 30, 2e-3  # steps to the transition; relative change of P that ends them
LONGEST = 0.15  # relative change of P in one of them
NEARBY = 1.005  # factor by which brackets of P grow
SCAN = np.geomspace(0.93, 1.07, 57)  # of P, relative, in which two peaks of p(m) are looked for
SCRAMBLINGS = 4
COARSE = 2  # gathering of the rougher nodes, relative to the fine ones
FEWER = 4  # times fewer samples in them


class Value(NamedTuple):
    """A number of this theory and the size of its numerical error."""

    value: float
    error: float


@dataclass(frozen=True)
class Coexistence:
    """The transition between the uniform and the copy phase at one chi.

    P_equal_height : both peaks of p(m) are equally high.
    P_equal_weight : the phases, divided at the m of the lowest point between these peaks, have
        equal weights.
    P_saddle : P_equal_weight by saddle point and Gaussian correction alone; its error contains
        the distance to P_equal_weight.
    m_minus, m_plus : <m> in each phase at P_equal_weight; dm is their difference.
    peak_minus, peak_plus : m of the peaks of p(m) at P_equal_height.
    barrier : ln of the ratio of a peak of p(m) to the lowest point between, at P_equal_height:
        the height of the top of Phi = -ln p(m) over its minima, in kT.
    loss_minus, loss_plus : <test loss> in each phase at P_equal_weight.
    """

    P_equal_weight: Value
    P_equal_height: Value
    P_saddle: Value
    m_minus: Value
    m_plus: Value
    dm: Value
    peak_minus: Value
    peak_plus: Value
    barrier: Value
    loss_minus: Value
    loss_plus: Value


class Phases(NamedTuple):
    """Two peaks of p(m) and the lowest point between them, each with its m and ln p."""

    minus: tuple[float, float]
    between: tuple[float, float]
    plus: tuple[float, float]


def coexistence(model: CopyModel, chi: float) -> Coexistence | None:
    """The transition of softmax attention at this chi; None where p(m) has one peak at every P.

    The errors are numerical: from the scatter between scramblings of the score samples, from
    gathering them, and from interpolating p(m). Source: docs/theory.md, "Finite chi, softmax".

    Raises
    ------
    ModelError : linear attention, chi not finite and > 0, or an action too steep to be summed.
    """
    chi = _checked(model, chi)
    P = _approach(model, chi)
    fine = rows.sample(model, chi, seed=0)
    path = finite_chi.path(fine, model, P, chi)
    exact = finite_chi.lines(fine, model, chi, path)
    best = numbers(exact, P)
    if best is None:
        return None
    P = best["P_equal_weight"]
    saddle = numbers(exact.saddle, P)
    thin = numbers(exact.every_other(), P)
    gathered = numbers(_rough(model, chi, path, 0, rows.SAMPLES), P)
    few, seeds = rows.SAMPLES // FEWER, range(1, SCRAMBLINGS + 1)
    scatter = [numbers(_rough(model, chi, path, seed, few), P) for seed in seeds]
    known = [one for one in scatter if one is not None]
    if saddle is None or thin is None or gathered is None or len(known) < SCRAMBLINGS:
        return None  # a barrier no higher than the errors
    values = {}
    for name, value in best.items():
        parts = (
            # Four times the samples: the scatter is half as wide at most.
            np.std([one[name] for one in known], ddof=1) / math.sqrt(FEWER),
            # Gathering acts in proportion to the square of its width, interpolation to the
            # fourth power of the spacing; the factor 4 leaves room for doubt.
            (gathered[name] - saddle[name]) / (COARSE**2 - 1),
            (thin[name] - value) / 4,
        )
        values[name] = Value(value, math.hypot(*parts))
    P_saddle = saddle["P_equal_weight"]
    distance = abs(P_saddle - P)
    values["P_saddle"] = Value(P_saddle, distance + values["P_equal_weight"].error)
    return Coexistence(**values)


def plain(found: Coexistence | None) -> dict[str, Any]:
    """Plain values: P_saddle, and all numbers below `fluctuations`; both None for one phase."""
    if found is None:
        return {"P_saddle": None, "fluctuations": None}
    values = {name: value._asdict() for name, value in vars(found).items()}
    return {"P_saddle": values["P_saddle"], "fluctuations": values}


def curve(model: CopyModel, chi: float, P: float) -> Curve:
    """The density of m at P, normalised, with <q> and <loss> at each m.

    Raises
    ------
    ModelError : as `coexistence`, or P is not finite and > 0.
    """
    P, chi = positive("P", P), _checked(model, chi)
    found = lines(model, chi, P).curve(P)
    return found._replace(ln_p=found.ln_p - found.ln_weight())


def sketch(model: CopyModel, chi: float, P: float | None = None) -> tuple[float, Curve]:
    """P, by default nearly that of equal weights, and p(m) there by a rough saddle point.

    Good to a few percent, in a second: for windows, axes, first guesses.

    Raises
    ------
    ModelError : as `coexistence`.
    """
    chi = _checked(model, chi)
    P = _approach(model, chi) if P is None else positive("P", P)
    nodes = _few_nodes(model, chi)
    return P, finite_chi.saddle(nodes, model, chi, finite_chi.path(nodes, model, P, chi)).curve(P)


def lines(model: CopyModel, chi: float, P: float) -> Lines:
    """The density of (m, q) for values of P near this one."""
    nodes = rows.sample(model, chi, seed=0)
    return finite_chi.lines(nodes, model, chi, finite_chi.path(nodes, model, P, chi))


def phases(curve: Curve) -> Phases | None:
    """The two peaks of p(m) with the deepest gap between them; None if there is one peak."""
    y = curve.ln_p
    peaks = 1 + np.flatnonzero((y[1:-1] > y[:-2]) & (y[1:-1] >= y[2:]))
    if peaks.size < 2:
        return None
    top = int(peaks[y[peaks].argmax()])
    others = [int(peak) for peak in peaks if peak != top]
    second = max(others, key=lambda i: _prominence(y, peaks, i))
    if _prominence(y, peaks, second) < SLIGHT:
        return None
    low, high = sorted((top, second))
    gap = low + int(y[low : high + 1].argmin())
    return Phases(*(_vertex(curve, i) for i in (low, gap, high)))


def _prominence(y: np.ndarray, peaks: np.ndarray, i: int) -> float:
    """How far one must descend from a peak to come to a higher one."""
    higher = peaks[y[peaks] > y[i]]
    sides = (higher[higher < i][-1:], higher[higher > i][:1])
    passes = [y[min(i, j[0]) : max(i, j[0]) + 1].min() for j in sides if j.size]
    return float(y[i] - max(passes)) if passes else 0.0


def _vertex(curve: Curve, i: int) -> tuple[float, float]:
    """Extremum of the parabola through three points of ln p, as if they were equidistant."""
    before, here, after = curve.ln_p[i - 1 : i + 2]
    bend = after - 2 * here + before
    shift = (before - after) / (2 * bend)
    m = float(np.interp(i + shift, [i - 1, i, i + 1], curve.m[i - 1 : i + 2]))
    return m, float(here - (after - before) ** 2 / (8 * bend))


def numbers(density: Lines | Saddle, P: float) -> dict[str, float] | None:
    """Everything about the transition near this P; None if there is one peak."""
    level = _level(density, P)
    if level is None:
        return None
    P_height, peaks = level
    split = peaks.between[0]
    P_weight = _root(lambda x: _ln_ratio(density.curve(x), split), P)
    at_weight = density.curve(P_weight)
    minus, plus = (at_weight.between(*ends).means() for ends in ((0, split), (split, 1)))
    return {
        "P_equal_weight": P_weight,
        "P_equal_height": P_height,
        "m_minus": minus["m"],
        "m_plus": plus["m"],
        "dm": plus["m"] - minus["m"],
        "peak_minus": peaks.minus[0],
        "peak_plus": peaks.plus[0],
        "barrier": peaks.plus[1] - peaks.between[1],
        "loss_minus": minus["loss"],
        "loss_plus": plus["loss"],
    }


def _level(density: Lines | Saddle, P: float) -> tuple[float, Phases] | None:
    """P at which both peaks are equally high, and the peaks there; None if there is one."""
    seen = (phases(density.curve(x)) for x in (P, *(P * SCAN).tolist()))
    found = next((peaks for peaks in seen if peaks is not None), None)
    for _ in range(4):
        if found is None:
            return None
        P = _root(partial(_excess, density, found.between[0]), P)
        found = phases(density.curve(P))
    return None if found is None else (P, found)


def _excess(density: Lines | Saddle, split: float, P: float) -> float:
    """How much higher ln p rises above the split than below it."""
    curve = density.curve(P)
    above = curve.m > split
    heights = []
    for part in (above, ~above):
        i = int(np.flatnonzero(part)[curve.ln_p[part].argmax()])
        heights.append(_vertex(curve, i)[1] if 0 < i < len(curve.m) - 1 else curve.ln_p[i])
    return float(heights[0] - heights[1])


def _ln_ratio(curve: Curve, split: float) -> float:
    """ln of the weight above the split over that below it."""
    return curve.between(split, 1).ln_weight() - curve.between(0, split).ln_weight()


def _root(rising: Callable[[float], float], P: float) -> float:
    """Zero of a rising function of P, looked for around P."""
    low = high = P
    while rising(low) > 0:
        low /= NEARBY
    while rising(high) < 0:
        high *= NEARBY
    return P if low == high else float(brentq(rising, low, high, rtol=1e-11))


def _approach(model: CopyModel, chi: float) -> float:
    """P of equal weights by Newton's method on rough saddle-point curves, each on its own path."""
    jump = theory.boundary(model, chi)
    if jump is not None:
        P, split = jump.P_star, math.sqrt(jump.m_minus * jump.m_plus)
    else:
        split = max(MIDDLE, 1.2 / model.L)
        gap = math.log(split * (model.L - 1) / (1 - split))
        P = float(landscape.equation_of_state(model, chi, [gap])[0])
    nodes = _few_nodes(model, chi)
    for _ in range(SEARCH):
        path = finite_chi.path(nodes, model, P, chi)
        density = finite_chi.saddle(nodes, model, chi, path)
        here = density.curve(P)
        if (found := phases(here)) is not None:
            split = found.between[0]
        excess = _ln_ratio(here, split)
        slope = _ln_ratio(density.curve(P * (1 + SETTLED)), split) - excess
        step = -excess * SETTLED / slope
        P *= 1 + min(max(step, -LONGEST), LONGEST)
        if abs(step) < SETTLED:
            return P
    raise ModelError(f"no P of equal weights near {P:.5g} for this theory")


def _few_nodes(model: CopyModel, chi: float) -> rows.Rows:
    return rows.sample(model, chi, 1, COARSE * rows.GATHER, rows.SAMPLES // FEWER)


def _rough(model: CopyModel, chi: float, path: finite_chi.Path, seed: int, samples: int) -> Saddle:
    nodes = rows.sample(model, chi, seed, COARSE * rows.GATHER, samples)
    return finite_chi.saddle(nodes, model, chi, path)


def _checked(model: CopyModel, chi: float) -> float:
    if model.attention != "softmax":
        raise ModelError(
            "this theory is for softmax attention; mcattn.linear_exact has the exact averages "
            "of linear attention"
        )
    if chi == math.inf:
        raise ModelError("chi is inf: no fluctuations are left; see theory.boundary")
    return positive("chi", chi)
