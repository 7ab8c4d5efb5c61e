"""F/chi as a function of all L^2 scores, at one chi: of the population, and of one data set.

Both kinds answer `at(P)` with a function of scores (..., a, b) that gives values (...) and
gradients (..., a, b), finite at chi = inf, so that what searches for minima need not know which
of them it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mcattn import action
from mcattn.counts import counts
from mcattn.errors import ModelError
from mcattn.model import CopyModel, positive, temperature

Landscape = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Population:
    """The population action, for any real P > 0.

    Raises
    ------
    ModelError : chi is not > 0.
    """

    resolution = 1e-5  # steps in P, as a share of it, below which ends of branches are not sought
    most = math.inf

    def __init__(self, model: CopyModel, chi: float = math.inf) -> None:
        self.model, self.chi = model, temperature(chi)

    def at(self, P: float) -> Landscape:
        """Value and gradient as functions of the scores."""
        P = positive("P", P)
        return lambda S: _population(S, self.model, P, self.chi)

    def loss(self, S: np.ndarray, P: float) -> float:
        """Test loss per position of the mean predictor."""
        X = action.order_parameters(S, self.model.attention)
        return float(action.test_loss(X, self.model, P))


class DataSet:
    """The exact action of the first P rows of a token table (P, L), P a whole number.

    Raises
    ------
    ModelError : chi is not > 0, or the table does not fit the model.
    """

    resolution = 0.0  # P goes by whole rows

    def __init__(self, model: CopyModel, tokens: np.ndarray, chi: float = math.inf) -> None:
        self.model, self.chi, self.tokens = model, temperature(chi), np.asarray(tokens)
        if self.tokens.ndim != 2 or self.tokens.shape[1] != model.L:
            raise ModelError(f"tokens have shape {self.tokens.shape}; it must be (P, {model.L})")
        self._P, self._counts = 0, counts(self.tokens[:0], model.V)

    @property
    def most(self) -> float:
        """Rows of the table."""
        return len(self.tokens)

    def at(self, P: float) -> Landscape:
        """Value and gradient as functions of the scores."""
        T, rows = self.counts(P), int(P)
        return lambda S: action.exact_per_chi(S, T, self.model, rows, self.chi)

    def counts(self, P: float) -> np.ndarray:
        """Pair counts of the first P rows, from those asked for last and the rows between."""
        if not 1 <= P <= self.most or int(P) != P:
            raise ModelError(f"P is {P:g}; it must be a whole number from 1 to {self.most}")
        low, high = sorted((self._P, int(P)))
        if low < high:
            between = counts(self.tokens[low:high], self.model.V)
            sign = 1 if high == P else -1
            self._counts = np.ascontiguousarray(self._counts + sign * between)
            self._P = int(P)
        return self._counts

    def loss(self, S: np.ndarray, P: float) -> float:
        """Test loss per position, on fresh tokens, of the mean weights given these data."""
        A = action.pattern(S, self.model.attention)
        T, L = self.counts(P), self.model.L
        gram = np.einsum("bc,bcvw->vw", A.T @ A, T) / L
        cross = np.einsum("bc,bcvw->vw", np.roll(A, -1, axis=0), T) / L
        ridge = self.model.kappa / self.model.g_w
        W = np.linalg.solve(gram + ridge * np.eye(self.model.V), cross.T).T
        X = action.order_parameters(S, self.model.attention)
        return float(action.expected_loss(W, X, self.model))


Problem = Population | DataSet


def _population(
    S: np.ndarray, model: CopyModel, P: float, chi: float
) -> tuple[np.ndarray, np.ndarray]:
    """Population F/chi, shape (...), and its gradient, shape (..., a, b), by the chain rule."""
    S = np.asarray(S, dtype=float)
    A, L, a = action.pattern(S, model.attention), model.L, np.arange(model.L)
    X = action.order_parameters(S, model.attention)
    of_m, of_q, of_tau, of_r, of_s2 = np.moveaxis(
        action.per_chi_gradient(X, model, P, chi)[..., None, None], -3, 0
    )
    slope = (2 * of_q * A + of_tau + 2 * of_r * A.sum(axis=-1, keepdims=True)) / L
    slope[..., a, a - 1] += of_m[..., 0] / L
    if model.attention == "softmax":
        slope = A * (slope - (A * slope).sum(axis=-1, keepdims=True))
    return action.per_chi(X, model, P, chi), slope + 2 * of_s2 * S
