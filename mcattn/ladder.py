"""The ladder of a tempering run: where its states lie, which of them are neighbours, how they move.

Axes: n point of the path, k state, p pair of neighbours, g group of pairs proposed together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Ladder:
    """States on a path through given points, and when their replicas swap.

    P, chi, bias_center, bias_strength : the points, shape (n,) each; between them the path is
        straight in all four.
    shape : (K,) for a chain of K states, (K, J) for a grid; its product is the number of states.
    ladders : independent copies of the ladder, each with one replica in every state.
    exchange_every : sweeps between exchanges.
    pairing : "even-odd" goes through the groups of pairs in turn, "random" draws one each time.
    tune_rounds : pilot rounds, after each of which the states are spaced anew.
    """

    P: np.ndarray
    chi: np.ndarray
    bias_center: np.ndarray
    bias_strength: np.ndarray
    shape: tuple[int, ...]
    ladders: int
    exchange_every: int
    pairing: str
    tune_rounds: int

    @cached_property
    def states(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def groups(self) -> tuple[np.ndarray, ...]:
        """Pairs (low, high) of neighbouring states, shape (2, p), no state twice in a group.

        Along a chain the pairs that begin at even and at odd states; in a grid those of the
        first and of the second direction in turn.
        """
        grid = np.arange(self.states).reshape(self.shape)
        found = []
        for parity in (0, 1):
            for axis in range(grid.ndim):
                along = np.moveaxis(grid, axis, 0)
                low, high = along[parity:-1:2], along[parity + 1 :: 2]
                found.append(np.stack([low.ravel(), high.ravel()]))
        return tuple(group for group in found if group.size)

    @cached_property
    def pairs(self) -> np.ndarray:
        """All pairs, group after group, shape (2, p)."""
        return np.ascontiguousarray(np.concatenate(self.groups, axis=1))

    def start(self) -> np.ndarray:
        """Places of the states before any tuning: evenly from the first point to the last.

        A place is the number of a point, or lies between two numbers; shape (k,).
        """
        return np.linspace(0, len(self.P) - 1, self.states)

    def controls(self, place: np.ndarray) -> dict[str, np.ndarray]:
        """P, chi and bias of states at these places, shape (k,) each."""
        points = np.arange(len(self.P))
        names = ("P", "chi", "bias_center", "bias_strength")
        return {name: np.interp(place, points, getattr(self, name)) for name in names}

    def replicas(self) -> np.ndarray:
        """State of every replica at the beginning, shape (r,): ladder after ladder, in order."""
        return np.tile(np.arange(self.states), self.ladders)


def respaced(place: np.ndarray, rejection: np.ndarray) -> np.ndarray:
    """Places at which neighbours of a chain should reject equally often; the ends stay.

    Where the actions of both states are nearly Gaussian, a pair at distance d rejects with
    probability erf(c d). So the inverse error function of the rates adds up along the path,
    however far apart the states are, and equal steps of the sum have equal rates. For small
    rates it is their sum, the communication barrier (Syed, Bouchard-Cote, Deligiannidis and
    Doucet, arXiv:1905.02939). Linear between the states.

    Parameters
    ----------
    place : places of the states, shape (k,), rising.
    rejection : rates of the pairs (0, 1), (1, 2), ..., shape (k - 1,).
    """
    # Equal states stay apart, and a rate of 1 says no more than "far".
    rates = np.clip(rejection, 1e-6, 0.999)
    barrier = np.concatenate([[0.0], np.cumsum(special.erfinv(rates))])
    new = np.interp(np.linspace(0, barrier[-1], len(place)), barrier, place)
    new[0], new[-1] = place[0], place[-1]
    return new


class RoundTrips:
    """Round trips from the first state to the last and back, counted while rows come in.

    rows : rows counted so far.
    counts : round trips of every replica, shape (r,); empty before the first rows.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.counts = np.zeros(0, dtype=int)
        self._before: list[np.ndarray] = []  # what its visits were that the next may complete

    def add(self, state: np.ndarray, states: int) -> None:
        """Count further rows.

        Parameters
        ----------
        state : state of every replica in every row, shape (t, r).
        states : their number.
        """
        if not self._before:
            self._before = [np.zeros(0, dtype=bool)] * state.shape[1]
            self.counts = np.zeros(state.shape[1], dtype=int)
        for r, own in enumerate(np.ascontiguousarray(state.T)):
            # True for a visit of the first state, False for the last, in order.
            first = own[(own == 0) | (own == states - 1)] == 0
            first = np.concatenate([self._before[r], first])
            if not first.any():
                continue
            after = first[first.argmax() :]
            self.counts[r] += np.count_nonzero(after[1:] & ~after[:-1])
            self._before[r] = np.array([True] if after[-1] else [True, False])
        self.rows += len(state)


def round_trips(state: np.ndarray, states: int) -> np.ndarray:
    """Round trips of every replica, shape (r,), as `RoundTrips` counts them."""
    trips = RoundTrips()
    trips.add(state, states)
    return trips.counts


def uniform_numbers(
    ladder: Ladder, generators: list[np.random.Generator], exchanges: int
) -> np.ndarray:
    """Uniform numbers of a stretch of exchanges, shape (exchange, ladder, 1 + largest group).

    Column 0 chooses the group when the pairing is random. One generator for each ladder.
    """
    width = 1 + max(group.shape[1] for group in ladder.groups)
    return np.stack([rng.random((exchanges, width)) for rng in generators], axis=1)
