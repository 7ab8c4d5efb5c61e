"""The network itself: its weights, its loss H with weight decay, and what its attention does.

f_mu^a = W sum_b A_ab x_mu^b, with A the row softmax of the scores, or the scores themselves
(theory.md, "Task and network"). Weights are one flat vector: W (V, V), then the score matrix M,
which is S (L, L) itself in the positional network; in the full network it is the fused W_G of
shape (V + L, V + L), so that S_ab = z_a^T W_G z_b with z the one-hot token above the one-hot
position, and attention may depend on the tokens.
Axes: n flat weights, mu sequence, a, b positions, c, v tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcattn import action
from mcattn.kernels import network as kernel
from mcattn.model import CopyModel

NETWORKS = ("positional", "full")


@dataclass(frozen=True)
class Sequences:
    """Training or test sequences: ids, shape (mu, a), and counts if the loss is taken from them.

    counts : of the pairs b <= b', as `exact_replicas.packed` gives them; None where not used.
    """

    tokens: np.ndarray
    counts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.tokens)


class Network:
    """Loss, gradient and observables of networks given by flat weights.

    Parameters
    ----------
    kind : "positional" or "full".
    """

    def __init__(self, model: CopyModel, kind: str = "positional") -> None:
        self.model, self.full = model, kind == "full"
        self._softmax = model.attention == "softmax"
        self.side = model.L + (model.V if self.full else 0)
        self._weights = model.V**2
        self.size = self._weights + self.side**2
        # Inverse prior variances, times chi: the weight decay of every weight.
        self.decay = np.full(self.size, 1 / model.g_s)
        self.decay[: self._weights] = 1 / model.g_w
        self._grad_W = np.empty((model.V, model.V))
        self._grad_M = np.empty((self.side, self.side))
        self._sums = np.empty(4)

    def join(self, W: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Flat weights, shape (n,), of W (c, v) and positional scores S (a, b).

        In the full network S is the position-position block of W_G, whose rest is zero.
        """
        M = np.zeros((self.side, self.side))
        M[self.side - self.model.L :, self.side - self.model.L :] = S
        return np.concatenate([W.ravel(), M.ravel()])

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W (c, v) and M of flat weights, as views."""
        V = self.model.V
        shape = (self.side, self.side)
        return theta[: self._weights].reshape(V, V), theta[self._weights :].reshape(shape)

    def loss(
        self, theta: np.ndarray, data: Sequences, chosen: np.ndarray | None = None
    ) -> tuple[float, np.ndarray]:
        """H and its gradient, shape (n,).

        chosen : rows of `data`, shape (mu,), that stand for all of it, each with equal weight:
            the data part is then an estimate, unbiased for rows drawn uniformly.
        """
        W, M = self.split(theta)
        if chosen is None and data.counts is not None and not self.full:
            value = kernel.from_counts(
                W, M, data.counts, float(len(data)), self.model.kappa, self._softmax,
                self._grad_W, self._grad_M,
            )  # fmt: skip
            weight = 1.0
        else:
            rows = np.arange(len(data)) if chosen is None else chosen
            value, weight = self._from_sequences(W, M, data, rows), len(data) / len(rows)
        grad = np.concatenate([self._grad_W.ravel(), self._grad_M.ravel()])
        pull = self.decay * theta
        return weight * value + 0.5 * float(theta @ pull), weight * grad + pull

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Scores (a, b): S, or in the full network their mean over tokens of the model."""
        M = self.split(theta)[1]
        if not self.full:
            return M
        V, p = self.model.V, self.model.probabilities
        tokens = p @ M[:V, :V] @ p + (M[V:, :V] @ p)[:, None] + (p @ M[:V, V:])[None]
        return tokens + M[V:, V:]

    def observe(self, theta: np.ndarray, fresh: Sequences) -> tuple[np.ndarray, float, float]:
        """What the network does on data it was not trained on.

        Positional: exact averages over the model's tokens, which need no data. Full: averages
        over the sequences of `fresh`.

        Returns
        -------
        X : the five sums, shape (5,); the fifth is |M|^2.
        loss : test loss per position; 1 is that of predicting nothing.
        share : part of |M|^2 in the position-position block.
        """
        W, M = self.split(theta)
        if not self.full:
            X = action.order_parameters(M, self.model.attention)
            return X, float(action.expected_loss(W, X, self.model)), 1.0
        X = np.empty(5)
        value = self._from_sequences(W, M, fresh, np.arange(len(fresh)))
        X[:4], X[4] = self._sums, (M * M).sum()
        V = self.model.V
        share = (M[V:, V:] ** 2).sum() / X[4] if X[4] else 1.0
        return X, 2 * self.model.kappa * value / len(fresh), float(share)

    def _from_sequences(
        self, W: np.ndarray, M: np.ndarray, data: Sequences, rows: np.ndarray
    ) -> float:
        return kernel.from_sequences(
            W, M, data.tokens, rows, self.model.kappa, self._softmax, self.full,
            self._grad_W, self._grad_M, self._sums,
        )  # fmt: skip
