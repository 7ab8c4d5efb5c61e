"""mcattn.action against V x V matrices, naive loops, sampled data and the symmetries."""

from __future__ import annotations

from typing import NamedTuple

import exact
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcattn import action
from mcattn.errors import ModelError
from mcattn.model import CopyModel

check = settings(max_examples=50, deadline=None, derandomize=True)


class Point(NamedTuple):
    """A model, a state and a batch of scores, shape (n, a, b)."""

    model: CopyModel
    P: float
    chi: float
    S: np.ndarray

    @property
    def X(self) -> np.ndarray:
        return action.order_parameters(self.S, self.model.attention)


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers 10^x, spread evenly in x."""
    return st.floats(low, high).map(lambda x: 10.0**x)


@st.composite
def points(draw: st.DrawFn, attention: str | None = None) -> Point:
    """Points from far inside the prior's reign to far inside the data's."""
    L, V = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    weights = draw(st.none() | st.lists(st.integers(1, 9), min_size=V, max_size=V))
    tokens = weights and tuple(w / sum(weights) for w in weights)
    attention = attention or draw(st.sampled_from(["softmax", "linear"]))
    priors = (draw(powers(-1, 1)) for _ in range(3))
    model = CopyModel(L, V, attention, *priors, tokens)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    S = draw(powers(-1, 1)) * rng.normal(size=(4, L, L)) + rng.normal()
    return Point(model, draw(powers(-3, 3)), draw(powers(-1, 2)), S)


def matrices(X: np.ndarray, model: CopyModel) -> tuple[np.ndarray, np.ndarray]:
    """G/P and C/P of the five sums X, shape (5,), which may be complex."""
    sigma, pp = exact.token_matrices(model)
    m, q, tau, r, _ = X
    return q * sigma + r * pp, m * sigma + tau * pp


# --- values ----------------------------------------------------------------------------------


@check
@given(points())
def test_population_action_equals_matrix_form(point: Point):
    model, P, chi, S = point
    F = action.population(point.X, model, P, chi)
    np.testing.assert_allclose(F, exact.action(S, model, P, chi), rtol=1e-9)


@check
@given(points())
def test_infinite_chi_drops_the_log_determinant(point: Point):
    model, P, _, S = point
    cold = action.per_chi(point.X, model, P, np.inf)
    # F = chi f + (log-determinant): the difference of two chi is free of the second term.
    f = exact.action(S, model, P, 2.0) - exact.action(S, model, P, 1.0)
    np.testing.assert_allclose(cold, f, rtol=1e-8)
    assert np.all(action.per_chi(point.X, model, P, 10.0) > cold)


@check
@given(points())
def test_loss_is_that_of_the_mean_predictor(point: Point):
    model, P, _, S = point
    loss = action.test_loss(point.X, model, P)
    np.testing.assert_allclose(loss, exact.mean_loss(S, model, P), rtol=1e-8, atol=1e-10)


@check
@given(points(), st.integers(0, 3))
def test_gradient_equals_a_complex_step_of_the_matrix_form(point: Point, n: int):
    model, P, chi, _ = point
    X, h = point.X[n], 1e-40
    steps = X + 1j * h * np.eye(5)
    F = [exact.free_energy(*matrices(x, model), x[4], model, P, chi) for x in steps]
    gradient = action.per_chi_gradient(X, model, P, chi)
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, np.imag(F) / h / chi, rtol=1e-8, atol=1e-10 * scale)


@check
@given(points())
def test_uniform_tokens_give_the_closed_form(point: Point):
    m, q, tau, r, s2 = point.X.T
    model, P, chi, _ = point
    model = CopyModel(model.L, model.V, model.attention, model.kappa, model.g_s, model.g_w)
    V, eps = model.V, model.kappa * model.V / (model.g_w * P)
    data = (V - 1) / V * (1 - m**2 / (q + eps)) + (1 - tau**2 / (r + eps)) / V
    F = chi * (s2 / (2 * model.g_s) + P / (2 * model.kappa) * data)
    F = F + V / 2 * ((V - 1) * np.log(1 + q / eps) + np.log(1 + r / eps))
    np.testing.assert_allclose(action.population(point.X, model, P, chi), F, rtol=1e-9)
    w, w0 = m / (q + eps), tau / (r + eps)
    loss = (V - 1) / V * (1 - 2 * m * w + q * w**2) + (1 - 2 * tau * w0 + r * w0**2) / V
    np.testing.assert_allclose(action.test_loss(point.X, model, P), loss, rtol=1e-8, atol=1e-10)


def test_states_broadcast_against_patterns():
    model = CopyModel(4, 3, tokens=(0.5, 0.3, 0.2))
    X = action.order_parameters(np.random.default_rng(1).normal(size=(7, 4, 4)), "softmax")
    P, chi = np.array([[10.0], [20.0], [40.0]]), np.array([[3.0], [5.0], [np.inf]])
    table = action.per_chi(X, model, P, chi)
    slopes = action.per_chi_gradient(X, model, P, chi)
    loss = action.test_loss(X, model, P)
    assert (table.shape, slopes.shape, loss.shape) == ((3, 7), (3, 7, 5), (3, 7))
    for i in range(3):
        one = (model, float(P[i, 0]))
        np.testing.assert_allclose(table[i, 2], action.per_chi(X[2], *one, chi[i, 0]), rtol=1e-14)
        np.testing.assert_allclose(loss[i, 2], action.test_loss(X[2], *one), rtol=1e-14)
        expected = action.per_chi_gradient(X[2], *one, chi[i, 0])
        np.testing.assert_allclose(slopes[i, 2], expected, rtol=1e-14)


def test_reference_landscape_of_the_standard_case():
    """First row of the table in theory.md: two equal minima at P*, and the barrier between."""
    model = CopyModel()
    s = np.linspace(0, 8, 4001)
    m = 1 / (1 + (model.L - 1) * np.exp(-s))
    X = np.ones((len(s), 5))
    X[:, 0], X[:, 1] = m, m**2 + (1 - m) ** 2 / (model.L - 1)
    X[:, 4] = (model.L - 1) * s**2
    F = action.per_chi(X, model, 306.716, np.inf)
    low, high = np.argmin(F[:1500]), 1500 + np.argmin(F[1500:])
    assert m[low] == pytest.approx(0.0722, abs=2e-4)
    assert m[high] == pytest.approx(0.6296, abs=2e-3)
    assert F[low] == pytest.approx(F[high], abs=1e-3)
    assert F[low:high].max() - F[low] == pytest.approx(2.061, abs=1e-3)


# --- order parameters ------------------------------------------------------------------------


@check
@given(points())
def test_order_parameters_equal_naive_loops(point: Point):
    L = point.model.L
    for S, X in zip(point.S, point.X, strict=True):
        A = np.array(S)
        if point.model.attention == "softmax":
            for a in range(L):
                A[a] = [1 / sum(np.exp(S[a, c] - S[a, b]) for c in range(L)) for b in range(L)]
        m = sum(A[a, (a - 1) % L] for a in range(L)) / L
        q = sum(A[a, b] ** 2 for a in range(L) for b in range(L)) / L
        t = [sum(A[a, b] for b in range(L)) for a in range(L)]
        s2 = sum(S[a, b] ** 2 for a in range(L) for b in range(L))
        expected = [m, q, sum(t) / L, sum(x * x for x in t) / L, s2]
        np.testing.assert_allclose(X, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(action.pattern(S, point.model.attention), A, rtol=1e-10)


@check
@given(st.integers(2, 6), st.floats(-2, 2), st.floats(-2, 2))
def test_alpha_and_beta_are_recovered(L: int, alpha: float, beta: float):
    A = np.full((L, L), alpha / L) + beta * np.roll(np.eye(L), -1, axis=1)
    X = action.order_parameters(A, "linear")
    assert X[0] == pytest.approx(alpha / L + beta, abs=1e-12)
    assert X[1] == pytest.approx(alpha**2 / L + 2 * alpha * beta / L + beta**2, abs=1e-12)
    assert X[2] == pytest.approx(alpha + beta, abs=1e-12)
    assert X[4] == pytest.approx(L * X[1], abs=1e-12)
    np.testing.assert_allclose(action.alpha_beta(X, L), (alpha, beta), atol=1e-12)


def test_huge_scores_make_a_one_hot_pattern():
    S = 1e4 * np.roll(np.eye(5), -1, axis=1)
    S[2] -= 3e4  # far below the other rows: each row has its own largest score
    X = action.order_parameters(S, "softmax")
    np.testing.assert_allclose(X[:4], 1)
    np.testing.assert_allclose(action.alpha_beta(X, 5), (0, 1), atol=1e-15)


# --- symmetries ------------------------------------------------------------------------------


@check
@given(points(), st.integers(1, 5))
def test_a_cyclic_relabelling_of_positions_changes_nothing(point: Point, shift: int):
    moved = np.roll(point.S, (shift, shift), axis=(1, 2))
    X = action.order_parameters(moved, point.model.attention)
    np.testing.assert_allclose(X, point.X, rtol=1e-10, atol=1e-12)
    if shift % point.model.L:  # queries alone: another pattern, unless the sums agree by chance
        X = action.order_parameters(np.roll(point.S, shift, axis=1), point.model.attention)
        assert not np.allclose(X[:, 0], point.X[:, 0], rtol=1e-10, atol=0)


@check
@given(points("linear"))
def test_linear_attention_has_no_sign(point: Point):
    model, P, chi, S = point
    X = action.order_parameters(-S, "linear")
    np.testing.assert_allclose(X, point.X * [-1, 1, -1, 1, 1], rtol=1e-12)
    F = action.population(point.X, model, P, chi)
    np.testing.assert_allclose(action.population(X, model, P, chi), F, rtol=1e-12)
    loss = action.test_loss(point.X, model, P)
    np.testing.assert_allclose(action.test_loss(X, model, P), loss, rtol=1e-9, atol=1e-12)


@check
@given(points("softmax"), st.floats(-3, 3))
def test_a_constant_added_to_a_row_changes_only_the_norm(point: Point, constant: float):
    S = point.S.copy()
    S[:, 0] += constant
    X = action.order_parameters(S, "softmax")
    np.testing.assert_allclose(X[:, :4], point.X[:, :4], rtol=1e-9)
    change = 2 * constant * point.S[:, 0].sum(axis=1) + point.model.L * constant**2
    np.testing.assert_allclose(X[:, 4] - point.X[:, 4], change, atol=1e-9)


# --- the population limit --------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_sampled_sequences_approach_the_population_matrices(attention: str):
    """18 entries of G/P and C/P, and the loss, within 4.5 standard errors of the mean.

    19 Gaussian numbers break that bound for one seed in 8000; the wrong neighbour as target
    misses it by far.
    """
    model = CopyModel(4, 3, attention, 1.0, 1.0, 0.5, (0.5, 0.3, 0.2))
    rng = np.random.default_rng(12058)
    S = rng.normal(size=(4, 4)) + np.roll(np.eye(4), -1, axis=1)
    X, n = action.order_parameters(S, attention), 40_000
    x = np.eye(3)[rng.choice(3, p=model.tokens, size=(n, 4))]
    z = np.einsum("ab,nbi->nai", action.pattern(S, attention), x)

    def worst_z(values: np.ndarray, mean: np.ndarray) -> float:
        return float(np.max(np.abs(values.mean(0) - mean) / (values.std(0) / np.sqrt(n))))

    G, C = matrices(X, model)
    previous, following = np.roll(x, 1, axis=1), np.roll(x, -1, axis=1)
    assert worst_z(np.einsum("nai,naj->nij", z, z) / 4, G) < 4.5
    assert worst_z(np.einsum("nai,naj->nij", previous, z) / 4, C) < 4.5
    assert worst_z(np.einsum("nai,naj->nij", following, z) / 4, C) > 15
    W = exact.mean_weights(G, C, model.kappa / (model.g_w * 20.0))
    loss = ((previous - z @ W.T) ** 2).sum(axis=(1, 2)) / 4
    assert worst_z(loss, action.test_loss(X, model, 20.0)) < 4.5


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 4), ()])
def test_scores_must_be_square(shape: tuple[int, ...]):
    with pytest.raises(ModelError, match=r"scores have shape .* must be equal \(L, L\)") as error:
        action.order_parameters(np.zeros(shape), "softmax")
    assert str(shape) in str(error.value)


def test_an_unknown_attention_is_named():
    with pytest.raises(ModelError, match=r"attention is 'cosine'; .*softmax.*linear"):
        action.pattern(np.zeros((2, 2)), "cosine")
