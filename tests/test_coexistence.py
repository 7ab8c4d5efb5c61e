"""Finite-chi theory of softmax attention against quadrature, Monte Carlo, and its own limits."""

import math

import numpy as np
import pytest

import mcattn
from mcattn import action, coexistence, finite_chi, rows, theory
from mcattn.analysis import series
from mcattn.errors import ModelError
from mcattn.model import CopyModel

STANDARD = CopyModel()


UNEQUAL = CopyModel(L=5, V=3, kappa=1.0, g_s=1.5, g_w=0.2, tokens=(0.6, 0.3, 0.1))


@pytest.mark.parametrize(
    ("model", "P", "chi"),
    [(CopyModel(L=4, V=3, kappa=1.0, g_s=1.5, g_w=0.2), 40, 3), (UNEQUAL, 60, 4)],
    ids=["L4", "unequal"],
)
def test_short_sequences_equal_monte_carlo(model, P, chi):
    X, _ = mcattn.sample(model, P=P, chi=chi, replicas=64, sweeps=8000, thermalize=500, seed=4)
    found = coexistence.table(model, P, chi).averages(P)
    for i, name in ((0, "m"), (1, "q")):
        sampled = series.mean(X[..., i])
        assert abs(sampled.value - found[name]) < 4 * sampled.error
    loss = series.mean(action.test_loss(X, model, P))
    assert abs(loss.value - found["loss"]) < 4 * loss.error


def test_the_sum_changes_with_P_as_the_mean_action_says():
    model, chi = CopyModel(L=4, V=3, kappa=1.0, g_s=1.5, g_w=0.2), 3
    table = coexistence.table(model, 40, chi)
    slope = (table.ln_z(40.1) - table.ln_z(39.9)) / 0.2
    X, _ = mcattn.sample(model, P=40, chi=chi, replicas=64, sweeps=4000, thermalize=500, seed=5)
    low, high = (action.population(X, model, P, chi) for P in (39.9, 40.1))
    mean = series.mean((high - low) / 0.2)
    assert abs(slope + mean.value) < 4 * mean.error


def test_weight_is_one_where_nothing_was_learnt():
    model = CopyModel(L=4, V=3, kappa=1.0, g_s=1.5, g_w=0.2)
    nothing = coexistence.table(model, 1e-3, 3)
    assert nothing.ln_z(1e-12) == pytest.approx(0, abs=3e-3)


@pytest.fixture(scope="module")
def standard():
    return coexistence.table(STANDARD, 338, 10)


@pytest.mark.parametrize(
    ("P", "start", "ends"), [(320, "uniform", (0, 0.3)), (370, "copy", (0.3, 1))]
)
def test_both_phases_equal_monte_carlo(P, start, ends, standard):
    X, _ = mcattn.sample(
        STANDARD, P=P, chi=10, replicas=32, sweeps=3000, thermalize=500, start=start, seed=3
    )
    theory_ = standard.averages(P, *ends)
    wrong = coexistence.table(CopyModel(g_w=0.031), 338, 10).averages(P, *ends)
    missed = []
    for i, name in ((0, "m"), (1, "q")):
        sampled = series.mean(X[..., i])
        assert abs(sampled.value - theory_[name]) < 4 * sampled.error + 1e-5
        missed.append(abs(sampled.value - wrong[name]) > 4 * sampled.error + 1e-5)
    assert any(missed)
    var = series.mean((X[..., 0] - X[..., 0].mean()) ** 2)
    assert abs(var.value - theory_["var_m"]) < 4 * var.error


def test_the_profile_is_the_distribution_of_m(standard):
    m = standard.grid(40)
    phi = standard.profile(330, m)
    assert np.trapezoid(np.exp(-phi), m) == pytest.approx(1, abs=1e-4)
    mean = np.trapezoid(m * np.exp(-phi), m)
    assert mean == pytest.approx(standard.averages(330)["m"], abs=1e-5)


def test_the_standard_transition():
    found = coexistence.coexistence(STANDARD, 10)
    assert found.P_exact.value == pytest.approx(337.579, abs=0.02)
    assert abs(found.P_saddle.value - found.P_exact.value) <= found.P_saddle.error
    assert found.P_exact.error < 0.03
    assert found.P_lower.value < found.P_exact.value < found.P_equal_height.value
    assert found.dm.value == pytest.approx(found.m_plus.value - found.m_minus.value)
    # The fluctuations lift the transition above the landscape's, which leaves them out.
    assert found.P_exact.value > theory.boundary(STANDARD, 10).P_star + 15
    table = coexistence.table(STANDARD, found.P_exact.value, 10)
    low, high = (
        table.averages(found.P_exact.value, *ends)["ln_weight"] for ends in ((0, 0.4), (0.4, 1))
    )
    assert low == pytest.approx(high, abs=0.05)


def test_the_landscape_is_the_limit_of_large_chi():
    shift = [
        coexistence.coexistence(STANDARD, chi).P_exact.value - theory.boundary(STANDARD, chi).P_star
        for chi in (20, 80)
    ]
    assert 0 < shift[1] < shift[0] / 3.5  # proportional to 1 / chi


def test_one_phase_is_told_and_a_slight_one_shown():
    assert coexistence.coexistence(CopyModel(L=6), 10) is None
    assert coexistence.coexistence(CopyModel(L=8), 10).barrier.value < 1


def test_density_of_one_row_is_that_of_the_nodes():
    nodes = rows.sample(CopyModel(L=5), 10, seed=0)
    assert np.exp(nodes.ln_w).sum() == pytest.approx(1)
    flat = nodes.cumulants(0, 0)
    assert flat.mean[0] == pytest.approx(1 / 5, abs=1e-5)  # all scores are alike
    rng = np.random.default_rng(1)
    S = rng.normal(0, math.sqrt(0.3), (200_000, 5))
    A = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
    q = (A**2).sum(axis=1)
    assert abs(flat.mean[1] - q.mean()) < 4 * q.std() / math.sqrt(len(q))
    assert flat.covariance[0, 0] == pytest.approx(A[:, 0].var(), rel=0.02)


def test_convolution_conserves_weight_and_mean():
    nodes = rows.sample(STANDARD, 10, seed=0)
    density = nodes.convolved(0.0, 0.0)
    p = np.exp(density.ln_p) * density.area
    assert p.sum() == pytest.approx(1, abs=1e-8)
    assert (p.sum(axis=1) @ density.m) == pytest.approx(1 / 16, abs=1e-6)
    variance = (p.sum(axis=1) @ density.m**2) - 1 / 256
    assert variance == pytest.approx(nodes.cumulants(0, 0).covariance[0, 0] / 16, rel=2e-3)


@pytest.mark.parametrize(
    ("model", "chi", "text"),
    [
        (CopyModel(attention="linear"), 10, "linear_exact"),
        (STANDARD, math.inf, "chi"),
        (STANDARD, -1, "chi"),
        (CopyModel(L=3), 10, "at least 4"),
    ],
)
def test_what_has_no_such_theory_is_refused(model, chi, text):
    with pytest.raises(ModelError, match=text):
        coexistence.coexistence(model, chi)


def test_ends_of_the_path_are_deep():
    nodes = rows.sample(STANDARD, 10, seed=0)
    ln_p = [tilt.ln_p for tilt in finite_chi.path(nodes, STANDARD, 338, 10)]
    assert max(ln_p) - ln_p[0] > 30
    assert max(ln_p) - ln_p[-1] > 30
