"""What a run consists of while it goes on: rows of a block, tables of the states, checkpoints.

Axes: t row, r replica of a rank or of the run, k state, l ladder, p pair of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mcattn.ladder import Ladder


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
    X: np.ndarray  # (t, r, 5), or more columns: see schema.EXTRA
    state: np.ndarray  # (r,) in which the rows were taken
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


def padded(place: np.ndarray, states: int) -> np.ndarray:
    """Places, shape (k,), in a plan with further states."""
    return np.concatenate([place, np.full(states - len(place), np.nan)])


@dataclass
class Exchanged:
    """What exchanges leave behind, alike on all ranks; `done` counts them over the whole run.

    place : places of the states on the ladder's path, shape (k,).
    attempted, accepted : swaps since the counts were last cleared, shape (l, p).
    chance : sum of their acceptance probabilities, shape (l, p).
    """

    state: np.ndarray  # (r,) of the whole run
    done: int
    place: np.ndarray
    attempted: np.ndarray
    accepted: np.ndarray
    chance: np.ndarray

    @classmethod
    def nothing(cls, state: np.ndarray, states: int, ladder: Ladder | None) -> Exchanged:
        """Before the first exchange; without a ladder there will be none."""
        shape = (ladder.ladders, ladder.pairs.shape[1]) if ladder else (0, 0)
        place = ladder.start() if ladder else np.full(states, np.nan)
        zeros = np.zeros(shape, dtype=np.int64)
        return cls(state.astype(np.int64), 0, place, zeros, zeros.copy(), np.zeros(shape))

    def clear(self) -> None:
        """Count from here on."""
        for counts in (self.attempted, self.accepted, self.chance):
            counts[:] = 0

    def rejection(self) -> np.ndarray:
        """Mean rejection probability of every pair over all ladders, shape (p,); nan if untried."""
        attempted = self.attempted.sum(axis=0)
        return 1 - self.chance.sum(axis=0) / np.where(attempted > 0, attempted, np.nan)


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to go on: position in the plan and the state of all replicas."""

    stage: int
    done: int
    sweep: int
    tables: Tables
    exchanged: Exchanged
    phase: np.ndarray  # (r,) of the whole run, as are the next three
    switched: np.ndarray  # (r,)
    scores: np.ndarray  # (r, a, b)
    words: np.ndarray  # (r, 4)
    memory: np.ndarray  # (r, numbers): weights and moments in training, else none
