"""The exact action on data against integrals over W, explicit sums and the population limit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mcattn import action, data
from mcattn.errors import ModelError
from mcattn.model import CopyModel

CASES = [
    (attention, L, V, P, chi)
    for attention in ("softmax", "linear")
    for L, V, P, chi in ((2, 2, 1, 0.5), (2, 3, 4, 3.0), (3, 2, 3, 10.0), (3, 3, 2, 1.0))
]


def case(attention, L, V, P, seed=0, tokens=None):
    """A model, a token table (P, L) and scores (a, b)."""
    model = CopyModel(L, V, attention, kappa=0.7, g_s=2.0, g_w=0.4, tokens=tokens)
    rng = np.random.default_rng([seed, L, V, P])
    return model, rng.integers(V, size=(P, L)), rng.normal(size=(L, L))


def attended(S, tokens, model):
    """Inputs z and targets y of every row, both shape (mu a, v); S may be complex."""
    A = S
    if model.attention == "softmax":
        A = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
    x = np.eye(model.V)[tokens]
    z = np.array([[sum(A[a, b] * s[b] for b in range(model.L)) for a in range(model.L)] for s in x])
    y = np.array([[s[a - 1] for a in range(model.L)] for s in x])
    return z.reshape(-1, model.V), y.reshape(-1, model.V)


def gaussian(S, tokens, model, chi, log_det=True):
    """F by the Gaussian integral over all V^2 weights, from sums over sequences and positions."""
    V, rows = model.V, chi / (model.kappa * model.L)
    z, y = attended(S, tokens, model)
    precision = chi / model.g_w * np.eye(V * V, dtype=z.dtype)
    linear = np.zeros(V * V, dtype=z.dtype)
    for i in range(len(z)):
        precision += rows * np.kron(np.eye(V), np.outer(z[i], z[i]))
        linear += rows * np.kron(y[i], z[i])
    F = chi * (S * S).sum() / (2 * model.g_s) + rows / 2 * (y * y).sum()
    F = F - linear @ np.linalg.solve(precision, linear) / 2
    return F + log_det * np.log(np.linalg.det(precision * model.g_w / chi)) / 2


@pytest.mark.parametrize("log_det", [True, False])
@pytest.mark.parametrize(("attention", "L", "V", "P", "chi"), CASES)
def test_equals_the_gaussian_integral_over_all_weights(attention, L, V, P, chi, log_det):
    """Without the log-determinant the difference is as large as that term: the control."""
    model, tokens, S = case(attention, L, V, P)
    F, expected = action.exact(S, tokens, model, chi), gaussian(S, tokens, model, chi, log_det)
    assert (abs(F - expected) < 1e-10 * abs(expected)) == log_det


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("P", [1, 3])
def test_equals_quadrature_over_the_weights(attention, P):
    """exp(-chi H) of theory.md, summed over a product grid in the four weights of V = 2."""
    model, tokens, S = case(attention, 2, 2, P)
    chi, (z, y) = 0.5, attended(S, tokens, model)
    x, w = np.polynomial.hermite.hermgauss(60)
    total, width = 0.0, np.sqrt(2 * model.g_w / chi)  # nodes of W's prior
    for i, j in itertools.product(range(60), repeat=2):
        first = width * np.array([x[i], x[j]])
        # Given one row of W the other is free: H is a sum over rows of W.
        square = ((y[:, :1] - (z @ first)[:, None]) ** 2).sum()
        total += w[i] * w[j] * np.exp(-chi * square / (2 * model.kappa * model.L)) / np.pi
    other = 0.0
    for i, j in itertools.product(range(60), repeat=2):
        square = ((y[:, 1] - z @ (width * np.array([x[i], x[j]]))) ** 2).sum()
        other += w[i] * w[j] * np.exp(-chi * square / (2 * model.kappa * model.L)) / np.pi
    expected = chi * (S * S).sum() / (2 * model.g_s) - np.log(total) - np.log(other)
    assert action.exact(S, tokens, model, chi) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("attention", "L", "V", "P", "chi"), CASES)
def test_gradient_equals_a_complex_step_of_the_integral(attention, L, V, P, chi):
    model, tokens, S = case(attention, L, V, P)
    expected = np.empty((L, L))
    for a, b in np.ndindex(L, L):
        moved = S.astype(complex)
        moved[a, b] += 1e-40j
        expected[a, b] = gaussian(moved, tokens, model, chi).imag / 1e-40
    found = action.exact_gradient(S, tokens, model, chi)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * abs(expected).max())


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_gradient_equals_differences_of_the_value(attention):
    model = CopyModel(6, 5, attention, 1.0, 3.0, 0.1)
    tokens = data.draw(model, 40, 3)
    S = np.random.default_rng(1).normal(size=(6, 6))
    T, h = data.counts(tokens, 5), 1e-5
    for chi in (2.0, np.inf):
        slope = action.exact_per_chi(S, T, model, 40, chi)[1]
        for a, b in ((0, 0), (0, 5), (2, 1), (4, 5)):
            up, down = S.copy(), S.copy()
            up[a, b] += h
            down[a, b] -= h
            ends = action.exact_per_chi(np.stack([up, down]), T, model, 40, chi)[0]
            assert slope[a, b] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-8)


def test_states_and_scores_broadcast():
    model, tokens, _ = case("softmax", 3, 3, 4)
    S = np.random.default_rng(2).normal(size=(5, 2, 3, 3))
    chi = np.array([[1.0], [2.0], [3.0], [5.0], [8.0]])
    F, slope = (f(S, tokens, model, chi) for f in (action.exact, action.exact_gradient))
    assert (F.shape, slope.shape) == ((5, 2), (5, 2, 3, 3))
    for i, j in np.ndindex(5, 2):
        one = (S[i, j], tokens, model, chi[i, 0])
        np.testing.assert_allclose(F[i, j], action.exact(*one), rtol=1e-13)
        np.testing.assert_allclose(slope[i, j], action.exact_gradient(*one), rtol=1e-11, atol=1e-13)


def test_infinite_chi_drops_the_log_determinant():
    model, tokens, S = case("softmax", 3, 3, 4)
    cold = action.exact_per_chi(S, data.counts(tokens, 3), model, 4, np.inf)[0]
    # F = chi f + (log-determinant): the difference of two chi is free of the second term.
    difference = action.exact(S, tokens, model, 2.0) - action.exact(S, tokens, model, 1.0)
    assert cold == pytest.approx(difference, rel=1e-10)


# --- data ------------------------------------------------------------------------------------


def test_counts_grow_with_the_rows():
    model = CopyModel(5, 4, tokens=(0.4, 0.3, 0.2, 0.1))
    tokens, T = data.draw(model, 9000, 7), None
    for low, high in ((0, 1), (1, 30), (30, 9000)):
        T = data.counts(tokens[low:high], 4, T)
        np.testing.assert_array_equal(T, data.counts(tokens[:high], 4))
    S = np.random.default_rng(0).normal(size=(5, 5))
    F = 3.0 * action.exact_per_chi(S, T, model, 9000, 3.0)[0]
    assert pytest.approx(action.exact(S, tokens, model, 3.0), rel=1e-12) == F
    assert abs(action.exact(S, tokens[:8999], model, 3.0) - F) > 1e-3


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_many_sequences_approach_the_population_action(attention):
    """F of 40 data sets scatters round the population's; the scatter of F/P falls as 1/sqrt(P).

    |z| < 4 of the mean is broken by one seed in 15000. A population with 1 % more sequences
    misses by far: the control. The ratio of two scatters of 40 sets has an error of 16 %.
    """
    model = CopyModel(4, 3, attention, 1.0, 1.0, 0.5, (0.5, 0.3, 0.2))
    S = np.random.default_rng(5).normal(size=(4, 4)) + np.roll(np.eye(4), -1, axis=1)
    X = action.order_parameters(S, attention)
    scatter = {}
    for P in (500, 20_000):
        sets = [data.draw(model, P, seed) for seed in range(40)]
        F = np.array([action.exact(S, tokens, model, 5.0) for tokens in sets])
        error = F.std(ddof=1) / np.sqrt(len(F))
        if P > 500:
            assert abs(F.mean() - action.population(X, model, P, 5.0)) < 4 * error
            assert abs(F.mean() - action.population(X, model, 1.01 * P, 5.0)) > 8 * error
        scatter[P] = F.std(ddof=1) / P
    assert scatter[500] / scatter[20_000] == pytest.approx(np.sqrt(40), rel=0.5)
    large = action.exact(S, data.draw(model, 200_000, 1), model, 5.0)
    assert large == pytest.approx(float(action.population(X, model, 200_000, 5.0)), rel=0.01)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (np.zeros(3, dtype=int), r"tokens have shape \(3,\)"),
        (np.zeros((2, 3)), "type float64; they must be whole numbers"),
        (np.full((2, 3), 4), r"tokens are 4 to 4; ids are 0..2"),
        (np.full((2, 3), -1), r"tokens are -1 to -1; ids are 0..2"),
        (np.zeros((2, 4), dtype=int), r"counts \(4, 4, 3, 3\); they must be \(..., 3, 3\)"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(tokens, sentence):
    with pytest.raises(ModelError, match=sentence):
        action.exact(np.zeros((3, 3)), tokens, CopyModel(3, 3), 1.0)
