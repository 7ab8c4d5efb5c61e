"""Exchanges of a tempering run as every rank carries them out: alike, on the numbers of all.

Only the map from replicas to states changes; the patterns stay where they are. The uniform
numbers are a function of the seed, the ladder and the number of the exchange.
Axes: r replica of the whole run, k state, l ladder, p pair.
"""

from __future__ import annotations

import numpy as np

from mcattn import ladder as ladder_room
from mcattn import streams
from mcattn.kernels import exchange, simd, weight
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
        sizes = [group.shape[1] for group in ladder.groups]
        self._pairs, self._bounds = ladder.pairs, np.cumsum([0, *sizes])
        lanes = -(-ladder.ladders * max(sizes) // simd.W) * simd.W
        self._work = simd.aligned((exchange.WORK, lanes))
        self._holder = np.empty((ladder.ladders, ladder.states), dtype=np.int64)

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
        luck, group = self._luck(into.done), self._group(into.done)
        into.done += 1
        moved = exchange.swap(
            X, into.state, group, self._pairs, self._bounds, luck, coupling,
            *self._tokens, self._V, self._holder, self._work,
            into.attempted, into.accepted, into.chance,
        )  # fmt: skip
        return moved > 0

    def partners(self, now: Exchanged) -> np.ndarray:
        """State that the next exchange proposes to every replica, shape (r,); its own if none."""
        out = now.state.reshape(self._holder.shape).copy()
        for ladder, group in enumerate(self._group(now.done)):
            low, high = self._pairs[:, self._bounds[group] : self._bounds[group + 1]]
            other = np.arange(self._ladder.states)
            other[low], other[high] = high, low
            out[ladder] = other[out[ladder]]
        return out.ravel()

    def decide(self, change: np.ndarray, into: Exchanged) -> bool:
        """Like `exchange`, by numbers that the caller has worked out.

        change : ln of the weight in the state of `partners` over that in its own state, for the
            pattern of every replica, shape (r,).
        """
        luck, groups, moved = self._luck(into.done), self._group(into.done), False
        into.done += 1
        for ladder, group in enumerate(groups):
            pairs = slice(self._bounds[group], self._bounds[group + 1])
            low, high = self._pairs[:, pairs]
            first = ladder * self._ladder.states
            holder = self._holder[ladder]
            holder[into.state[first : first + len(holder)]] = first + np.arange(len(holder))
            i, j = holder[low], holder[high]
            chance = np.exp(np.minimum(change[i] + change[j], 0.0))
            ok = luck[ladder, 1 : 1 + len(low)] < chance
            into.attempted[ladder, pairs] += 1
            into.accepted[ladder, pairs] += ok
            into.chance[ladder, pairs] += chance
            into.state[i[ok]], into.state[j[ok]] = high[ok], low[ok]
            moved = moved or bool(ok.any())
        return moved

    def _group(self, number: int) -> np.ndarray:
        """The group of pairs that an exchange proposes in every ladder, shape (l,)."""
        groups = len(self._ladder.groups)
        if self._ladder.pairing == "random":
            return (self._luck(number)[:, 0] * groups).astype(np.int64)
        return np.full(self._ladder.ladders, number % groups)

    def _luck(self, number: int) -> np.ndarray:
        """The uniform numbers of an exchange, shape (l, 1 + largest group)."""
        stretch, place = divmod(number, _STRETCH)
        if stretch != self._stretch:
            count = range(self._ladder.ladders)
            generators = [streams.exchange_generator(self._seed, i, stretch) for i in count]
            self._numbers = ladder_room.uniform_numbers(self._ladder, generators, _STRETCH)
            self._stretch = stretch
        return self._numbers[place]


def compile_kernels(ladder: Ladder, model: CopyModel) -> None:
    """Compile the decision on exchanges, or load it from the cache, by one on equal patterns."""
    now = Exchanged.nothing(ladder.replicas(), ladder.states, ladder)
    table = simd.aligned((weight.COUPLINGS, ladder.states))
    table[:] = 1.0
    Exchanger(ladder, model, 0).exchange(np.ones((len(now.state), 5)), table, now)
