"""Carrying out a plan on the replicas of one rank: sweeps, step tuning, measurements, patterns.

Work is cut into blocks of at most BLOCK sweeps. Every cache is recomputed at the end of every
block, so that at a block's end the scores, the random streams and the tables below are the
whole state of the run: stopping there and continuing later changes no bit.
Axes: t row, r replica of this rank, k state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mcattn import phases, schema, streams
from mcattn.errors import JobError
from mcattn.exchange import Exchanger
from mcattn.ladder import respaced
from mcattn.model import CopyModel, positive
from mcattn.protocols import Plan, Stage, fixed, placed
from mcattn.ranks import Serial
from mcattn.records import Block, Checkpoint, Exchanged, Pattern, Tables
from mcattn.replicas import STARTS, Replicas, couplings

BLOCK = 32
# Chosen by effective samples per second: within 10 % of the best step for m, q and |S|^2 in
# both phases (benchmarks/steps.py).
TARGET_ACCEPTANCE = 0.45
_TUNING_GAIN = 2.0


class Sampler:
    """One rank's part of a run.

    Parameters
    ----------
    switch : thresholds (low, high) in m between the phases, or None where there is one phase.
    first, count : the replicas of this rank.
    replicas : what is advanced, if it is not patterns; see mcattn.training.
    """

    target_acceptance = TARGET_ACCEPTANCE
    confident = 1  # updates of a block in a state that a step is tuned by with full gain

    def __init__(
        self,
        plan: Plan,
        model: CopyModel,
        seed: int,
        ranks: Serial,
        first: int,
        count: int,
        switch: tuple[float, float] | None,
        replicas: Any = None,
    ) -> None:
        self.plan, self.model, self._ranks, self._switch = plan, model, ranks, switch
        self._mine = slice(first, first + count)
        self.replicas = Replicas(model, seed, first, count) if replicas is None else replicas
        self.states = plan.states  # as tuning has placed them
        self.tables = Tables.empty(len(plan.states))
        self.exchanged = Exchanged.nothing(plan.stages[0].states, len(plan.states), plan.ladder)
        self._exchanger = Exchanger(plan.ladder, model, seed) if plan.ladder else None
        self.phase = np.zeros(count, dtype=np.int8)
        self.switched = np.zeros(count, dtype=bool)  # in this stage; their patterns are stored
        self.stage = self.done = self.sweep = 0

    @property
    def finished(self) -> bool:
        return self.stage == len(self.plan.stages)

    @property
    def at_last_block(self) -> bool:
        """Whether the plan ends with the next block."""
        if self.stage != len(self.plan.stages) - 1:
            return False
        last = self.plan.stages[-1]
        return self.done >= last.thermalize and self.done + self._block(last.length) == last.length

    def advance(self) -> Block:
        """Do the next block of sweeps, up to an exchange at most."""
        stage = self.plan.stages[self.stage]
        if self.done == 0:
            self._enter(stage)
        if self.done == stage.thermalize:
            self.exchanged.clear()
        warm = self.done < stage.thermalize
        sweeps = self._block(stage.thermalize if warm else stage.length)
        measured = max(0, self.done - stage.thermalize)
        before = self.replicas.snapshot()
        state = self.exchanged.state[self._mine].copy()
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
            self._tune(sweeps, accepted)
            X, taken_at = X[:0], taken_at[:0]
        else:
            self._count(sweeps, accepted, drift)
        if self.done == stage.length:
            patterns += self._chosen(stage)
        self._exchange()
        if self.done == stage.length:
            if stage.respace:
                self._respace()
            self.stage, self.done = self.stage + 1, 0
        return Block(taken_at, X, state, patterns)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint, which holds the replicas of all ranks."""
        self.stage, self.done, self.sweep = checkpoint.stage, checkpoint.done, checkpoint.sweep
        self.exchanged = checkpoint.exchanged
        self.states = placed(self.plan.states, self.plan.ladder, self.exchanged.place)
        self.tables = checkpoint.tables
        if self._ranks.rank:  # counts are summed over ranks: only one may hold the old ones
            zeros = Tables.empty(len(self.plan.states))
            zeros.step = checkpoint.tables.step
            self.tables = zeros
        self.phase = checkpoint.phase[self._mine].copy()
        self.switched = checkpoint.switched[self._mine].copy()
        own = (checkpoint.scores, checkpoint.words, checkpoint.memory)
        self.replicas.restore(*(values[self._mine] for values in own))
        if not self.finished and self.done:
            self._set_states()

    def _block(self, end: int) -> int:
        """Sweeps of the next block: not beyond `end` nor the next exchange."""
        sweeps = min(BLOCK, end - self.done)
        if self.plan.ladder is None:
            return sweeps
        every = self.plan.ladder.exchange_every
        return min(sweeps, every - self.done % every)

    def _enter(self, stage: Stage) -> None:
        self.switched[:] = False
        self.exchanged.clear()
        if stage.restart or self.plan.ladder is None:
            self.exchanged.state[:] = stage.states
        if stage.restart:
            mine = stage.states[self._mine]
            start = np.broadcast_to(self.plan.start, (self.plan.replicas,))[self._mine]
            self.replicas.start(start, self.states.chi[mine], stage.loop)
            self.phase[:] = np.where(start == "copy", phases.COPY, phases.UNIFORM)
        step = self.tables.step
        for k in np.unique(stage.states):
            if np.isnan(step[k]):
                earlier = None if stage.restart else self.plan.stages[self.stage - 1].states[0]
                chi = self.states.chi[k]
                step[k] = self.replicas.default_step(chi) if earlier is None else step[earlier]
        self._set_states()

    def _set_states(self) -> None:
        """Put the replicas in their states, with the states' steps of now."""
        k = self.states
        self._coupling = couplings(
            self.model,
            k.P,
            k.chi,
            k.bias_center,
            k.bias_strength,
            self.tables.step,
            self.plan.along,
        )
        self.replicas.choose_logarithm(self._coupling[:, np.unique(self.exchanged.state)])
        self._assign()

    def _assign(self) -> None:
        """Put the replicas in their states."""
        self.replicas.assign(self._coupling, self.exchanged.state[self._mine])

    def _exchange(self) -> None:
        """Let neighbours on the ladder swap states, if this is the time."""
        if self._exchanger is None or not self._exchanger.due(self.done):
            return
        X = self._ranks.gather_everywhere(self.replicas.sums())
        if self._exchanger.exchange(X, self._coupling, self.exchanged):
            self._assign()

    def _respace(self) -> None:
        """Move the ladder's states to where neighbours should reject equally often."""
        ladder, old = self.plan.ladder, self.exchanged.place
        assert ladder is not None
        order = np.argsort(ladder.pairs[0])
        new = respaced(old, self.exchanged.rejection()[order])
        self.exchanged.place = new
        self.states = placed(self.plan.states, ladder, new)
        self.tables.step = np.interp(new, old, self.tables.step)

    def _by_state(self, sweeps: int, accepted: np.ndarray) -> np.ndarray:
        """Updates attempted and accepted on this rank, shape (2, k)."""
        out = np.zeros((2, len(self.plan.states)), dtype=np.int64)
        mine = self.exchanged.state[self._mine]
        np.add.at(out[0], mine, sweeps * self.replicas.updates_per_sweep)
        np.add.at(out[1], mine, accepted)
        return out

    def _tune(self, sweeps: int, accepted: np.ndarray) -> None:
        """Move the steps towards the target acceptance, alike on all ranks."""
        attempted, accepted = self._ranks.sum(self._by_state(sweeps, accepted))
        k = np.flatnonzero(attempted)
        rate = accepted[k] / attempted[k]
        gain = _TUNING_GAIN * np.minimum(attempted[k] / self.confident, 1.0)
        self.tables.step[k] *= np.exp(gain * (rate - self.target_acceptance))
        self._set_states()

    def _count(self, sweeps: int, accepted: np.ndarray, drift: np.ndarray) -> None:
        attempted, accepted = self._by_state(sweeps, accepted)
        self.tables.attempted += attempted
        self.tables.accepted += accepted
        np.maximum.at(self.tables.drift, self.exchanged.state[self._mine], drift)

    def _switches(
        self, stage: Stage, X: np.ndarray, before: np.ndarray, sweeps: int
    ) -> list[Pattern]:
        """Follow the phases; patterns around each replica's first switch, from the block's ends."""
        if self._switch is None or len(X) == 0:
            return []
        old, self.phase = self.phase, phases.follow(X[..., 0], self.phase, *self._switch)[-1]
        found = []
        new = (old != self.phase) & ~self.switched & (not stage.respace)
        self.switched |= new
        for r in np.flatnonzero(new):
            replica, state = self._mine.start + int(r), int(self.exchanged.state[self._mine][r])
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
                self.sweep, r, int(self.exchanged.state[r]), schema.REASON_CHOSEN,
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
