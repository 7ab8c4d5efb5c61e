"""Which states a run visits, in which order and for how long: plain tables, no sampling.

Axes: k state, r replica. A plan is a list of stages; during a stage every replica stays in one
state. Restart needs nothing but the number of the stage and the sweeps done in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mcattn.ladder import Ladder
from mcattn.recipe import Recipe
from mcattn.windows import Windows


@dataclass(frozen=True)
class States:
    """The thermodynamic states of a run, every array of shape (k,); see schema.STATES."""

    P: np.ndarray
    chi: np.ndarray
    bias_center: np.ndarray
    bias_strength: np.ndarray
    branch: np.ndarray
    loop: np.ndarray
    thermalize: np.ndarray
    sweeps: np.ndarray

    def __len__(self) -> int:
        return len(self.P)


@dataclass(frozen=True)
class Stage:
    """A stretch of sweeps in which every replica keeps its state, or swaps it along a ladder.

    states : row of the state table for every replica, shape (r,); the first, if they swap.
    thermalize : sweeps before the first row; the steps of the states are tuned meanwhile.
    sweeps, every : sweeps while rows are taken, one row each `every` sweeps.
    restart : begin from fresh patterns, those of loop `loop`, instead of the last stage's.
    keep_patterns : store the final pattern of this many replicas.
    respace : space the states of the ladder anew at the end; no pattern is stored before.
    """

    states: np.ndarray
    thermalize: int
    sweeps: int
    every: int
    restart: bool
    loop: int
    keep_patterns: int
    respace: bool = False

    @property
    def length(self) -> int:
        return self.thermalize + self.sweeps

    @property
    def rows(self) -> int:
        return self.sweeps // self.every


@dataclass(frozen=True)
class Plan:
    """A whole run: its states, its stages, its replicas and how they begin.

    start : phase that the replicas begin in, one for all or one for each.
    ladder : along which replicas exchange their states, or None.
    recipe : how networks are trained, or None where patterns are sampled.
    along : the order parameter that biases act on, one of `action.COORDINATES`.
    sets : data sets whose exact action is sampled; 0 for the population's action.
    """

    kind: str
    states: States
    stages: tuple[Stage, ...]
    replicas: int
    start: str | tuple[str, ...]
    ladder: Ladder | None = None
    recipe: Recipe | None = None
    along: str = "m"
    sets: int = 0

    @property
    def total_sweeps(self) -> int:
        return sum(stage.length for stage in self.stages)

    def set_of(self) -> np.ndarray:
        """Data set of every replica, shape (r,): in turn, but alike within a ladder."""
        r = np.arange(self.replicas)
        return (r // self.ladder.states if self.ladder else r) % self.sets


def hysteresis(
    P: ArrayLike,
    chi: ArrayLike,
    sweeps: Sequence[int],
    thermalize: int,
    equilibrate: int,
    every: int,
    replicas: int,
    start: str,
    patterns_at: ArrayLike,
    pattern_replicas: int,
) -> Plan:
    """All replicas follow one path of control values together, once for each rate.

    Parameters
    ----------
    P, chi : the path, shape (k,) each.
    sweeps : sweeps at each point while rows are taken; one loop over the path for each value.
    thermalize : sweeps at each point before rows are taken.
    equilibrate : sweeps at the first point of a loop, besides `thermalize`.
    patterns_at : values of P at which the patterns of `pattern_replicas` replicas are kept; the
        two ends and the turning points of the path are kept as well.
    """
    path, loops = np.asarray(P, dtype=float), len(sweeps)
    points = len(path)
    chis = np.asarray(chi, dtype=float)
    branch = branches(path if np.ptp(path) else chis)
    kept = _turning_points(branch) | np.isin(path, patterns_at)
    before = np.full(points, thermalize)
    before[0] += equilibrate
    states = States(
        P=np.tile(path, loops),
        chi=np.tile(chis, loops),
        bias_center=np.zeros(points * loops),
        bias_strength=np.zeros(points * loops),
        branch=np.tile(branch, loops),
        loop=np.repeat(np.arange(loops), points),
        thermalize=np.tile(before, loops),
        sweeps=np.repeat(np.asarray(sweeps), points),
    )
    stages = tuple(
        Stage(
            states=np.full(replicas, loop * points + point),
            thermalize=int(before[point]),
            sweeps=int(rate),
            every=every,
            restart=point == 0,
            loop=loop,
            keep_patterns=min(pattern_replicas, replicas) if kept[point] else 0,
        )
        for loop, rate in enumerate(sweeps)
        for point in range(points)
    )
    return Plan("hysteresis", states, stages, replicas, start)


def fixed(
    P: ArrayLike,
    chi: ArrayLike,
    bias_center: ArrayLike,
    bias_strength: ArrayLike,
    sweeps: int,
    thermalize: int,
    every: int,
    replicas: int,
    start: str,
    pattern_replicas: int,
) -> Plan:
    """Independent replicas, `replicas` in each state, for the whole run; arguments as above.

    Replica r stays in state r // replicas.
    """
    control = np.asarray(P, dtype=float)
    count = len(control)
    zeros = np.zeros(count, dtype=int)
    states = States(
        P=control,
        chi=np.asarray(chi, dtype=float),
        bias_center=np.asarray(bias_center, dtype=float),
        bias_strength=np.asarray(bias_strength, dtype=float),
        branch=zeros,
        loop=zeros,
        thermalize=np.full(count, thermalize),
        sweeps=np.full(count, sweeps),
    )
    stage = Stage(
        states=np.repeat(np.arange(count), replicas),
        thermalize=thermalize,
        sweeps=sweeps,
        every=every,
        restart=True,
        loop=0,
        keep_patterns=min(pattern_replicas, count * replicas),
    )
    return Plan("fixed", states, (stage,), count * replicas, start)


def tempering(
    ladder: Ladder,
    sweeps: int,
    thermalize: int,
    tune_sweeps: int,
    every: int,
    start: str | tuple[str, ...],
    pattern_replicas: int,
) -> Plan:
    """Replicas that exchange states along a ladder: pilot rounds, then rows; arguments as above.

    tune_sweeps : sweeps of each of the ladder's pilot rounds.
    """
    count, first = ladder.states, ladder.replicas()
    zeros = np.zeros(count, dtype=int)
    states = States(
        **ladder.controls(ladder.start()),
        branch=zeros,
        loop=zeros,
        thermalize=np.full(count, thermalize + ladder.tune_rounds * tune_sweeps),
        sweeps=np.full(count, sweeps),
    )
    pilot = [
        Stage(first, tune_sweeps, 0, every, restart=i == 0, loop=0, keep_patterns=0, respace=True)
        for i in range(ladder.tune_rounds)
    ]
    stage = Stage(
        states=first,
        thermalize=thermalize,
        sweeps=sweeps,
        every=every,
        restart=not pilot,
        loop=0,
        keep_patterns=min(pattern_replicas, len(first)),
    )
    return Plan("tempering", states, (*pilot, stage), len(first), start, ladder)


def umbrella(
    path: Windows,
    chi: float,
    count: int | None,
    ladders: int,
    exchange_every: int,
    tune_rounds: int,
    sweeps: int,
    thermalize: int,
    tune_sweeps: int,
    every: int,
    pattern_replicas: int,
) -> Plan:
    """Replicas that exchange windows; other arguments as for `tempering`.

    Replicas whose window lies on the copy side begin in the copy phase, the others in the
    uniform one: neither phase has to be found.

    Parameters
    ----------
    count : windows, spread over the path; None for as many as its length asks for.
    """
    points, count = len(path.u), count or path.count
    ladder = Ladder(
        P=np.full(points, path.P),
        chi=np.full(points, chi),
        bias_center=path.center,
        bias_strength=np.full(points, path.strength),
        shape=(count,),
        ladders=ladders,
        exchange_every=exchange_every,
        pairing="even-odd",
        tune_rounds=tune_rounds,
    )
    u = np.interp(ladder.start(), np.arange(points), path.u)
    start = tuple("copy" if u[k] > path.middle else "uniform" for k in ladder.replicas())
    plan = tempering(ladder, sweeps, thermalize, tune_sweeps, every, "", pattern_replicas)
    return replace(plan, kind="umbrella", start=start, along=path.along)


def train(
    P: ArrayLike,
    chi: float,
    recipe: Recipe,
    steps: int,
    thermalize: int,
    every: int,
    scratch: bool,
    replicas: int,
    start: str,
    pattern_replicas: int,
) -> Plan:
    """All members are trained at one P after the other; arguments as above.

    scratch : begin anew at every P; else from where the P before it ended.
    """
    path = np.asarray(P, dtype=float)
    count = len(path)
    zeros = np.zeros(count)
    states = States(
        P=path,
        chi=np.full(count, chi),
        bias_center=zeros,
        bias_strength=zeros,
        branch=zeros.astype(int) if scratch else branches(path),
        loop=zeros.astype(int),
        thermalize=np.full(count, thermalize),
        sweeps=np.full(count, steps),
    )
    stages = tuple(
        Stage(
            states=np.full(replicas, k),
            thermalize=thermalize,
            sweeps=steps,
            every=every,
            restart=scratch or k == 0,
            loop=k,
            keep_patterns=min(pattern_replicas, replicas),
        )
        for k in range(count)
    )
    return Plan("train", states, stages, replicas, start, recipe=recipe)


def placed(states: States, ladder: Ladder | None, place: np.ndarray) -> States:
    """The states at other places on their ladder's path."""
    return states if ladder is None else replace(states, **ladder.controls(place))


def branches(path: np.ndarray) -> np.ndarray:
    """Direction of a path of control values, shape (k,): the sign of the step to each point.

    The first point, and a point that repeats its predecessor, take the next step's sign, so
    that a turning point given twice belongs once to each branch.
    """
    steps = np.sign(np.diff(path)).astype(int)
    direction = np.concatenate([[0], steps])
    for k in range(len(path) - 2, -1, -1):
        if direction[k] == 0:
            direction[k] = direction[k + 1]
    return direction


def there_and_back(P: np.ndarray) -> np.ndarray:
    """The path P and the same path backwards, the turning point once on each branch."""
    return np.concatenate([P, P[::-1]])


def _turning_points(branch: np.ndarray) -> np.ndarray:
    """The first and last point and the last point before every change of branch, as a mask."""
    mask = np.zeros(len(branch), dtype=bool)
    mask[0] = mask[-1] = True
    mask[:-1] |= branch[1:] != branch[:-1]
    return mask
