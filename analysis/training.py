"""What a training run yields at every P: members, their scatter, the best of them, switching.

Adam and the flow are judged by where they end, sgld by its averages over rows. A member has
reached the lowest minimum if its H is within TOLERANCE of the lowest of its data set.
Axes: t rows, r members, k states.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcattn import phases, theory
from mcattn.analysis import fixed, series
from mcattn.analysis.loop import DOWN, UP, Switching
from mcattn.analysis.series import NAN, Estimate
from mcattn.model import CopyModel
from mcattn.runfile import Run

TOLERANCE = 1e-3  # of H, relative; other minima of the model lie several per cent higher
STILL = 0.01  # largest change of m in the second half of the steps, in units of m or of 1/L
OBSERVABLES = ("m", "q", "alpha", "beta", "H", "loss", "share")


@dataclass(frozen=True)
class Averages:
    """Observables of trained networks; for linear attention with the sign that makes tau > 0.

    The error is that over data sets if there are several, else that over members.
    """

    m: Estimate
    q: Estimate
    alpha: Estimate
    beta: Estimate
    H: Estimate  # loss with weight decay
    loss: Estimate  # test loss per position
    share: Estimate  # of the squared scores' weights that acts on positions alone


@dataclass(frozen=True)
class TrainedPoint:
    """The ensemble at one P.

    all : mean over the members; best : mean over data sets of the member with the lowest H.
    values : every member's numbers, each (r,), for figures.
    spread : standard deviation of m over the members.
    reached : share of members that reach the lowest H of their data set; nan for sgld.
    trapped : share of members with beta < 0 that do not.
    best_members : the best member of every data set.
    steps : done so far; moving : whether m still changed in the second half of them.
    """

    P: float
    chi: float
    branch: int
    steps: int
    all: Averages
    best: Averages
    values: dict[str, tuple[float, ...]]
    spread: float
    reached: float
    trapped: float
    best_members: tuple[int, ...]
    moving: bool
    acceptance: float


@dataclass(frozen=True)
class Course:
    """m and test loss against the steps at one P, mean over members; each (t,)."""

    P: float
    branch: int
    steps: np.ndarray
    m: np.ndarray
    loss: np.ndarray


@dataclass(frozen=True)
class TrainingResult:
    """All of a training run, and what to know before using it."""

    model: CopyModel
    chi: float
    network: str
    optimiser: str
    start: str
    path: str
    seed: int
    sets: int
    replicas: int
    complete: bool
    switch: tuple[float, float] | None
    versions: dict[str, str]
    points: tuple[TrainedPoint, ...]
    switches: tuple[Switching, ...]
    courses: tuple[Course, ...]
    theory: dict[str, float | None]
    warnings: tuple[str, ...]

    @property
    def control(self) -> str:
        return "P"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; courses are in the run file itself."""
        out = series.plain(self)
        del out["courses"]
        return {"protocol": "train"} | out


def analyze(run: Run) -> TrainingResult:
    """Members, best members and switching points of a training run, finished or not.

    Raises
    ------
    RunFileError : the run has another protocol.
    TooFewSamplesError : the run has no rows yet.
    """
    fixed.expect(run, "train")
    job = tomllib.loads(run.job)
    protocol, sets = job["protocol"], job.get("data", {}).get("sets", 1)
    values = _values(run)
    optimiser = protocol.get("optimiser", "adam")
    seen = np.unique(run.state[:, 0])
    points = tuple(_point(run, values, int(k), sets, optimiser == "sgld") for k in seen)
    chi = float(run.states["chi"][0])
    return TrainingResult(
        model=run.model,
        chi=chi,
        network=protocol.get("network", "positional"),
        optimiser=optimiser,
        start=protocol.get("start", "small"),
        path=protocol.get("path", "continue"),
        seed=run.seed,
        sets=sets,
        replicas=run.replicas,
        complete=run.complete,
        switch=run.switch,
        versions=run.versions,
        points=points,
        switches=tuple(_switching(run, points, branch) for branch in _directions(run, points)),
        courses=tuple(_course(run, values, int(k)) for k in seen),
        theory=theory.report(run.model, chi),
        warnings=tuple(_warnings(run, points)),
    )


def _values(run: Run) -> dict[str, np.ndarray]:
    """Every observable of every row and member, each (t, r)."""
    X = fixed.sign_fixed(run.X, run.model)
    # The test loss of the networks themselves takes the place of the mean predictor's.
    return fixed.observables(X, run.model, float(run.states["P"][0])) | run.training


def _point(
    run: Run, values: dict[str, np.ndarray], k: int, sets: int, averaged: bool
) -> TrainedPoint:
    rows = np.flatnonzero(run.state[:, 0] == k)
    own = {name: values[name][rows] for name in OBSERVABLES}
    ends = {name: x.mean(axis=0) if averaged else x[-1] for name, x in own.items()}
    groups = np.arange(run.replicas) * sets // run.replicas
    best, reached = best_of(ends["H"], groups)
    half, m = len(rows) // 2, own["m"]
    scale = max(abs(m[-1].mean()), 1 / run.model.L)
    moved = abs(m[-1].mean() - m[half].mean()) > STILL * scale
    return TrainedPoint(
        P=float(run.states["P"][k]),
        chi=float(run.states["chi"][k]),
        branch=int(run.states["branch"][k]),
        steps=int(run.sweep[rows[-1]] - _begun(run, k)),
        all=Averages(**{n: _mean(own[n], ends[n], groups, averaged) for n in OBSERVABLES}),
        best=Averages(**{name: series.independent(ends[name][best]) for name in OBSERVABLES}),
        values={name: tuple(x.tolist()) for name, x in ends.items()},
        spread=float(ends["m"].std(ddof=1)) if run.replicas > 1 else NAN,
        reached=NAN if averaged else float(reached.mean()),
        trapped=NAN if averaged else float((~reached & (ends["beta"] < 0)).mean()),
        best_members=tuple(best),
        moving=not averaged and bool(moved),
        acceptance=fixed.acceptance(run, k),
    )


def best_of(H: np.ndarray, groups: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The member with the lowest H of each group, and who is within TOLERANCE of it, shape (r,)."""
    members = [np.flatnonzero(groups == g) for g in range(int(groups.max()) + 1)]
    best = [int(own[H[own].argmin()]) for own in members]
    return best, H[best][groups] * (1 + TOLERANCE) >= H


def _begun(run: Run, k: int) -> int:
    """Steps done before state k was entered."""
    return int((run.states["thermalize"] + run.states["sweeps"])[:k].sum())


def _mean(rows: np.ndarray, ends: np.ndarray, groups: np.ndarray, averaged: bool) -> Estimate:
    if groups[-1]:
        return series.independent([ends[groups == g].mean() for g in range(groups[-1] + 1)])
    return series.mean(rows) if averaged and np.ptp(rows) else series.independent(ends)


def _course(run: Run, values: dict[str, np.ndarray], k: int) -> Course:
    rows = run.state[:, 0] == k
    m, loss = (values[name][rows].mean(axis=1) for name in ("m", "loss"))
    P, branch = float(run.states["P"][k]), int(run.states["branch"][k])
    return Course(P, branch, run.sweep[rows] - _begun(run, k), m, loss)


def _directions(run: Run, points: tuple[TrainedPoint, ...]) -> list[int]:
    """Directions in which the path is followed, where there are two phases to tell apart."""
    found = {point.branch for point in points} - {0}
    return sorted(found, reverse=True) if run.switch else []


def _switching(run: Run, points: tuple[TrainedPoint, ...], branch: int) -> Switching:
    """Where members change branch for the first time: the middle of the step in P."""
    assert run.switch is not None
    m = np.array([point.values["m"] for point in points])
    first = phases.COPY if branch == DOWN else phases.UNIFORM
    phase = phases.follow(m, np.full(m.shape[1], first), *run.switch)
    P = np.array([point.P for point in points])
    here = np.array([point.branch for point in points]) == branch
    turned = np.zeros(m.shape, dtype=bool)
    target = phases.COPY if branch == UP else phases.UNIFORM
    turned[1:] = (phase[1:] == target) & (phase[:-1] != target) & here[1:, None]
    done = turned.any(axis=0)
    k = turned.argmax(axis=0)[done]
    at = np.full(m.shape[1], NAN)
    at[done] = (P[k] + P[k - 1]) / 2
    seen, note = at[done], None
    if seen.size < at.size:
        note = f"{seen.size} of {at.size} members switched" if seen.size else "no member switched"
    value = error = spread = NAN
    if seen.size:
        value, grid = float(seen.mean()), float(np.mean((P[k] - P[k - 1]) ** 2)) / 12
        spread = float(seen.std(ddof=1)) if seen.size > 1 else NAN
        # Members share the grid: its error does not average out.
        error = float(np.sqrt(np.nan_to_num(spread) ** 2 / seen.size + grid))
    places = tuple(at.tolist())
    return Switching(branch, value, error, spread, int(seen.size), at.size, places, note)


def _warnings(run: Run, points: tuple[TrainedPoint, ...]) -> list[str]:
    found = []
    if not run.complete:
        done = int(run.sweep[-1])
        found.append(f"unfinished: {done} of {run.planned_sweeps} steps; the rows so far are used")
    moving = [f"{point.P:g}" for point in points if point.moving]
    if moving:
        found.append(
            f"m still moved by over {STILL:.0%} in the second half of the steps at P = "
            f"{', '.join(moving)}: near a spinodal, or too few steps"
        )
    way = {UP: " (up)", DOWN: " (down)", 0: ""}
    stray = [f"{p.P:g}{way[p.branch]}" for p in points if p.reached < 1]
    if stray:
        found.append(f"not all members reach the lowest H found at P = {', '.join(stray)}")
    return found
