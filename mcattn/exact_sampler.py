"""Carrying out a plan under the exact action of data sets, on the replicas of one rank.

Axes: r replica of this rank, k state.
"""

from __future__ import annotations

import numpy as np

from mcattn import action, data
from mcattn.errors import JobError
from mcattn.exact_replicas import ExactReplicas, PairTables, table_bytes
from mcattn.jobfile import Job
from mcattn.model import CopyModel
from mcattn.protocols import Plan
from mcattn.ranks import Serial
from mcattn.sampler import Sampler

_MOST_BYTES = 4e9  # of pair counts, on every rank


class ExactSampler(Sampler):
    """One rank's part of a run on data.

    Parameters
    ----------
    tables : pair counts of every data set at every P.
    """

    # As many trajectories are needed before a step is worth changing by much.
    target_acceptance, confident = 0.9, 64

    def __init__(
        self,
        plan: Plan,
        model: CopyModel,
        seed: int,
        ranks: Serial,
        first: int,
        count: int,
        switch: tuple[float, float] | None,
        tables: PairTables,
    ) -> None:
        set_of = plan.set_of()[first : first + count]
        self._patterns = ExactReplicas(model, tables, set_of, seed, first, plan.along)
        super().__init__(plan, model, seed, ranks, first, count, switch, self._patterns)

    def _set_states(self) -> None:
        self._assign()

    def _assign(self) -> None:
        self._patterns.assign(self.states, self.tables.step, self.exchanged.state[self._mine])

    def _tune(self, sweeps: int, accepted: np.ndarray) -> None:
        super()._tune(sweeps, accepted)
        longest = self._patterns.longest_step(self.states.chi)
        self.tables.step = np.minimum(self.tables.step, longest)
        self._set_states()

    def _exchange(self) -> None:
        if self._exchanger is None or not self._exchanger.due(self.done):
            return
        here = self.exchanged.state[self._mine]
        there = self._exchanger.partners(self.exchanged)[self._mine]
        rows, P = self._patterns.rows(), self.states.P
        moved = rows if (P[here] == P[there]).all() else self._patterns.rows(P[there])
        change = self._action(rows, here) - self._action(moved, there)
        everywhere = self._ranks.gather_everywhere(change[:, None])[:, 0]
        if self._exchanger.decide(everywhere, self.exchanged):
            self._assign()

    def _action(self, rows: np.ndarray, k: np.ndarray) -> np.ndarray:
        """F with the bias of states k, shape (r,), from rows at their P, shape (r, x)."""
        u = action.along(rows, self.plan.along, self.model.L)
        bias = self.states.bias_strength[k] / 2 * (u - self.states.bias_center[k]) ** 2
        return self.states.chi[k] * rows[:, 5] + rows[:, 6] + bias


def exact_sampler(
    job: Job, plan: Plan, ranks: Serial, first: int, count: int, switch: tuple[float, float] | None
) -> ExactSampler:
    """The sampler of one rank, with the job's data.

    Raises
    ------
    JobError : the data are too few for the plan, or the counts too many for the memory.
    """
    P = np.unique(plan.states.P)
    size = plan.sets * len(P) * table_bytes(job.model)
    if size > _MOST_BYTES:
        raise JobError(
            f"counts of {plan.sets} data sets at {len(P)} P need {size / 1e9:.3g} GB; "
            f"a job may use {_MOST_BYTES / 1e9:g} GB: take fewer P or sets, or a smaller model"
        )
    most = int(P.max())
    tokens = ranks.on_root(lambda: data.tables(job.model, job.data, most, most))
    tables = PairTables(tokens, job.model.V)
    return ExactSampler(plan, job.model, job.run.seed, ranks, first, count, switch, tables)


def compile_kernels() -> None:
    """Compile the kernels of the exact action, or load them from the cache, by a tiny run."""
    tables = PairTables([np.zeros((1, 2), dtype=np.int64)], 2)
    tiny = ExactReplicas(CopyModel(2, 2), tables, np.zeros(1, dtype=np.int64), 0, 0)
    tiny.start("uniform", np.ones(1))
    tiny.advance(1, every=1)
    tiny.rows()
