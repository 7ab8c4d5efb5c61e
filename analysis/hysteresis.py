"""The hysteresis loop: where replicas switch on the way up and down, and what the loop encloses.

All R replicas follow one path of control values (of P, or of chi at fixed P), each on its own;
every point of the path is a state of the run, and the whole path is done once for each rate.
Axes: t rows, r replicas, k states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.integrate import trapezoid

from mcattn import phases, theory
from mcattn.analysis import fixed, series
from mcattn.analysis.loop import DOWN, NAMES, UP, BranchPoint, HysteresisResult, Loop, Switching
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import RunFileError
from mcattn.runfile import Run

PARTIAL = "partial path"
NO_RULE = "the run has no switch rule"


class _Rows(NamedTuple):
    """The rows of one loop: sums, state of each row, phases (None without a switch rule)."""

    X: np.ndarray  # (t, r, 5)
    state: np.ndarray  # (t,)
    phase: np.ndarray | None  # (t, r)
    loss: np.ndarray | None  # (t, r) in a run on data sets


def analyze(run: Run) -> HysteresisResult:
    """Branches, switching points and loop areas of a hysteresis run, finished or not.

    Raises
    ------
    RunFileError : the run has another protocol, or replicas in different states at one time.
    TooFewSamplesError : the run has no rows yet.
    """
    fixed.expect(run, "hysteresis")
    if np.any(run.state != run.state[:, :1]):
        raise RunFileError(f"{run.path}: the replicas of a loop must all be in the same state")
    X = fixed.sign_fixed(run.X, run.model)
    loop_of_row = run.states["loop"][run.state[:, 0]]
    loops = tuple(_loop(run, X, loop_of_row, int(i)) for i in np.unique(loop_of_row))
    chis = np.unique(run.states["chi"])
    chi = float(chis[0]) if chis.size == 1 else NAN
    return HysteresisResult(
        model=run.model,
        control=_control(run),
        chi=chi,
        seed=run.seed,
        replicas=run.replicas,
        complete=run.complete,
        switch=run.switch,
        versions=run.versions,
        loops=loops,
        theory=theory.report(run.model, chi) if chis.size == 1 else {},
        warnings=tuple(fixed.general_warnings(run) + _warnings(loops)),
    )


def _loop(run: Run, X: np.ndarray, loop_of_row: np.ndarray, index: int) -> Loop:
    own = loop_of_row == index
    state = run.state[own, 0]
    start = phases.COPY if run.states["branch"][state[0]] == DOWN else phases.UNIFORM
    loss = run.exact["loss"][own] if run.exact else None
    rows = _Rows(X[own], state, fixed.follow(run, X[own, :, 0], start), loss)
    planned = run.states["loop"] == index
    sweeps = run.states["thermalize"] + run.states["sweeps"]
    return Loop(
        index=index,
        sweeps_per_point=int(sweeps[planned][-1]),
        planned=int(planned.sum()),
        points=tuple(_point(run, rows, int(k)) for k in np.unique(state)),
        P_up=_switching(run, rows, index, UP),
        P_down=_switching(run, rows, index, DOWN),
        area=_area(run, rows, index),
        recrossed=_recrossed(run, rows),
    )


def _point(run: Run, rows: _Rows, k: int) -> BranchPoint:
    at = rows.state == k
    P = float(run.states["P"][k])
    values = fixed.observables(rows.X[at], run.model, P)
    if rows.loss is not None:
        values["loss"] = rows.loss[at]
    in_copy = NAN if rows.phase is None else float((rows.phase[at] == phases.COPY).mean())
    return BranchPoint(
        P=P,
        chi=float(run.states["chi"][k]),
        branch=int(run.states["branch"][k]),
        loop=int(run.states["loop"][k]),
        rows=int(at.sum()),
        copy_fraction=in_copy,
        acceptance=fixed.acceptance(run, k),
        **{name: series.mean(values[name]) for name in ("m", "alpha", "beta", "q", "loss")},
    )


def _control(run: Run) -> str:
    """Name of the path's coordinate."""
    P, chi = run.states["P"], run.states["chi"]
    return "chi" if np.ptp(P) == 0 and np.ptp(chi) > 0 else "P"


def _turns(run: Run, rows: _Rows, branch: int, target: int) -> np.ndarray:
    """Rows, shape (t, r), at which a replica turns to the target phase on such a branch."""
    assert rows.phase is not None
    turned = np.zeros(rows.phase.shape, dtype=bool)
    turned[1:] = (rows.phase[1:] == target) & (rows.phase[:-1] != target)
    return turned & (run.states["branch"][rows.state] == branch)[:, None]


def _switching(run: Run, rows: _Rows, index: int, branch: int) -> Switching:
    """First switches: to copy on the way up, to uniform on the way down."""
    replicas = rows.X.shape[1]
    at, step = np.full(replicas, NAN), np.full(replicas, NAN)
    if rows.phase is not None:
        turned = _turns(run, rows, branch, phases.COPY if branch == UP else phases.UNIFORM)
        first = rows.state[turned.argmax(axis=0)]
        done = turned.any(axis=0)
        at[done] = run.states[_control(run)][first[done]]
        step[done] = _spacing(run, index)[first[done]]
    seen = at[np.isfinite(at)]
    value = error = spread = NAN
    if seen.size:
        scatter = series.independent(seen)
        grid = float(np.nanmean(step**2)) / 12
        value, error = scatter.value, float(np.hypot(scatter.error, np.sqrt(grid)))
        spread = float(seen.std(ddof=1)) if seen.size > 1 else NAN
    note = _note(run, rows, index, branch, seen.size)
    places = tuple(float(x) for x in at)
    return Switching(branch, value, error, spread, int(seen.size), replicas, places, note)


def _spacing(run: Run, index: int) -> np.ndarray:
    """Step of the control, shape (k,), with which the path comes to each state of the loop."""
    own = run.states["loop"] == index
    steps = np.zeros(own.size)
    x = run.states[_control(run)][own]
    if x.size > 1:
        steps[own] = np.abs(np.diff(x, prepend=2 * x[0] - x[1]))
    return steps


def _note(run: Run, rows: _Rows, index: int, branch: int, switched: int) -> str | None:
    branches = run.states["branch"]
    if rows.phase is None:
        return NO_RULE
    if not np.any(branches[run.states["loop"] == index] == branch):
        return f"the path has no {NAMES[branch]} branch"
    on_branch = branches[rows.state] == branch
    if not on_branch.any():
        return f"the {NAMES[branch]} branch has not begun"
    replicas = rows.phase.shape[1]
    target = phases.COPY if branch == UP else phases.UNIFORM
    early = int((rows.phase[on_branch.argmax()] == target).sum()) if switched < replicas else 0
    begun = f"; {early} began this branch in the phase it leads to" if early else ""
    if switched == 0:
        return "no transition seen on this branch" + begun
    if switched < replicas:
        return f"only {switched} of {replicas} replicas switched, and the mean is theirs" + begun
    return None


def _area(run: Run, rows: _Rows, index: int) -> Estimate | None:
    """Trapezoidal area between the branches, replica by replica."""
    own = np.flatnonzero(run.states["loop"] == index)
    planned = _common(run, own)
    common = _common(run, np.unique(rows.state))
    if common.size < 2:
        return None
    up, down = (np.array([_level(run, rows, branch, x) for x in common]) for branch in (UP, DOWN))
    area = series.independent(trapezoid(down - up, common, axis=0))
    return area if common.size == planned.size else replace(area, flag=PARTIAL)


def _common(run: Run, states: np.ndarray) -> np.ndarray:
    """Control values, ascending, that both branches have among these states."""
    x, branch = run.states[_control(run)][states], run.states["branch"][states]
    return np.intersect1d(x[branch == UP], x[branch == DOWN])


def _level(run: Run, rows: _Rows, branch: int, x: float) -> np.ndarray:
    """Mean m of every replica, shape (r,), at this control value of this kind of branch."""
    at = run.states[_control(run)][rows.state] == x
    here = (run.states["branch"][rows.state] == branch) & at
    return rows.X[here, :, 0].mean(axis=0)


def _recrossed(run: Run, rows: _Rows) -> int:
    """Replicas that, having switched on a branch, switched back on it."""
    if rows.phase is None:
        return 0
    back = np.zeros(rows.phase.shape[1], dtype=bool)
    for branch, new, old in (
        (UP, phases.COPY, phases.UNIFORM),
        (DOWN, phases.UNIFORM, phases.COPY),
    ):
        gone = np.logical_or.accumulate(_turns(run, rows, branch, new))
        back |= (gone & _turns(run, rows, branch, old)).any(axis=0)
    return int(back.sum())


def _warnings(loops: tuple[Loop, ...]) -> list[str]:
    found = []
    for loop in loops:
        name = f"loop {loop.index}"
        if len(loop.points) < loop.planned:
            found.append(f"{name}: {len(loop.points)} of {loop.planned} points so far")
        for switching in (loop.P_up, loop.P_down):
            if switching.note and switching.note != NO_RULE:
                found.append(f"{name}, {NAMES[switching.branch]}: {switching.note}")
        if loop.recrossed:
            found.append(f"{name}: {loop.recrossed} replicas switched back; first switches count")
        still = [f"{point.P:g}" for point in loop.points if point.m.flag == series.STUCK]
        if still:
            found.append(f"{name}: a replica does not move at P = {', '.join(still)}")
    return found
