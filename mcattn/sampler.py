"""Carrying out a plan on the replicas of one rank: sweeps, step tuning, measurements, patterns.

Work is cut into blocks of at most BLOCK sweeps. Every cache is recomputed at the end of every
block, so that at a block's end the scores, the random streams and the tables below are the
whole state of the run: stopping there and continuing later changes no bit.
Axes: t row, r replica of this rank, k state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mcattn import phases, schema, streams
from mcattn.errors import JobError
from mcattn.model import CopyModel, positive
from mcattn.protocols import Plan, Stage, fixed
from mcattn.ranks import Serial
from mcattn.replicas import STARTS, Replicas, default_step

BLOCK = 32
# Chosen by effective samples per second: within 10 % of the best step for m, q and |S|^2 in
# both phases (benchmarks/steps.py).
TARGET_ACCEPTANCE = 0.45
_TUNING_GAIN = 2.0


class Pattern(NamedTuple):
    """One stored score pattern; `replica` counts over the whole run."""

    sweep: int
    replica: int
    state: int
    reason: int
    scores: np.ndarray  # (a, b)
    found_at: int  # sweeps done at the end of the block that found it; decides the order


@dataclass(frozen=True)
class Block:
    """What one block of sweeps yields on this rank."""

    sweep: np.ndarray  # (t,) sweeps done when each row was taken
    X: np.ndarray  # (t, r, 5)
    state: np.ndarray  # (r,)
    patterns: list[Pattern]


@dataclass
class Tables:
    """Numbers kept for every state, shape (k,) each; `step` is alike on all ranks."""

    step: np.ndarray
    attempted: np.ndarray
    accepted: np.ndarray
    drift: np.ndarray

    @classmethod
    def empty(cls, states: int) -> Tables:
        zeros = np.zeros(states, dtype=np.int64)
        return cls(np.full(states, np.nan), zeros, zeros.copy(), np.zeros(states))

    def padded(self, states: int) -> Tables:
        """The same numbers in a plan with further states."""
        out = Tables.empty(states)
        for name, values in vars(self).items():
            vars(out)[name][: len(values)] = values
        return out


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to go on: position in the plan and the state of all replicas."""

    stage: int
    done: int
    sweep: int
    tables: Tables
    phase: np.ndarray  # (r,) of the whole run, as are the next three
    switched: np.ndarray  # (r,)
    scores: np.ndarray  # (r, a, b)
    words: np.ndarray  # (r, 4)


class Sampler:
    """One rank's part of a run.

    Parameters
    ----------
    switch : thresholds (low, high) in m between the phases, or None where there is one phase.
    first, count : the replicas of this rank.
    """

    def __init__(
        self,
        plan: Plan,
        model: CopyModel,
        seed: int,
        ranks: Serial,
        first: int,
        count: int,
        switch: tuple[float, float] | None,
    ) -> None:
        self.plan, self.model, self._ranks, self._switch = plan, model, ranks, switch
        self._mine = slice(first, first + count)
        self.replicas = Replicas(model, seed, first, count)
        self.tables = Tables.empty(len(plan.states))
        self.phase = np.zeros(count, dtype=np.int8)
        self.switched = np.zeros(count, dtype=bool)  # in this stage; their patterns are stored
        self.stage = self.done = self.sweep = 0

    @property
    def finished(self) -> bool:
        return self.stage == len(self.plan.stages)

    @property
    def at_last_block(self) -> bool:  # the plan ends with the next block
        last, begun = self.plan.stages[-1], self.stage == len(self.plan.stages) - 1
        return begun and self.done >= max(last.thermalize, last.length - BLOCK)

    def advance(self) -> Block:
        """Do the next block of sweeps."""
        stage = self.plan.stages[self.stage]
        if self.done == 0:
            self._enter(stage)
        warm = self.done < stage.thermalize
        end = stage.thermalize if warm else stage.length
        sweeps = min(BLOCK, end - self.done)
        measured = max(0, self.done - stage.thermalize)
        before = self.replicas.snapshot()
        # While thermalising, one row at the block's end serves to follow the phases.
        X, accepted = self.replicas.advance(
            sweeps, every=sweeps if warm else stage.every, done=0 if warm else measured
        )
        drift = self.replicas.refresh()
        rows = np.arange(measured // stage.every, (measured + sweeps) // stage.every)
        taken_at = self.sweep + (rows + 1) * stage.every - measured
        self.done += sweeps
        self.sweep += sweeps
        patterns = self._switches(stage, X, before, sweeps)
        if warm:
            self._tune(stage, sweeps, accepted)
            X, taken_at = X[:0], taken_at[:0]
        else:
            self._count(stage, sweeps, accepted, drift)
        if self.done == stage.length:
            patterns += self._chosen(stage)
            self.stage, self.done = self.stage + 1, 0
        return Block(taken_at, X, stage.states[self._mine], patterns)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint, which holds the replicas of all ranks."""
        self.stage, self.done, self.sweep = checkpoint.stage, checkpoint.done, checkpoint.sweep
        self.tables = checkpoint.tables
        if self._ranks.rank:  # counts are summed over ranks: only one may hold the old ones
            zeros = Tables.empty(len(self.plan.states))
            zeros.step = checkpoint.tables.step
            self.tables = zeros
        self.phase = checkpoint.phase[self._mine].copy()
        self.switched = checkpoint.switched[self._mine].copy()
        self.replicas.restore(checkpoint.scores[self._mine], checkpoint.words[self._mine])
        if not self.finished and self.done:
            self._set_states(self.plan.stages[self.stage])

    def _enter(self, stage: Stage) -> None:
        mine = stage.states[self._mine]
        self.switched[:] = False
        if stage.restart:
            self.replicas.start(self.plan.start, self.plan.states.chi[mine], stage.loop)
            self.phase[:] = phases.COPY if self.plan.start == "copy" else phases.UNIFORM
        step = self.tables.step
        for k in np.unique(stage.states):
            if np.isnan(step[k]):
                earlier = None if stage.restart else self.plan.stages[self.stage - 1].states[0]
                chi = self.plan.states.chi[k]
                step[k] = default_step(self.model, chi) if earlier is None else step[earlier]
        self._set_states(stage)

    def _set_states(self, stage: Stage) -> None:
        k, states = stage.states[self._mine], self.plan.states
        self.replicas.set_states(
            states.P[k], states.chi[k], states.bias_center[k], states.bias_strength[k],
            self.tables.step[k],
        )  # fmt: skip

    def _by_state(self, stage: Stage, sweeps: int, accepted: np.ndarray) -> np.ndarray:
        """Updates attempted and accepted on this rank, shape (2, k)."""
        out = np.zeros((2, len(self.plan.states)), dtype=np.int64)
        mine = stage.states[self._mine]
        np.add.at(out[0], mine, sweeps * self.replicas.updates_per_sweep)
        np.add.at(out[1], mine, accepted)
        return out

    def _tune(self, stage: Stage, sweeps: int, accepted: np.ndarray) -> None:
        """Move the steps towards the target acceptance, alike on all ranks."""
        attempted, accepted = self._ranks.sum(self._by_state(stage, sweeps, accepted))
        k = np.flatnonzero(attempted)
        rate = accepted[k] / attempted[k]
        self.tables.step[k] *= np.exp(_TUNING_GAIN * (rate - TARGET_ACCEPTANCE))
        self._set_states(stage)

    def _count(self, stage: Stage, sweeps: int, accepted: np.ndarray, drift: np.ndarray) -> None:
        attempted, accepted = self._by_state(stage, sweeps, accepted)
        self.tables.attempted += attempted
        self.tables.accepted += accepted
        np.maximum.at(self.tables.drift, stage.states[self._mine], drift)

    def _switches(
        self, stage: Stage, X: np.ndarray, before: np.ndarray, sweeps: int
    ) -> list[Pattern]:
        """Follow the phases; patterns around each replica's first switch, from the block's ends."""
        if self._switch is None or len(X) == 0:
            return []
        old, self.phase = self.phase, phases.follow(X[..., 0], self.phase, *self._switch)[-1]
        found = []
        new = (old != self.phase) & ~self.switched
        self.switched |= new
        for r in np.flatnonzero(new):
            replica, state = self._mine.start + int(r), int(stage.states[self._mine][r])
            ends = (
                (self.sweep - sweeps, schema.REASON_BEFORE, before),
                (self.sweep, schema.REASON_AFTER, None),
            )
            found += [
                Pattern(
                    sweep, replica, state, reason, self.replicas.scores(snapshot)[r], self.sweep
                )
                for sweep, reason, snapshot in ends
            ]
        return found

    def _chosen(self, stage: Stage) -> list[Pattern]:
        """The final patterns of the stage's chosen replicas."""
        kept = range(self._mine.start, min(self._mine.stop, stage.keep_patterns))
        scores = self.replicas.scores()
        return [
            Pattern(
                self.sweep, r, int(stage.states[r]), schema.REASON_CHOSEN,
                scores[r - self._mine.start], self.sweep,
            )
            for r in kept
        ]  # fmt: skip


class Sample(NamedTuple):
    """What `sample` returns."""

    X: np.ndarray  # (t, r, 5): m, q, tau, r, |S|^2
    acceptance: float


def sample(
    model: CopyModel,
    P: float,
    chi: float,
    replicas: int = 16,
    sweeps: int = 1000,
    thermalize: int = 500,
    every: int = 1,
    seed: int = 0,
    start: str = "uniform",
) -> Sample:
    """Sample the population action at one state, in this process.

    Parameters
    ----------
    replicas : independent chains.
    sweeps, every : sweeps measured, one row each `every` sweeps.
    thermalize : sweeps before that, in which the step is tuned.
    start : "uniform" or "copy", the phase that the chains start in.

    Returns
    -------
    X : the five sums, shape (t, r, 5) with t = sweeps // every.
    acceptance : accepted share of the measured updates.

    Raises
    ------
    JobError, ModelError : an argument is out of range; the sentence names it.
    """
    P, chi = positive("P", P), positive("chi", chi)
    counts = {"replicas": replicas, "sweeps": sweeps, "every": every, "thermalize": thermalize}
    for name, value in counts.items():
        least = 0 if name == "thermalize" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise JobError(f"{name} is {value!r}; it must be an integer >= {least}")
    if start not in STARTS:
        raise JobError(f"start is {start!r}; it must be one of {', '.join(STARTS)}")
    if every > sweeps:
        raise JobError(f"every is {every}; it must be at most sweeps = {sweeps}")
    seed = streams.check_seed(seed)
    plan = fixed([P], [chi], [0.0], [0.0], sweeps, thermalize, every, replicas, start, 0)
    sampler = Sampler(plan, model, seed, Serial(), 0, replicas, None)
    blocks = []
    while not sampler.finished:
        blocks.append(sampler.advance().X)
    rate = sampler.tables.accepted[0] / sampler.tables.attempted[0]
    return Sample(np.concatenate(blocks), float(rate))
