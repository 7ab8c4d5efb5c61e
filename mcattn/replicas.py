"""A block of replicas moving in lockstep: their patterns, caches and random streams.

Axes: r replica of the block, a, b positions, lane = r padded to a multiple of the vector width.
Lanes beyond the last replica run along and are never shown.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mcattn import action, streams
from mcattn.errors import SamplingError
from mcattn.kernels import linear, moves, simd, softmax, stream, weight
from mcattn.model import CopyModel

STARTS = ("uniform", "copy")
LANES = simd.W
AGAIN = 4  # columns between two visits of the copied one


def visit_order(L: int) -> np.ndarray:
    """Columns that a sweep visits in each row, as offsets from the copied column.

    Every column once, the copied one (offset 0) again after every fourth other: m moves with
    the L copy scores out of L^2, so visiting them more often is what makes it mix. Any fixed
    order leaves the distribution invariant. How often: benchmarks/visits.py.
    """
    order = [0]
    for offset in range(1, L):
        order.append(offset)
        if offset % AGAIN == 0 and offset < L - 1:
            order.append(0)
    return np.array(order, dtype=np.int64)


def couplings(
    model: CopyModel,
    P: np.ndarray,
    chi: np.ndarray,
    bias_center: np.ndarray,
    bias_strength: np.ndarray,
    step: np.ndarray,
    along: str = "m",
) -> np.ndarray:
    """What the kernels know of states, shape (COUPLINGS, k); the arguments have shape (k,).

    along : the order parameter that biases act on, one of `action.COORDINATES`.
    """
    out = simd.aligned((weight.COUPLINGS, len(P)))
    out[weight.GAIN] = chi * P / (2 * model.kappa)
    out[weight.RIDGE] = model.kappa / (model.g_w * P)
    out[weight.PRIOR] = chi / (2 * model.g_s)
    out[weight.BIAS] = bias_strength / 2
    out[weight.CENTER] = bias_center
    out[weight.STEP] = step
    of_m, of_tau = action.COORDINATES[along](model.L)
    out[weight.ALONG_M], out[weight.ALONG_TAU] = of_m, of_tau
    out[weight.FOLD] = 0.0 if along == "m" else -0.0
    return out


def starting_scores(
    model: CopyModel, copy: bool, chi: float, rng: np.random.Generator
) -> np.ndarray:
    """Prior noise around the uniform or the copy pattern, shape (a, b)."""
    L = model.L
    S = math.sqrt(model.g_s / chi) * rng.standard_normal((L, L))
    if copy:
        # Softmax: this gap puts 80 % of each row on the copied position. Linear: beta = 1.
        gap = math.log(4 * (L - 1)) if model.attention == "softmax" else 1.0
        S[np.arange(L), np.arange(L) - 1] += gap
    return S


class Replicas:
    """Replicas first .. first + count - 1 of a run, on one process.

    Parameters
    ----------
    model : the model all of them share.
    seed, first, count : which streams they draw from; nothing else decides their chains.
    fresh_steps : draw the size of every step anew, instead of from a table for each sweep: the
        same distribution, slower; for checks.
    """

    def __init__(
        self, model: CopyModel, seed: int, first: int, count: int, fresh_steps: bool = False
    ) -> None:
        self.model, self.seed, self.first, self.count = model, seed, first, count
        self._softmax = model.attention == "softmax"
        L, lanes = model.L, -(-count // LANES) * LANES
        self._lanes = lanes
        self._visits = visit_order(L)
        self._p, self._n = model.token_groups
        self._scores = simd.aligned(L * L * lanes)
        self._weights = simd.aligned(L * L * lanes if self._softmax else 0)
        self._rows = simd.aligned((3 if self._softmax else 1, L * lanes))
        self._sums = simd.aligned((4, lanes))
        self._measured = simd.aligned((5, lanes))
        self._coupling = simd.aligned((weight.COUPLINGS, lanes))
        self._stream = simd.aligned((stream.WORDS, lanes), np.int64)
        self._moduli = simd.aligned((0 if fresh_steps else moves.MODULI, lanes))
        self._growth = simd.aligned((2 * moves.MODULI, lanes))
        self._work = simd.aligned((softmax.WORK if self._softmax else linear.WORK, lanes))
        self._accepted = simd.aligned(lanes)
        self._drift = simd.aligned(lanes)
        self._terms = 15

    @property
    def updates_per_sweep(self) -> int:
        return self.model.L * len(self._visits)

    def default_step(self, chi: float) -> float:
        """Half-width of the proposal before any tuning: 2.5 widths of the score prior."""
        return 2.5 * math.sqrt(self.model.g_s / chi)

    def start(self, phase: ArrayLike, chi: np.ndarray, loop: int = 0) -> None:
        """Begin afresh: prior noise around the uniform or the copy pattern, new streams.

        Parameters
        ----------
        phase : "uniform" or "copy", for all or for each, shape (r,).
        chi : inverse temperature of every replica's noise, shape (r,).
        """
        L = self.model.L
        copy = self._padded(np.asarray(phase) == "copy") > 0
        chi = self._padded(chi)
        S = np.empty((self._lanes, L, L))
        words = np.empty((self._lanes, stream.WORDS), dtype=np.uint64)
        for lane in range(self._lanes):
            replica = self.first + lane
            rng = streams.start_generator(self.seed, replica, loop)
            S[lane] = starting_scores(self.model, bool(copy[lane]), chi[lane], rng)
            words[lane] = streams.update_words(self.seed, replica, loop)
        self._restore(S, words)

    def set_states(
        self,
        P: np.ndarray,
        chi: np.ndarray,
        bias_center: np.ndarray,
        bias_strength: np.ndarray,
        step: np.ndarray,
    ) -> None:
        """Put every replica in its state; all arguments have shape (r,)."""
        given = (P, chi, bias_center, bias_strength, step)
        P, chi, bias_center, bias_strength, step = (self._padded(row) for row in given)
        table = couplings(self.model, P, chi, bias_center, bias_strength, step)
        self.choose_logarithm(table)
        self.assign(table, np.arange(self.count))

    def choose_logarithm(self, coupling: np.ndarray) -> None:
        """Take the series that is exact in all states of a table, shape (COUPLINGS, k).

        The table must be alike on all ranks: numbers must not depend on who shares one.
        """
        eps = coupling[weight.RIDGE].min() / self._p.max()
        self._terms = weight.series_terms(self.model.L, eps, self.model.attention)

    def assign(self, coupling: np.ndarray, state: np.ndarray) -> None:
        """Put every replica in its state, shape (r,), a column of the table."""
        self._coupling[:, : self.count] = coupling[:, state]
        self._coupling[:, self.count :] = coupling[:, state[-1:]]

    def advance(self, sweeps: int, every: int = 0, done: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Do some sweeps.

        Parameters
        ----------
        every : sweeps between measurements; 0 measures nothing.
        done : sweeps already done since measurements began.

        Returns
        -------
        X : the five sums of each measurement, shape (t, r, 5).
        accepted : updates accepted, shape (r,).
        """
        taken = (done + sweeps) // every - done // every if every else 0
        out = simd.aligned((taken, 5, self._lanes))
        self._accepted[:] = 0
        args = (out, self._visits, self._p, self._n, self.model.L, float(self.model.V))
        shared = (self._rows, self._sums, self._coupling, self._stream, self._moduli)
        scratch = (self._work, self._accepted)
        if self._softmax:
            softmax.run(
                self._scores, self._weights, *shared, self._growth, *scratch, *args,
                self._terms, sweeps, every, done,
            )  # fmt: skip
        else:
            linear.run(self._scores, *shared, *scratch, *args, sweeps, every, done)
        X = np.moveaxis(out, 1, 2)[:, : self.count].copy()
        return X, self._accepted[: self.count].astype(np.int64)

    def sums(self) -> np.ndarray:
        """The five sums of the patterns as they are, shape (r, 5)."""
        if self._softmax:
            softmax.measure(self._scores, self._sums, self._measured)
        else:
            linear.measure(self._sums, self.model.L, self._measured)
        return np.ascontiguousarray(self._measured.T[: self.count])

    def refresh(self) -> np.ndarray:
        """Recompute every cache from the scores; the largest error the caches had, shape (r,).

        The error of a cache is relative to its largest entry in the same replica.

        Raises
        ------
        SamplingError : the scores have left the range in which their exponentials are finite.
        """
        self._recompute()
        if not np.isfinite(self._sums[:, : self.count]).all():
            raise SamplingError(
                "scores grew beyond the range of double precision: g_s/chi is too large to sample"
            )
        return self._drift[: self.count].copy()

    def snapshot(self) -> np.ndarray:
        """The scores as they lie in memory, for `scores` to unpack later."""
        return self._scores.copy()

    def scores(self, snapshot: np.ndarray | None = None) -> np.ndarray:
        """Scores now, or those of a snapshot, shape (r, a, b)."""
        L = self.model.L
        flat = self._scores if snapshot is None else snapshot
        S = flat.reshape(L, L, self._lanes)[..., : self.count]
        return np.ascontiguousarray(np.moveaxis(S, -1, 0))

    def stream_words(self) -> np.ndarray:
        """State of every replica's random stream, shape (r, 4) uint64."""
        return np.ascontiguousarray(self._stream.T[: self.count]).view(np.uint64)

    def memory(self) -> np.ndarray:
        """What a replica holds besides scores and stream, shape (r, numbers): nothing."""
        return np.empty((self.count, 0))

    def restore(
        self, scores: np.ndarray, words: np.ndarray, memory: np.ndarray | None = None
    ) -> None:
        """Continue from stored scores (r, a, b), stream states (r, 4) and memory, if any."""
        S = np.zeros((self._lanes, self.model.L, self.model.L))
        padded = np.ones((self._lanes, stream.WORDS), dtype=np.uint64)
        S[: self.count], padded[: self.count] = scores, words
        self._restore(S, padded)

    def _restore(self, S: np.ndarray, words: np.ndarray) -> None:
        self._scores[:] = np.moveaxis(S, 0, -1).reshape(-1)
        self._stream[:] = words.view(np.int64).T
        self._recompute()

    def _recompute(self) -> None:
        caches = (self._rows, self._sums, self.model.L, self._drift)
        if self._softmax:
            softmax.refresh(self._scores, self._weights, *caches)
        else:
            linear.refresh(self._scores, *caches)

    def _padded(self, values: np.ndarray) -> np.ndarray:
        """One value for each lane, shape (lane,): extra lanes copy the last replica's."""
        values = np.broadcast_to(np.asarray(values, dtype=float), (self.count,))
        return np.concatenate([values, np.full(self._lanes - self.count, values[-1])])
