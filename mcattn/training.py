"""Carrying out a plan of training on the members of one rank: a sampler whose sweeps are steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from mcattn.data import counts, tables
from mcattn.errors import JobError
from mcattn.exact_replicas import packed
from mcattn.jobfile import Job
from mcattn.members import Members
from mcattn.model import CopyModel
from mcattn.network import Sequences
from mcattn.protocols import Plan, Stage
from mcattn.ranks import Serial
from mcattn.recipe import Recipe
from mcattn.records import Checkpoint
from mcattn.sampler import Sampler

_MOST_COUNTS = 2**28  # 2 GB
FRESH = 1024  # sequences that the full network is tested on: those after the last trained on


class Trainer(Sampler):
    """One rank's part of a training run.

    Parameters
    ----------
    train, fresh : as for Members.
    sets : number of data sets; the members are dealt out to them in equal shares.
    """

    target_acceptance = 0.574  # of Langevin proposals: Roberts and Rosenthal 1998

    def __init__(
        self,
        plan: Plan,
        model: CopyModel,
        seed: int,
        ranks: Serial,
        first: int,
        count: int,
        switch: tuple[float, float] | None,
        train: Callable[[int], Sequence[Sequences]],
        fresh: Sequences,
        sets: int,
    ) -> None:
        assert plan.recipe is not None
        set_of = np.arange(first, first + count) * sets // plan.replicas
        self.members = Members(model, plan.recipe, train, fresh, set_of, seed, first)
        super().__init__(plan, model, seed, ranks, first, count, switch, self.members)

    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        if not self.finished and self.done:
            self._settle(self.plan.stages[self.stage])

    def _enter(self, stage: Stage) -> None:
        self._settle(stage)
        super()._enter(stage)
        self.members.renew()

    def _settle(self, stage: Stage) -> None:
        k = stage.states[0]
        P, chi = self.states.P[k], self.states.chi[k]
        self.members.settle(int(P), float(chi), stage.sweeps)

    def _set_states(self) -> None:
        self.members.set_rate(float(self.tables.step[self.exchanged.state[0]]))

    def _tune(self, sweeps: int, accepted: np.ndarray) -> None:
        assert self.plan.recipe is not None
        if self.plan.recipe.adjusted:
            super()._tune(sweeps, accepted)


def trainer(
    job: Job, plan: Plan, ranks: Serial, first: int, count: int, switch: tuple[float, float] | None
) -> Trainer:
    """The trainer of one rank, with the job's data.

    Raises
    ------
    JobError : the data are too few for the plan.
    """
    assert plan.recipe is not None
    positional = plan.recipe.network == "positional"
    size = (job.model.L * job.model.V) ** 2
    if positional and size > _MOST_COUNTS:
        raise JobError(
            f"L = {job.model.L} and V = {job.model.V} need {size:g} counts; training of the "
            f"positional network takes at most {_MOST_COUNTS:g}"
        )
    most = int(plan.states.P.max())
    rows = most + (0 if positional else FRESH)
    found = ranks.on_root(lambda: tables(job.model, job.data, rows, rows))

    @lru_cache(maxsize=1)
    def sequences(P: int) -> list[Sequences]:
        tokens = [table[:P] for table in found]
        V = job.model.V
        return [Sequences(t, packed(counts(t, V)) if positional else None) for t in tokens]

    return Trainer(
        plan, job.model, job.run.seed, ranks, first, count, switch,
        sequences, Sequences(found[0][most:rows]), len(found),
    )  # fmt: skip


def compile_kernels() -> None:
    """Compile the kernels of training, or load them from the cache, by tiny networks."""
    model = CopyModel(2, 2)
    tokens = np.zeros((1, 2), dtype=np.int64)
    for kind, given in (("positional", packed(counts(tokens, 2))), ("full", None)):
        data = [Sequences(tokens, given)]
        tiny = Members(model, Recipe(kind), lambda P, d=data: d, data[0], np.zeros(1, int), 0, 0)  # type: ignore[misc]
        tiny.settle(1, 1.0, 1)
        tiny.start("small", np.ones(1), 0)
        tiny.set_rate(0.1)
        tiny.advance(1, every=1)
