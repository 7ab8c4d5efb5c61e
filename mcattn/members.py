"""The networks of an ensemble on one process: starts, steps, and what is measured of them.

A member is to a training run what a replica is to a sampling run, and an optimiser's step is
its sweep. Every member has its own random stream and is advanced alone, so that its numbers do
not depend on the others or on the process. Axes: r member, n flat weight, a, b positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mcattn import streams
from mcattn.errors import SamplingError
from mcattn.model import CopyModel
from mcattn.network import Network, Sequences
from mcattn.optimisers import Langevin, adam, cosine, flow
from mcattn.recipe import Recipe

STARTS = ("small", "prior", "copy")
_SMALL = 0.01  # width of a small start, in units of the prior's at chi = 1
_COPYING = 0.8  # share of each row that a copy start puts on the copied position


class Members:
    """Members first .. first + count - 1 of a run.

    Parameters
    ----------
    train : training sequences of each data set at a P.
    fresh : sequences to test the full network on.
    set_of : data set of every member here, shape (r,).
    """

    updates_per_sweep = 1

    def __init__(
        self,
        model: CopyModel,
        recipe: Recipe,
        train: Callable[[int], Sequence[Sequences]],
        fresh: Sequences,
        set_of: np.ndarray,
        seed: int,
        first: int,
    ) -> None:
        self.network = Network(model, recipe.network)
        self._model, self._recipe, self._seed, self._first = model, recipe, seed, first
        self._train, self._fresh, self._set_of = train, fresh, set_of
        count, n = len(set_of), self.network.size
        self._theta = np.zeros((count, n))
        self._moments = np.zeros((count, 2 * n if recipe.optimiser == "adam" else 0))
        self._rngs = [np.random.default_rng() for _ in range(count)]

    def settle(self, P: int, chi: float, steps: int) -> None:
        """Train at this P and temperature from now on, for so many steps in all."""
        self._data = [self._train(P)[k] for k in self._set_of]
        self._P, self._steps = P, steps
        # Curvatures of H where nothing is learnt yet: a common step suits all weights.
        scale = 1 / self.network.decay
        V = self._model.V
        scale[: V * V] = 1 / (1 / self._model.g_w + P / (self._model.kappa * V * self._model.L))
        adjusted = self._recipe.adjusted
        self._langevin = [Langevin(scale, chi, adjusted) for _ in self._data]

    def default_step(self, chi: float) -> float:
        """The rate to begin with."""
        return self._recipe.rate

    def renew(self) -> None:
        """Forget the optimiser's moments."""
        self._moments[:] = 0

    def start(self, phase: ArrayLike, chi: np.ndarray, loop: int) -> None:
        """Begin afresh from a small or prior draw, or round the copy pattern; new streams.

        `phase` is one name for all members or one for each; the prior's width is that at chi,
        shape (r,), or at chi = 1 if chi is infinite.
        """
        phases = np.broadcast_to(phase, (len(self._theta),))
        for i, (theta, begin) in enumerate(zip(self._theta, phases, strict=True)):
            rng = streams.training_generator(self._seed, self._first + i, loop)
            width = _SMALL
            if begin == "prior":
                width = 1.0 if math.isinf(chi[i]) else 1 / math.sqrt(chi[i])
            theta[:] = width * rng.standard_normal(len(theta)) / np.sqrt(self.network.decay)
            if begin == "copy":
                theta += self._copying()
            self._rngs[i] = rng

    def advance(self, sweeps: int, every: int = 0, done: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Do some steps.

        Parameters
        ----------
        every : steps between rows; 0 takes none.
        done : steps done since the first that counts for rows and schedule.

        Returns
        -------
        X : rows of the five sums, H, test loss and position share, shape (t, r, 8).
        accepted : steps accepted, shape (r,).
        """
        taken = (done + sweeps) // every - done // every if every else 0
        X = np.empty((taken, len(self._theta), 8))
        accepted = np.zeros(len(self._theta), dtype=np.int64)
        for i in range(len(self._theta)):
            row = 0
            self._langevin[i].forget()
            for t in range(done, done + sweeps):
                accepted[i] += self._step(i, t)
                if every and (t + 1) % every == 0:
                    X[row, i] = self._observe(i)
                    row += 1
        return X, accepted

    def set_rate(self, rate: float) -> None:
        """The rate of the next steps, before any schedule."""
        self._rate = rate

    def refresh(self) -> np.ndarray:
        """Check the weights; the error of caches, of which there are none, shape (r,).

        Raises
        ------
        SamplingError : weights have grown beyond all bounds.
        """
        if not np.isfinite(self._theta).all():
            raise SamplingError(f"the weights diverge: rate {self._rate:g} is too large")
        return np.zeros(len(self._theta))

    def snapshot(self) -> np.ndarray:
        """The weights, for `scores` to look at later."""
        return self._theta.copy()

    def scores(self, snapshot: np.ndarray | None = None) -> np.ndarray:
        """Scores now, or those of a snapshot, shape (r, a, b)."""
        weights = self._theta if snapshot is None else snapshot
        return np.stack([self.network.scores(theta) for theta in weights])

    def memory(self) -> np.ndarray:
        """Weights and moments: with the streams, all that going on needs. Shape (r, numbers)."""
        return np.concatenate([self._theta, self._moments], axis=1)

    def stream_words(self) -> np.ndarray:
        """State of every member's random stream, shape (r, 4) uint64."""
        return np.stack([streams.pcg_words(rng) for rng in self._rngs])

    def restore(self, scores: np.ndarray, words: np.ndarray, memory: np.ndarray) -> None:
        """Continue from stored weights and moments (r, numbers) and stream states (r, 4)."""
        n = self.network.size
        self._theta[:], self._moments[:] = memory[:, :n], memory[:, n:]
        self._rngs = [streams.pcg_generator(state) for state in words]

    def _step(self, i: int, done: int) -> bool:
        theta, rng, data, recipe = self._theta[i], self._rngs[i], self._data[i], self._recipe
        rate = self._rate
        if recipe.schedule == "cosine":
            rate = cosine(rate, done, self._steps)
        chosen = None
        if recipe.batch is not None:
            chosen = (rng.random(recipe.batch) * len(data)).astype(np.int64)

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            return self.network.loss(weights, data, chosen)

        if recipe.optimiser == "adam":
            adam(loss, theta, self._moments[i], rate, done + 1)
        elif recipe.optimiser == "flow":
            flow(loss, theta, rate)
        else:
            return self._langevin[i].step(loss, theta, rate, rng)
        return True

    def _observe(self, i: int) -> np.ndarray:
        H = self.network.loss(self._theta[i], self._data[i])[0]
        X, loss, share = self.network.observe(self._theta[i], self._fresh)
        return np.array([*X, H, loss, share])

    def _copying(self) -> np.ndarray:
        """Weights that copy: rows on the copied position, W the best multiple of one for them."""
        model, L = self._model, self._model.L
        softmax = model.attention == "softmax"
        gap = math.log(_COPYING / (1 - _COPYING) * (L - 1)) if softmax else 1.0
        S = gap * np.roll(np.eye(L), -1, axis=1)
        m, q = (_COPYING, _COPYING**2 + (1 - _COPYING) ** 2 / (L - 1)) if softmax else (1.0, 1.0)
        ridge = model.kappa * model.V / (model.g_w * self._P)
        return self.network.join(m / (q + ridge) * np.eye(model.V), S)
