"""The physics of attention patterns in closed form: order parameters, effective action, test loss.

Every formula of the package that needs the action comes from here; the kernels hold an
incremental form that the tests compare with this one. Axes: a, b positions; k token groups.
The population action depends on a pattern only through its five sums

    X = (m, q, tau, r, s2)

(theory.md, "Population action"): copy overlap, inverse participation, mean row sum, mean
squared row sum, and |S|^2. The exact action of one data set depends on all scores, and on the
data through their pair counts T alone (mcattn.counts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mcattn.counts import counts as pair_counts
from mcattn.errors import ModelError
from mcattn.model import ATTENTIONS, CopyModel

SUMS = ("m", "q", "tau", "r", "s2")
# What a bias may act on: its coefficients of m and tau at sequence length L.
COORDINATES: dict[str, Callable[[int], tuple[float, float]]] = {
    "m": lambda L: (1.0, 0.0),
    "tau": lambda L: (0.0, 1.0),
    "beta": lambda L: (L / (L - 1), -1 / (L - 1)),
}


def pattern(S: ArrayLike, attention: str) -> np.ndarray:
    """Attention pattern A of the scores S, both shape (..., a, b)."""
    S = np.asarray(S, dtype=float)
    if S.ndim < 2 or S.shape[-1] != S.shape[-2]:
        raise ModelError(f"scores have shape {S.shape}; the last two axes must be equal (L, L)")
    if attention == "linear":
        return S
    if attention != "softmax":
        raise ModelError(f"attention is {attention!r}; it must be one of {ATTENTIONS}")
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    return E / E.sum(axis=-1, keepdims=True)


def order_parameters(S: ArrayLike, attention: str) -> np.ndarray:
    """The five sums X, shape (..., 5), of the scores S, shape (..., a, b)."""
    A = pattern(S, attention)
    L = A.shape[-1]
    t = A.sum(axis=-1)
    X = np.empty((*A.shape[:-2], 5))
    a = np.arange(L)
    X[..., 0] = A[..., a, a - 1].mean(axis=-1)
    X[..., 1] = (A * A).sum(axis=(-2, -1)) / L
    X[..., 2] = t.mean(axis=-1)
    X[..., 3] = (t * t).mean(axis=-1)
    X[..., 4] = (np.asarray(S, dtype=float) ** 2).sum(axis=(-2, -1))
    return X


def along(X: ArrayLike, coordinate: str, L: int) -> np.ndarray:
    """The order parameter that a bias acts on, shape (...): m, |tau| or |beta| of X."""
    X = np.asarray(X, dtype=float)
    of_m, of_tau = COORDINATES[coordinate](L)
    u = of_m * X[..., 0] + of_tau * X[..., 2]
    return u if coordinate == "m" else np.abs(u)


def alpha_beta(X: ArrayLike, L: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the uniform and of the copy pattern, each shape (...), estimated from X."""
    X = np.asarray(X, dtype=float)
    beta = (L * X[..., 0] - X[..., 2]) / (L - 1)
    return X[..., 2] - beta, beta


def population(X: ArrayLike, model: CopyModel, P: ArrayLike, chi: ArrayLike) -> np.ndarray:
    """Population effective action F, shape (...), of the five sums X, shape (..., 5).

    P and chi broadcast against X[..., 0]. The prior weight of a pattern is exp(-F) up to
    a constant that depends on the state alone. Source: theory.md, "Population action",
    for any token distribution.
    """
    return np.asarray(chi) * per_chi(X, model, P, chi)


def per_chi(X: ArrayLike, model: CopyModel, P: ArrayLike, chi: ArrayLike) -> np.ndarray:
    """F/chi, shape (...): finite at chi = inf, where the log-determinant drops out."""
    X = np.asarray(X, dtype=float)
    P, chi = np.asarray(P, dtype=float), np.asarray(chi, dtype=float)
    k = _token_sums(X, model, P)
    prior = X[..., 4] / (2 * model.g_s)
    data = P / (2 * model.kappa) * (1 - _trace(X, k))
    return prior + data + model.V / (2 * chi) * _log_det(X, k)


def per_chi_gradient(X: ArrayLike, model: CopyModel, P: ArrayLike, chi: ArrayLike) -> np.ndarray:
    """Gradient of F/chi with respect to the five sums, shape (..., 5)."""
    X = np.asarray(X, dtype=float)
    P, chi = np.asarray(P, dtype=float), np.asarray(chi, dtype=float)
    k = _token_sums(X, model, P)
    m, q, tau, r, _ = np.moveaxis(X, -1, 0)
    u, d = tau - m, r - q
    w = 1 / (1 + d * k.s2)
    along_m = 2 * m * (k.s2 - d * w * k.t4) + 2 * u * w * k.s3
    along_u = 2 * w * (m * k.s3 + u * k.p2 * k.s2)
    s2_q, s3_q, t4_q = -k.moment(3, 2), -k.moment(4, 2), -2 * k.moment(5, 3)
    trace_q = _trace_slope(X, k, s2_q, s3_q, t4_q, d_slope=-1.0)
    trace_r = -(w**2) * _overlap(m, u, k)
    log_q = k.moment(1, 1) + w * (d * s2_q - k.s2)
    data, count = -P / (2 * model.kappa), model.V / (2 * chi)
    out = np.empty(np.broadcast_shapes(X.shape, (*np.shape(data * count), 5)))
    out[..., 0] = data * (along_m - along_u)
    out[..., 1] = data * trace_q + count * log_q
    out[..., 2] = data * along_u
    out[..., 3] = data * trace_r + count * k.s2 * w
    out[..., 4] = 1 / (2 * model.g_s)
    return out


def exact(S: ArrayLike, tokens: np.ndarray, model: CopyModel, chi: ArrayLike) -> np.ndarray:
    """Exact effective action F, shape (...), of the scores S, shape (..., a, b), given data.

    exp(-F) is the posterior of the scores, W integrated out: the integral of exp(-chi H) over
    W, divided by that of W's prior. Source: theory.md, "Exact effective action".

    Parameters
    ----------
    tokens : training sequences as ids, shape (P, a).
    chi : broadcasts against the leading axes of S.

    Raises
    ------
    ModelError : scores or tokens do not fit the model.
    """
    T = pair_counts(tokens, model.V)
    return np.asarray(chi) * exact_per_chi(S, T, model, len(tokens), chi)[0]


def exact_gradient(
    S: ArrayLike, tokens: np.ndarray, model: CopyModel, chi: ArrayLike
) -> np.ndarray:
    """Gradient dF/dS, shape (..., a, b), of the exact action; arguments as for `exact`."""
    T = pair_counts(tokens, model.V)
    chi = np.asarray(chi, dtype=float)
    return chi[..., None, None] * exact_per_chi(S, T, model, len(tokens), chi)[1]


def exact_per_chi(
    S: ArrayLike, counts: np.ndarray, model: CopyModel, P: int, chi: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Exact F/chi, shape (...), and its gradient, shape (..., a, b); both finite at chi = inf.

    Parameters
    ----------
    S : scores, shape (..., a, b).
    counts : pair counts T of the P sequences, shape (a, b, v, v').

    Raises
    ------
    ModelError : scores or counts do not fit the model.
    """
    S, L, V = np.asarray(S, dtype=float), model.L, model.V
    if np.shape(counts) != (L, L, V, V) or S.shape[-2:] != (L, L):
        raise ModelError(
            f"scores have shape {S.shape} and counts {np.shape(counts)}; "
            f"they must be (..., {L}, {L}) and {(L, L, V, V)}"
        )
    A = pattern(S, model.attention)
    flat, batch = counts.reshape(L * L, V * V), S.shape[:-2]
    gram, cross = (
        (B.reshape(*batch, L * L) @ flat).reshape(*batch, V, V) / L
        for B in (A.swapaxes(-1, -2) @ A, np.roll(A, -1, axis=-2))
    )
    ridge, entropy = model.kappa / model.g_w, V / (2 * np.asarray(chi, dtype=float))
    M = gram + ridge * np.eye(V)
    inverse = np.linalg.inv(M)
    W = cross @ inverse
    data = (P - (W * cross).sum(axis=(-2, -1))) / (2 * model.kappa)
    prior = (S * S).sum(axis=(-2, -1)) / (2 * model.g_s)
    value = prior + data + entropy * np.linalg.slogdet(M / ridge)[1]
    of_gram = W.swapaxes(-1, -2) @ W / (2 * model.kappa) + entropy[..., None, None] * inverse
    of_overlap, of_copies = (
        (B.reshape(*batch, V * V) @ flat.T).reshape(*batch, L, L) / L
        for B in (of_gram, W / -model.kappa)
    )
    slope = 2 * A @ of_overlap + np.roll(of_copies, 1, axis=-2)
    if model.attention == "softmax":
        slope = A * (slope - (A * slope).sum(axis=-1, keepdims=True))
    return value, slope + S / model.g_s


def test_loss(X: ArrayLike, model: CopyModel, P: ArrayLike) -> np.ndarray:
    """Population test loss per position, shape (...), of the mean predictor at fixed scores.

    1 is the loss of predicting nothing. Source: theory.md, point 6, for any tokens.
    """
    X = np.asarray(X, dtype=float)
    k = _token_sums(X, model, np.asarray(P, dtype=float))
    s2_e, s3_e, t4_e = -k.moment(2, 2), -k.moment(3, 2), -2 * k.moment(4, 3)
    return 1 - _trace(X, k) + k.ridge * _trace_slope(X, k, s2_e, s3_e, t4_e, d_slope=0.0)


def expected_loss(W: np.ndarray, X: ArrayLike, model: CopyModel) -> np.ndarray:
    """Test loss per position, shape (...), of weights W, shape (..., v, v'), with the sums X.

    The mean over fresh tokens of |y - f|^2, from the means of z z^T and y z^T (theory.md).
    """
    m, q, tau, r, _ = np.moveaxis(np.asarray(X, dtype=float)[..., None, None], -3, 0)
    pp = np.outer(model.probabilities, model.probabilities)
    sigma = np.diag(model.probabilities) - pp
    gram, cross = q * sigma + r * pp, m * sigma + tau * pp
    return 1 + (W * (W @ gram - 2 * cross)).sum(axis=(-2, -1))


def scatter_loss(X: ArrayLike, model: CopyModel, P: ArrayLike, chi: ArrayLike) -> np.ndarray:
    """What weights drawn from their posterior add to the test loss of its mean, shape (...).

    Every row of W has the covariance (kappa/chi) (G + rho)^-1; population G, any tokens.
    """
    _, q, _, r, _ = np.moveaxis(np.asarray(X, dtype=float)[..., None, None], -3, 0)
    P, V = np.asarray(P, dtype=float), model.V
    pp = np.outer(model.probabilities, model.probabilities)
    gram = q * (np.diag(model.probabilities) - pp) + r * pp
    precision = P[..., None, None] * gram + model.kappa / model.g_w * np.eye(V)
    trace = np.trace(np.linalg.solve(precision, gram), axis1=-2, axis2=-1)
    return V * model.kappa / np.asarray(chi, dtype=float) * trace


test_loss.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it


class _TokenSums(NamedTuple):
    """Sums over token groups at fixed q; D = diag(p), K = q D + ridge is diagonal."""

    p: np.ndarray  # (k,)
    n: np.ndarray  # (k,)
    inverse: np.ndarray  # (..., k), diagonal of K^-1
    ridge: np.ndarray  # kappa / (g_w P), shape of P
    p2: float  # |p|^2
    s2: np.ndarray  # p K^-1 p
    s3: np.ndarray  # sum p^3 / K
    t4: np.ndarray  # sum p^4 / K^2

    def moment(self, power: int, inverse_power: int) -> np.ndarray:
        """Sum over tokens of p^power / K^inverse_power."""
        return (self.n * self.p**power * self.inverse**inverse_power).sum(axis=-1)


def _token_sums(X: np.ndarray, model: CopyModel, P: np.ndarray) -> _TokenSums:
    p, n = model.token_groups
    ridge = model.kappa / (model.g_w * P)
    inverse = 1 / (X[..., 1, None] * p + ridge[..., None])

    def moment(power: int, inverse_power: int) -> np.ndarray:
        return (n * p**power * inverse**inverse_power).sum(axis=-1)

    p2 = float((n * p * p).sum())
    return _TokenSums(p, n, inverse, ridge, p2, moment(2, 1), moment(3, 1), moment(4, 2))


def _overlap(m: np.ndarray, u: np.ndarray, k: _TokenSums) -> np.ndarray:
    """|c K^-1 p|^2 with c = m D + u p p^T."""
    return m * m * k.t4 + 2 * m * u * k.s2 * k.s3 + u * u * k.s2**2 * k.p2


def _trace(X: np.ndarray, k: _TokenSums) -> np.ndarray:
    """tr(c M^-1 c^T), M = K + (r - q) p p^T, from M^-1 p = w K^-1 p: no large terms cancel."""
    m, q, tau, r, _ = np.moveaxis(X, -1, 0)
    u, d = tau - m, r - q
    w = 1 / (1 + d * k.s2)
    return m * m * (k.s2 - d * w * k.t4) + w * u * (2 * m * k.s3 + u * k.p2 * k.s2)


def _trace_slope(
    X: np.ndarray,
    k: _TokenSums,
    s2: np.ndarray,
    s3: np.ndarray,
    t4: np.ndarray,
    d_slope: float,
) -> np.ndarray:
    """Derivative of `_trace` along a parameter that moves s2, s3, t4 and d = r - q like this."""
    m, q, tau, r, _ = np.moveaxis(X, -1, 0)
    u, d = tau - m, r - q
    w = 1 / (1 + d * k.s2)
    w_slope = -w * w * (d_slope * k.s2 + d * s2)
    dw_slope = w * w * (d_slope - d * d * s2)
    own = s2 - dw_slope * k.t4 - d * w * t4
    mixed = w_slope * k.s3 + w * s3
    return m * m * own + 2 * m * u * mixed + u * u * k.p2 * w * w * (s2 - d_slope * k.s2**2)


def _log_det(X: np.ndarray, k: _TokenSums) -> np.ndarray:
    """ln det(M / ridge), by the matrix determinant lemma."""
    q, r = X[..., 1], X[..., 3]
    groups = (k.n * np.log1p(q[..., None] * k.p / k.ridge[..., None])).sum(axis=-1)
    return groups + np.log1p((r - q) * k.s2)
