"""Replicas of a run that move under the exact action, each on its data set.

The interface is that of mcattn.replicas.Replicas; a sweep is one trajectory of Hamiltonian Monte
Carlo. Every replica is advanced alone, so its numbers do not depend on the others.
Axes: r replica here, a, b positions, x column of a row: the five sums, energy, log_det, with
F = chi energy + log_det, and the test losses of the mean weights and of weights drawn from their
posterior.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mcattn import action, streams
from mcattn.counts import counts
from mcattn.errors import SamplingError
from mcattn.kernels import data_action, data_hmc, simd, stream
from mcattn.model import CopyModel
from mcattn.protocols import States
from mcattn.replicas import starting_scores

# Chosen by effective samples per second of m, q and |S|^2 in both phases at L = V = 16.
LEAPFROGS = 7
# Longest trajectory, in widths of the score prior: near pi a prior's score would only change
# sign, and |S|^2 would not move.
_LONGEST = 2.0


def table_bytes(model: CopyModel) -> int:
    """Memory that the counts of one data set at one P take."""
    L, V = model.L, model.V
    return 2 * L * (L + 1) * V * (-(-V // simd.W) * simd.W)


class PairTables:
    """Pair counts of nested data sets as the kernels read them, made when first asked for.

    Parameters
    ----------
    tokens : token tables, (P, L) each; the first P rows of one are its data at P.
    """

    def __init__(self, tokens: Sequence[np.ndarray], V: int) -> None:
        self._tokens, self._V = tokens, V
        self._known: list[list[int]] = [[] for _ in tokens]
        self._tables: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, k: int, P: int) -> np.ndarray:
        """Counts of set k at P, shape (pair, n) in single precision; see kernels/data_action.py."""
        if (k, P) not in self._tables:
            i = bisect_right(self._known[k], P)
            start = self._known[k][i - 1] if i else 0
            table = packed(counts(self._tokens[k][start:P], self._V))
            if start:
                table += self._tables[k, start]
            self._tables[k, P] = table
            insort(self._known[k], P)
        return self._tables[k, P]


def packed(T: np.ndarray) -> np.ndarray:
    """Counts, shape (b, b', v, v'), of the pairs b <= b' as the kernels read them."""
    L, V = T.shape[0], T.shape[2]
    side = -(-V // simd.W) * simd.W
    n = -(-V * side // data_action.CHUNK) * data_action.CHUNK
    first, second = np.triu_indices(L)
    rows = np.zeros((len(first), V, side))
    rows[..., :V] = T[first, second]
    out = simd.aligned((len(first) + len(first) % 2, n), np.float32)
    out[: len(first), : V * side] = rows.reshape(len(first), -1)
    return out


class ExactReplicas:
    """Replicas first .. first + len(set_of) - 1 of a run, on one process.

    Parameters
    ----------
    tables : counts of set k at P.
    set_of : data set of every replica here, shape (r,).
    along : the order parameter that biases act on, one of `action.COORDINATES`.
    """

    updates_per_sweep = 1

    def __init__(
        self,
        model: CopyModel,
        tables: PairTables,
        set_of: np.ndarray,
        seed: int,
        first: int,
        along: str = "m",
    ) -> None:
        self.model, self.seed, self.first, self.count = model, seed, first, len(set_of)
        self._tables, self._set_of, self._along = tables, set_of, along
        self._scores = simd.aligned((self.count, model.L, -(-model.L // simd.W) * simd.W))
        self._words = np.zeros((self.count, stream.WORDS), dtype=np.uint64)
        self._states = np.ones((self.count, data_hmc.STATE))
        self._numbers = (model.kappa, model.g_s, model.g_w, model.attention == "softmax")
        self._p = np.array(model.probabilities)
        self._rooms = data_action.space(model.L, model.V)
        self._paths = data_hmc.motion(model.L)

    def default_step(self, chi: float) -> float:
        """Leapfrog step before any tuning: that of the longest trajectory."""
        return float(self.longest_step(chi))

    def longest_step(self, chi: ArrayLike) -> np.ndarray:
        """The step beyond which tuning does not go, shape of chi."""
        return _LONGEST / LEAPFROGS * np.sqrt(self.model.g_s / np.asarray(chi))

    def start(self, phase: ArrayLike, chi: np.ndarray, loop: int = 0) -> None:
        """Begin afresh, as `Replicas.start` does: the same patterns for the same seed."""
        copy = np.broadcast_to(np.asarray(phase) == "copy", (self.count,))
        chi = np.broadcast_to(chi, (self.count,))
        self._scores[:] = 0.0
        for i in range(self.count):
            rng = streams.start_generator(self.seed, self.first + i, loop)
            self._scores[i, :, : self.model.L] = starting_scores(
                self.model, bool(copy[i]), float(chi[i]), rng
            )
            self._words[i] = streams.update_words(self.seed, self.first + i, loop)

    def assign(self, states: States, step: np.ndarray, k: np.ndarray) -> None:
        """Put every replica in its state, shape (r,), with the steps of all states."""
        of_m, of_tau = action.COORDINATES[self._along](self.model.L)
        columns = (states.P, states.chi, states.bias_strength / 2, states.bias_center, step)
        self._states[:, :5] = np.stack(columns, axis=1)[k]
        self._states[:, 5:] = of_m, of_tau, self._along != "m"

    def advance(self, sweeps: int, every: int = 0, done: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Do some trajectories.

        Parameters
        ----------
        every : trajectories between measurements; 0 measures nothing.
        done : trajectories already done since measurements began.

        Returns
        -------
        X : the columns of each measurement, shape (t, r, x).
        accepted : trajectories accepted, shape (r,).
        """
        taken = (done + sweeps) // every - done // every if every else 0
        X = np.empty((self.count, taken, data_hmc.COLUMNS))
        accepted = np.zeros(self.count, dtype=np.int64)
        for i in range(self.count):
            accepted[i] = data_hmc.run(
                self._scores[i], self._table(i, self._states[i, data_hmc.P]), self._p,
                self._states[i], self._words[i], *self._numbers, LEAPFROGS, self._rooms,
                self._paths, X[i], sweeps, every, done,
            )  # fmt: skip
        return np.ascontiguousarray(X.swapaxes(0, 1)), accepted

    def rows(self, P: np.ndarray | None = None) -> np.ndarray:
        """The columns of the patterns as they are, at their own P or at others (r,); (r, x)."""
        P = self._states[:, data_hmc.P] if P is None else P
        X = np.empty((self.count, data_hmc.COLUMNS))
        for i in range(self.count):
            data_hmc.parts(
                self._scores[i], self._table(i, P[i]), self._p, float(P[i]),
                self._states[i, data_hmc.CHI], *self._numbers, self._rooms, X[i],
            )  # fmt: skip
        return X

    def refresh(self) -> np.ndarray:
        """Errors of caches, shape (r,): nothing is kept between blocks.

        Raises
        ------
        SamplingError : the scores have left the range of double precision.
        """
        if not np.isfinite(self._scores).all():
            raise SamplingError(
                "scores grew beyond the range of double precision: g_s/chi is too large to sample"
            )
        return np.zeros(self.count)

    def snapshot(self) -> np.ndarray:
        """The scores, for `scores` to look at later."""
        return self._scores.copy()

    def scores(self, snapshot: np.ndarray | None = None) -> np.ndarray:
        """Scores now, or those of a snapshot, shape (r, a, b)."""
        S = self._scores if snapshot is None else snapshot
        return np.ascontiguousarray(S[..., : self.model.L])

    def stream_words(self) -> np.ndarray:
        """State of every replica's random stream, shape (r, 4) uint64."""
        return self._words.copy()

    def memory(self) -> np.ndarray:
        """What a replica holds besides scores and stream, shape (r, numbers): nothing."""
        return np.empty((self.count, 0))

    def restore(
        self, scores: np.ndarray, words: np.ndarray, memory: np.ndarray | None = None
    ) -> None:
        """Continue from stored scores (r, a, b) and stream states (r, 4)."""
        self._scores[..., : self.model.L] = scores
        self._words[:] = words

    def _table(self, i: int, P: float) -> np.ndarray:
        return self._tables(int(self._set_of[i]), int(P))
