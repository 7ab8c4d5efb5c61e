"""The stages of learning in one run: where each begins on the way up in P.

Linear attention: nothing, then uniform attention (from the onset), then copying (from the
crossover); softmax attention: nothing, then copying, in one jump. Axes: t rows, r replicas,
k points of the way up, in the order of P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from mcattn import linear_stages
from mcattn.analysis import fixed, hysteresis, series
from mcattn.analysis.facts import RunFacts, facts
from mcattn.analysis.loop import UP, BranchPoint
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import ModelError, RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

HALF_ORDER = 1 / 3  # of the cumulant, which goes from 0 to 2/3


@dataclass(frozen=True)
class Stage:
    """The begin of a stage.

    name : what the network begins to do.
    P : where, with error; value nan if the run does not show it.
    exact : the same mark from theory, nan if there is none.
    mark : what marks it, in words.
    """

    name: str
    P: Estimate
    exact: float
    mark: str


@dataclass(frozen=True)
class StagesResult(RunFacts):
    """The points of the way up, k of them, and where stages begin."""

    points: tuple[BranchPoint, ...]
    stages: tuple[Stage, ...]
    jump: dict[str, tuple[Estimate, Estimate]]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"view": "stages"} | series.plain(self) | {"path": str(self.path)}


def analyze(run: Run) -> StagesResult:
    """Stages along the rising branch of a hysteresis run, that of its slowest loop.

    Raises
    ------
    RunFileError : not a hysteresis run in P at one chi, or it never rises.
    TooFewSamplesError : fewer than 3 points of the way up are there yet.
    """
    whole = hysteresis.analyze(run)
    if whole.control != "P" or not np.isfinite(whole.chi):
        raise RunFileError(f"{run.path}: stages need a path in P at one chi")
    loop = whole.slowest
    points = tuple(sorted(loop.branch(UP), key=lambda point: point.P))
    if not points and not np.any(run.states["branch"] == UP):
        raise RunFileError(f"{run.path}: P never rises along its path; stages are dated on a rise")
    if len(points) < 3:
        raise TooFewSamplesError(
            f"{run.path} has {len(points)} points of the way up so far; stages need at least 3"
        )
    softmax = run.model.attention == "softmax"
    return StagesResult(
        **vars(facts(run, whole.chi, run.replicas)),
        points=points,
        stages=(_jump(whole),) if softmax else _continuous(run, whole.chi, loop.index, points),
        jump=_sides(points) if softmax else {},
        warnings=whole.warnings,
    )


def _jump(whole: hysteresis.HysteresisResult) -> Stage:
    """Copying begins where replicas switch; the landscape's spinodal is the latest place."""
    up = whole.slowest.P_up
    flag = up.note or (series.FEW if up.switched < series.REPLICAS else None)
    value = Estimate(up.value, up.error, NAN, float(up.switched), flag)
    spinodal = whole.theory.get("P_hi")
    mark = "replicas jump; theory: P_hi of the landscape"
    return Stage("copying", value, NAN if spinodal is None else spinodal, mark)


def _sides(points: tuple[BranchPoint, ...]) -> dict[str, tuple[Estimate, Estimate]]:
    """Observables at the last point with all rows uniform and the first with all in copy."""
    before = [point for point in points if point.copy_fraction == 0]
    after = [point for point in points if point.copy_fraction == 1]
    if not before or not after:
        return {}
    last, first = before[-1], after[0]
    return {name: (getattr(last, name), getattr(first, name)) for name in ("m", "loss")}


def _continuous(
    run: Run, chi: float, loop: int, points: tuple[BranchPoint, ...]
) -> tuple[Stage, ...]:
    """Onset and crossover of linear attention, from moments that each replica has at each P."""
    P = np.array([point.P for point in points])
    moments = np.stack([_moments(run, loop, p) for p in P])  # (k, r, 4)
    names = (
        ("uniform attention", _disorder, "cumulant of tau is 1/3", linear_stages.onset),
        ("copying", _uniformity, "beta overtakes alpha", linear_stages.crossover),
    )
    return tuple(
        Stage(name, _crossing(P, moments, excess), _exact(mark, run.model, chi), text)
        for name, excess, text, mark in names
    )


def _moments(run: Run, loop: int, P: float) -> np.ndarray:
    """tau^2, tau^4, alpha and beta (with the sign of tau) of every replica, shape (r, 4)."""
    own = (run.states["loop"] == loop) & (run.states["branch"] == UP) & (run.states["P"] == P)
    X = fixed.sign_fixed(run.X[own[run.state[:, 0]]], run.model)
    values = fixed.observables(X, run.model, P)
    tau = values["tau"]
    return np.stack([x.mean(axis=0) for x in (tau**2, tau**4, values["alpha"], values["beta"])], -1)


def _disorder(moments: np.ndarray) -> np.ndarray:
    """Turns positive at the onset; moments have shape (k, 4)."""
    return 1 - moments[:, 1] / (3 * moments[:, 0] ** 2) - HALF_ORDER


def _uniformity(moments: np.ndarray) -> np.ndarray:
    """Turns positive at the crossover."""
    return moments[:, 3] - moments[:, 2]


def _crossing(
    P: np.ndarray, moments: np.ndarray, excess: Callable[[np.ndarray], np.ndarray]
) -> Estimate:
    """The P at which `excess` of the mean moments turns positive; jackknife over replicas."""
    replicas = moments.shape[1]
    total = moments.sum(axis=1)
    value = root(P, excess(total / replicas))
    if not np.isfinite(value):
        return Estimate(NAN, NAN, NAN, 0.0, "not reached on this path")
    if replicas == 1:
        return Estimate(value, NAN, NAN, 1.0, series.FEW)
    without = [root(P, excess((total - moments[:, r]) / (replicas - 1))) for r in range(replicas)]
    pseudo = replicas * value - (replicas - 1) * np.array(without)
    scatter = series.independent(pseudo)
    return Estimate(value, scatter.error, NAN, float(replicas), scatter.flag)


def root(P: np.ndarray, y: np.ndarray) -> float:
    """The last P at which y, shape (k,), turns positive on its monotone interpolant, or nan."""
    turns = np.flatnonzero((y[:-1] < 0) & (y[1:] >= 0))
    if not turns.size:
        return NAN
    curve = PchipInterpolator(P, y)
    inside = [x for x in curve.roots(extrapolate=False) if x >= P[turns[-1]]]
    return float(inside[0]) if inside else NAN


@lru_cache  # a second or two each
def _exact(mark: Callable[[CopyModel, float], float], model: CopyModel, chi: float) -> float:
    try:
        return mark(model, chi)
    except ModelError:
        return NAN
