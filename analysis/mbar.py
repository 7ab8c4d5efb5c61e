"""Samples of many states pooled by MBAR: free energies, and weights of the samples in any state.

Every reduced potential u_k(X) = F(X; P_k, chi_k) + bias_k(u) is computed anew from the stored
sums; nothing is sampled. Source: Shirts and Chodera, J. Chem. Phys. 129, 124105 (2008).
Axes: k, l state; n sample; t row; c column, an independent replica or ladder; r replica.
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from mcattn import action
from mcattn.analysis import fixed
from mcattn.errors import RunFileError, SamplingError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

BYTES = 400e6  # of the largest array, of shape (k, n)
FIRST = 10_000  # samples for the first solution, which starts from nothing
LEAST_ROWS = 20
CUT, THIN = 1e-4, 0.03  # overlaps: below, states are not connected; below, weakly
_CONVERGED = 1e-9  # of the number of samples of a state
_STEPS = 50
_PYMBAR_STEPS = 300  # from where Newton's method goes on


@dataclass(frozen=True)
class States:
    """Controls of the pooled states, shape (k,) each, and what their biases act on."""

    P: np.ndarray
    chi: np.ndarray
    bias_center: np.ndarray
    bias_strength: np.ndarray
    along: str = "m"

    def potentials(self, X: np.ndarray, model: CopyModel) -> np.ndarray:
        """u_k of every sample, shape (k, n), of the sums X, shape (n, 5)."""
        out = np.empty((len(self.P), len(X)))
        pairs, which = np.unique(np.stack([self.P, self.chi]), axis=1, return_inverse=True)
        for i, (P, chi) in enumerate(pairs.T):
            out[which.ravel() == i] = action.population(X, model, P, chi)
        u = self.order(X, model)
        for k in np.flatnonzero(self.bias_strength):
            out[k] += self.bias_strength[k] / 2 * (u - self.bias_center[k]) ** 2
        return out

    def order(self, X: np.ndarray, model: CopyModel) -> np.ndarray:
        """The order parameter u that biases act on, shape (n,)."""
        return action.along(X, self.along, model.L)

    def name(self, k: int) -> str:
        """A state as it is called in a sentence."""
        window = f", window at {self.along} = {self.bias_center[k]:.3g}"
        bias = window if self.bias_strength[k] > 0 else ""
        return f"state {k} (P = {self.P[k]:.5g}, chi = {self.chi[k]:.3g}{bias})"


@dataclass(frozen=True)
class Pool:
    """The samples of a run and their free energies.

    X : the sums, shape (n, 5), in rising order of u, the states' order parameter.
    state, row, column : which state each sample comes from, when and in which column, (n,).
    stride : one row of so many of the run is used; more would not fit in memory.
    f : free energies -ln Z of the states, less that of the first, shape (k,).
    shares : probability that sample n comes from state k, shape (k, n).
    ln_mixture : ln of sum_k N_k exp(f_k - u_k(X_n)), shape (n,).
    """

    model: CopyModel
    states: States
    X: np.ndarray
    state: np.ndarray
    row: np.ndarray
    column: np.ndarray
    stride: int
    f: np.ndarray
    shares: np.ndarray
    ln_mixture: np.ndarray

    @cached_property
    def u(self) -> np.ndarray:
        """The order parameter of every sample, shape (n,), rising."""
        return self.states.order(self.X, self.model)

    @cached_property
    def counts(self) -> np.ndarray:
        """Samples of every state, shape (k,)."""
        return np.bincount(self.state, minlength=len(self.f))

    @cached_property
    def overlap(self) -> np.ndarray:
        """Probability that a sample of state k may be taken for one of state l, shape (k, l)."""
        return self.shares @ self.shares.T / self.counts[:, None]

    def ln_weights(self, P: float, chi: float) -> np.ndarray:
        """ln of the samples' weights without a bias at P and chi, shape (n,), not normalised."""
        return -action.population(self.X, self.model, P, chi) - self.ln_mixture

    def weights(self, P: float, chi: float) -> np.ndarray:
        """The samples' weights without a bias at P and chi, shape (n,), the largest being 1."""
        ln_w = self.ln_weights(P, chi)
        return np.exp(ln_w - ln_w.max())

    def free_energy(self, P: float, chi: float) -> float:
        """-ln Z at P and chi without a bias, less that of the first state."""
        ln_w = self.ln_weights(P, chi)
        return -float(ln_w.max() + np.log(np.exp(ln_w - ln_w.max()).sum()))


def effective(weights: np.ndarray) -> float:
    """Effective number of samples of weights, shape (n,) (Kish): reweighting's reach."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def pool(run: Run) -> Pool:
    """The samples of a tempering, umbrella or fixed run, finished or not.

    Raises
    ------
    RunFileError : a hysteresis run, whose states are not in equilibrium; a run on data sets.
    TooFewSamplesError : fewer than 20 rows.
    SamplingError : states that do not overlap; the sentence names them.
    """
    if run.protocol not in ("tempering", "umbrella", "fixed"):
        raise RunFileError(
            f"{run.path} is a {run.protocol} run; free energies need states in equilibrium: "
            "an umbrella, tempering or fixed run"
        )
    fixed.population_only(run)
    rows, count = len(run.sweep), len(run.states["P"])
    if rows < LEAST_ROWS:
        fixed.expect(run, run.protocol)
        raise TooFewSamplesError(
            f"{run.path}: too few samples: {rows} rows ({int(run.sweep[-1])} of "
            f"{run.planned_sweeps} sweeps); free energies need at least {LEAST_ROWS}"
        )
    stride = math.ceil(8 * count * rows * run.replicas / BYTES)
    kept = np.arange(stride - 1, rows, stride)
    row, column = np.meshgrid(np.arange(len(kept)), _columns(run, count), indexing="ij")
    P, chi, center, strength = (
        np.asarray(run.states[name], dtype=float)
        for name in ("P", "chi", "bias_center", "bias_strength")
    )
    free = run.model.attention == "linear" and not strength.any()
    return solve(
        run.model,
        States(P, chi, center, strength, "tau" if free else run.bias_along),
        run.X[kept].reshape(-1, 5),
        run.state[kept].ravel().astype(np.int64),
        row.ravel(),
        column.ravel(),
        stride,
    )


def solve(
    model: CopyModel,
    states: States,
    X: np.ndarray,
    state: np.ndarray,
    row: np.ndarray,
    column: np.ndarray,
    stride: int = 1,
) -> Pool:
    """Free energies from samples in any order, shapes as in `Pool`.

    pymbar solves for some of the samples, Newton's method goes on from there with all.

    Raises
    ------
    SamplingError : states that do not overlap; the sentence names them.
    """
    order = np.argsort(states.order(X, model), kind="stable")
    X, state, row, column = X[order], state[order], row[order], column[order]
    every = max(1, len(X) // FIRST)
    some = np.sort(np.argsort(state, kind="stable")[::every])  # as many of every state
    f = _first(states.potentials(X[some], model), state[some])
    u = states.potentials(X, model)
    f, shares, ln_mixture = _polish(f, u, np.bincount(state, minlength=len(f)), states)
    return Pool(model, states, X, state, row, column, stride, f, shares, ln_mixture)


def weakest(overlap: np.ndarray) -> tuple[int, int, float]:
    """The pair of states at the weakest link between all states, and its overlap.

    The link whose loss would cut the states in two: the smallest edge of the spanning tree of
    largest overlaps.
    """
    strength = np.minimum(overlap, overlap.T)
    # Lengths above zero, which csgraph takes for a missing link; in logs, so that no two tie.
    tree = minimum_spanning_tree(1 - np.log(np.clip(strength, 1e-300, 1))).tocoo()
    i = int(tree.data.argmax())
    low, high = sorted((int(tree.row[i]), int(tree.col[i])))
    return low, high, float(strength[low, high])


def _columns(run: Run, count: int) -> np.ndarray:
    """Column of every replica, shape (r,): its ladder, or its place among those of its state."""
    if run.protocol != "fixed":
        return np.arange(run.replicas) // count
    column = np.empty(run.replicas, dtype=np.int64)
    for k in range(count):
        own = run.state[0] == k
        column[own] = np.arange(own.sum())
    return column


def _first(u: np.ndarray, state: np.ndarray) -> np.ndarray:
    """pymbar's free energies, shape (k,), of the potentials u, shape (k, n)."""
    logging.getLogger("pymbar").setLevel(logging.ERROR)  # it advises to install JAX
    from pymbar import MBAR  # slow to import, and most tables need none

    order = np.argsort(state, kind="stable")
    counts = np.bincount(state, minlength=len(u))
    with warnings.catch_warnings(), np.errstate():  # it passes on warnings, and changes the state
        warnings.simplefilter("ignore")
        return MBAR(
            u[:, order],
            counts,
            initial_f_k=_guess(u, state),
            relative_tolerance=1e-6,
            maximum_iterations=_PYMBAR_STEPS,
        ).f_k


def _guess(u: np.ndarray, state: np.ndarray) -> np.ndarray:
    """f, shape (k,), from the mean difference of neighbours' potentials, seen from both.

    Exact where the differences are Gaussian. From zero pymbar takes minutes where the free
    energies of the states lie hundreds of kT apart.
    """
    f = np.zeros(len(u))
    for k in range(len(u) - 1):
        change = u[k + 1] - u[k]
        f[k + 1] = f[k] + (change[state == k].mean() + change[state == k + 1].mean()) / 2
    return f


def _polish(
    f: np.ndarray, u: np.ndarray, counts: np.ndarray, states: States
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f, shares and ln_mixture, as in `Pool`, by Newton's method from a first f."""
    for step in range(_STEPS):
        shares = (f + np.log(counts))[:, None] - u
        top = shares.max(axis=0)
        np.exp(np.subtract(shares, top, out=shares), out=shares)
        total = shares.sum(axis=0)
        shares /= total
        gradient = counts - shares.sum(axis=1)
        if step == 0:
            _connected(shares @ shares.T / counts[:, None], states)
        if np.abs(gradient / counts).max() < _CONVERGED:
            return f, shares, top + np.log(total)
        f = f + newton_step(hessian(shares), gradient)
    raise SamplingError("the free energies did not converge: the states overlap too little")


def hessian(shares: np.ndarray) -> np.ndarray:
    """Second derivative, shape (k, k), of what the free energies minimise."""
    return np.diag(shares.sum(axis=1)) - shares @ shares.T


def newton_step(curvature: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Change of f, shape of the gradient, (k,) or (k, b), with that of the first state zero."""
    step = np.zeros_like(gradient)
    step[1:] = np.linalg.solve(curvature[1:, 1:], gradient[1:])
    return step


def _connected(overlap: np.ndarray, states: States) -> None:
    low, high, value = weakest(overlap)
    if value < CUT:
        raise SamplingError(
            f"{states.name(low)} and {states.name(high)} do not overlap ({value:.1e}, needed "
            f"{CUT:g}): the states fall into groups whose free energies cannot be compared; put "
            "states between them, or sample longer"
        )
