"""Exchanges of a tempering run as every rank carries them out: alike, on the numbers of all.

Only the map from replicas to states changes; the patterns stay where they are. The uniform
numbers are a function of the seed, the ladder and the number of the exchange.
Axes: r replica of the whole run, k state, l ladder, p pair.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mcattn import ladder as ladder_room
from mcattn import streams
from mcattn.kernels import exchange, simd
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.records import Exchanged

_STRETCH = 256  # exchanges whose uniform numbers are drawn at once


class Exchanger:
    """Carries out the exchanges of one run."""

    def __init__(self, ladder: Ladder, model: CopyModel, seed: int) -> None:
        self._ladder, self._seed, self._V = ladder, seed, float(model.V)
        self._tokens = model.token_groups
        self._numbers, self._stretch = np.zeros(0), -1
        largest = max(group.shape[1] for group in ladder.groups)
        lanes = -(-ladder.ladders * largest // simd.W) * simd.W
        self._work = simd.aligned((exchange.WORK, lanes))
        ends = np.cumsum([0, *(group.shape[1] for group in ladder.groups)])
        self._columns = [slice(a, b) for a, b in pairwise(ends)]

    def due(self, sweeps: int) -> bool:
        """Whether to exchange after so many sweeps of a stage."""
        return sweeps % self._ladder.exchange_every == 0

    def exchange(self, X: np.ndarray, coupling: np.ndarray, into: Exchanged) -> bool:
        """Propose one group of pairs in every ladder; whether any replica changed its state.

        Parameters
        ----------
        X : the five sums of all replicas, shape (r, 5).
        coupling : of every state, shape (COUPLINGS, k).
        into : the map from replicas to states, and the counts; changed.
        """
        luck = self._luck(into.done)
        if self._ladder.pairing == "random":
            groups = (luck[:, 0] * len(self._columns)).astype(int)
        else:
            groups = np.full(self._ladder.ladders, into.done % len(self._columns))
        into.done += 1
        moved = False
        for g in np.unique(groups):
            moved |= self._propose(X, coupling, into, luck, int(g), np.flatnonzero(groups == g))
        return moved

    def _propose(
        self,
        X: np.ndarray,
        coupling: np.ndarray,
        into: Exchanged,
        luck: np.ndarray,
        group: int,
        ladders: np.ndarray,
    ) -> bool:
        """Decide the pairs of one group in some of the ladders."""
        low, high = self._ladder.groups[group]
        replicas = into.state.reshape(self._ladder.ladders, -1)
        first = self._ladder.states * np.arange(self._ladder.ladders)[:, None]
        holder = (np.argsort(replicas, axis=1) + first)[ladders]
        shape = (len(ladders), len(low))
        chance, swapped = np.empty(shape), np.empty(shape, dtype=np.int64)
        exchange.swap(
            X, into.state, holder, low, high, np.ascontiguousarray(luck[ladders, 1 : 1 + len(low)]),
            coupling, *self._tokens, self._V, self._work, chance, swapped,
        )  # fmt: skip
        here = self._columns[group]
        into.attempted[ladders, here] += 1
        into.accepted[ladders, here] += swapped
        into.chance[ladders, here] += chance
        return bool(swapped.any())

    def _luck(self, number: int) -> np.ndarray:
        """The uniform numbers of an exchange, shape (l, 1 + largest group)."""
        stretch, place = divmod(number, _STRETCH)
        if stretch != self._stretch:
            count = range(self._ladder.ladders)
            generators = [streams.exchange_generator(self._seed, i, stretch) for i in count]
            self._numbers = ladder_room.uniform_numbers(self._ladder, generators, _STRETCH)
            self._stretch = stretch
        return self._numbers[place]
