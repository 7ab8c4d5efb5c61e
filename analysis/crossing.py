"""The free-energy crossing of the two branches of a hysteresis run.

Along a branch the free energy G of its phase changes by <dF/dP>; the difference of the phases,
known at one P from a run that connects them (`Anchor`), is carried by the branches to where it
vanishes. Axes: k points of P, r replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from mcattn import action, phases
from mcattn.analysis import fixed, series
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import Run

STEP = 1e-4  # relative, of the difference quotient in P
LEAST_POINTS = 3
LEAST_REPLICAS = 4
SHARE = 0.5  # of the replicas must keep to their phases: the last to leave are a selection


@dataclass(frozen=True)
class Anchor:
    """G(copy) - G(uniform) at one P, with its error, and the run that gave it."""

    P: float
    difference: float
    error: float
    source: str


@dataclass(frozen=True)
class Crossing:
    """Where the branches of one loop cross; replicas that kept to their phase all the way count."""

    P: Estimate
    sweeps_per_point: int
    replicas: int
    points: int


def slope(X: np.ndarray, model: CopyModel, P: float, chi: float) -> np.ndarray:
    """dF/dP, shape (...), of the sums X, shape (..., 5)."""
    low, high = P * (1 - STEP), P * (1 + STEP)
    difference = action.population(X, model, high, chi) - action.population(X, model, low, chi)
    return difference / (high - low)


def crossings(run: Run, anchor: Anchor) -> list[Crossing]:
    """One crossing for each loop of a hysteresis run in P at one chi, slowest last.

    Raises
    ------
    RunFileError : no loop has both branches from the anchor to the crossing.
    """
    fixed.expect(run, "hysteresis")
    fixed.population_only(run)
    if np.ptp(run.states["chi"]) > 0 or run.switch is None:
        raise RunFileError(f"{run.path}: a crossing needs a path in P at one chi, and two phases")
    sweeps = run.states["thermalize"] + run.states["sweeps"]
    found = []
    for loop in np.unique(run.states["loop"]):
        own = run.states["loop"] == loop
        crossing = _crossing(run, int(loop), int(sweeps[own][-1]), anchor)
        if crossing is not None:
            found.append(crossing)
    if not found:
        raise RunFileError(
            f"{run.path}: no loop has {LEAST_POINTS} points, with {LEAST_REPLICAS} replicas in "
            f"their phase on both branches, around P = {anchor.P:.5g}"
        )
    return sorted(found, key=lambda crossing: crossing.sweeps_per_point)


def _crossing(run: Run, loop: int, sweeps: int, anchor: Anchor) -> Crossing | None:
    up, down = (_branch(run, loop, branch) for branch in (UP, DOWN))
    common = np.intersect1d(list(up), list(down))
    P, kept = _stretch(common, up, down, anchor.P)
    if P.size < LEAST_POINTS:
        return None
    change = np.stack([down[p][kept] - up[p][kept] for p in P])  # (k, r)
    value = _root(P, change.mean(axis=1), anchor)
    if not np.isfinite(value):
        return None
    count = kept.size
    without = [_root(P, np.delete(change, r, axis=1).mean(axis=1), anchor) for r in range(count)]
    scatter = series.independent(count * value - (count - 1) * np.array(without))
    steep = abs(float(np.interp(value, P, change.mean(axis=1))))
    error = float(np.hypot(scatter.error, anchor.error / steep))
    return Crossing(Estimate(value, error, NAN, count, scatter.flag), sweeps, count, P.size)


def _branch(run: Run, loop: int, branch: int) -> dict[float, np.ndarray]:
    """Mean dF/dP of every replica at each P, nan from where it has left the branch's phase."""
    table = run.states
    own = (table["loop"] == loop)[run.state[:, 0]]
    start = phases.COPY if table["branch"][run.state[own][0, 0]] == DOWN else phases.UNIFORM
    phase = fixed.follow(run, run.X[own][..., 0], start)
    assert phase is not None
    X, state = run.X[own], run.state[own, 0]
    wanted = phases.UNIFORM if branch == UP else phases.COPY
    out = {}
    for k in np.unique(state):
        if table["branch"][k] != branch:
            continue
        at = state == k
        P = float(table["P"][k])
        mean = slope(X[at], run.model, P, float(table["chi"][k])).mean(axis=0)
        out[P] = np.where((phase[at] == wanted).all(axis=0), mean, NAN)
    return out


def _stretch(
    common: np.ndarray, up: dict[float, np.ndarray], down: dict[float, np.ndarray], anchor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The longest row of points around the anchor with enough replicas in their phases."""
    if not common.size or not common[0] <= anchor <= common[-1]:
        return np.empty(0), np.empty(0, dtype=int)
    order = common[np.argsort(np.abs(common - anchor), kind="stable")]
    chosen: list[float] = []
    kept = np.arange(len(up[order[0]]))
    everyone = kept.size
    for P in order:
        good = np.isfinite(up[P][kept]) & np.isfinite(down[P][kept])
        if good.sum() < max(LEAST_REPLICAS, SHARE * everyone):
            break
        kept = kept[good]
        chosen.append(float(P))
    return np.sort(chosen), kept


def _root(P: np.ndarray, change: np.ndarray, anchor: Anchor) -> float:
    """Where the difference of G vanishes, within the points; nan if it does not."""
    curve = CubicSpline(P, change)
    integral = curve.antiderivative()

    def difference(x: float) -> float:
        return anchor.difference + float(integral(x) - integral(anchor.P))

    if difference(P[0]) * difference(P[-1]) > 0:
        return NAN
    return float(brentq(difference, P[0], P[-1]))
