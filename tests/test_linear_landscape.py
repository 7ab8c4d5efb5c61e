"""The landscape of linear attention against closed forms and dense scans with V x V matrices."""

import math

import numpy as np
import pytest
from hypothesis import given
from landscapes import LINEAR, UNEQUAL, independent_linear, models, quick, scale

from mcattn import action, linear_landscape, theory
from mcattn.model import CopyModel

INF = math.inf


def test_symmetric_sums_are_those_of_a_pattern():
    alpha, beta, L = 0.7, -0.3, 5
    A = np.full((L, L), alpha / L)
    A[np.arange(L), np.arange(L) - 1] += beta
    X = theory.symmetric_sums(alpha, beta, L)
    np.testing.assert_allclose(X, action.order_parameters(A, "linear"), atol=1e-14)  # rounding
    np.testing.assert_allclose(action.alpha_beta(X, L), (alpha, beta), rtol=1e-13)


def closed_critical_P(model, chi):
    """theory.md, point 5, for uniform tokens."""
    L, V, kappa, g_s, g_w = model.L, model.V, model.kappa, model.g_s, model.g_w

    def largest(A, B):
        return (A + B + math.sqrt((A - B) ** 2 + 4 * A * B / L)) / 2

    first = kappa * math.sqrt(V / (g_w * g_s * largest((V - 1) / (V * L), 1 / V)))
    if chi == INF:
        return first

    def excess(P):
        a = g_w * P**2 * (V - 1) / (kappa**2 * V**2 * L)
        b = g_w * P**2 / (kappa * V) ** 2 - g_w * P / (chi * kappa)
        return 1 / g_s + g_w * P * (V - 1) / (chi * kappa * L) - largest(a, b)

    low, high = first, 2 * first
    while excess(high) > 0:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


@pytest.mark.parametrize("chi", [INF, 1000.0, 50.0])
@pytest.mark.parametrize("L", [2, 8, 32, 500])
@pytest.mark.parametrize("V", [2, 4, 30])
def test_critical_P_of_uniform_tokens(L, V, chi):
    model = CopyModel(L, V, "linear", kappa=0.7, g_s=1.3, g_w=0.2)
    # Both are roots to 1e-13; the matrix elements lose a few digits more.
    assert theory.critical_P(model, chi) == pytest.approx(closed_critical_P(model, chi), rel=1e-10)


def test_critical_P_of_the_reference():
    assert theory.critical_P(LINEAR) == pytest.approx(12.6288, abs=5e-5)
    assert theory.critical_P(LINEAR, 100.0) == pytest.approx(12.7163, abs=5e-5)


@pytest.mark.parametrize("chi", [INF, 30.0])
def test_critical_P_of_unequal_tokens(chi):
    """The curvature of an independent F at A = 0, softest direction, ends at critical_P."""
    model = CopyModel(8, 4, "linear", g_s=1, g_w=0.1, tokens=UNEQUAL)
    angle, h = np.linspace(0, math.pi, 2001), 1e-3
    alpha, beta = h * np.cos(angle), h * np.sin(angle)

    def softest(P):
        rise = independent_linear(model, P, chi, alpha, beta) - independent_linear(
            model, P, chi, np.zeros(1), np.zeros(1)
        )
        return rise.min() / h**2

    P_c = theory.critical_P(model, chi)
    # Quartic terms are 1e-6 of the curvature; a thousandth of P_c moves it by 2e-3.
    assert softest(0.999 * P_c) > 1e-4
    assert softest(1.001 * P_c) < -1e-4


def test_linear_onset_is_continuous():
    P_c = theory.critical_P(LINEAR)
    (zero,) = theory.minima(LINEAR, 0.999 * P_c)
    assert zero.X.tolist() == [0, 0, 0, 0, 0]
    assert zero.loss == pytest.approx(1)
    excess = np.array([1e-5, 1e-4, 1e-3])
    tau2 = theory.branches(LINEAR, INF, P_c * (1 + excess)).lowest[:, 2] ** 2
    # tau grows like sqrt(P - P_c): tau^2/(P - P_c) is constant up to O(P/P_c - 1).
    np.testing.assert_allclose(tau2 / excess, tau2[0] / excess[0], rtol=2e-3)


def test_second_linear_minimum_has_negative_beta():
    assert [m.beta > 0 for m in theory.minima(LINEAR, 50.0)] == [True]
    best, other = theory.minima(LINEAR, 100.0)
    assert best.beta > 0 > other.beta
    assert other.loss > best.loss
    assert math.isnan(best.gap)


@quick
@given(models("linear"), scale(2, 1e4), scale(0.5, 1e3))
def test_linear_minima_are_minima(model, chi, P):
    found = theory.minima(model, P, chi)
    around = np.linspace(0, 2 * math.pi, 16, endpoint=False)
    size = math.sqrt(model.g_s * P / model.kappa)
    for one in found:
        assert one.X[2] >= 0
        F = independent_linear(model, P, chi, np.array(one.alpha), np.array(one.beta))
        assert one.F_per_chi == pytest.approx(float(F), rel=1e-11)  # rounding of P/2
        near = independent_linear(
            model,
            P,
            chi,
            one.alpha + 1e-3 * size * np.cos(around),
            one.beta + 1e-3 * size * np.sin(around) / math.sqrt(model.L),
        )
        assert np.all(near > F - 1e-12 * abs(F))
    alpha, beta = np.meshgrid(np.linspace(-size, size, 81), np.linspace(-size, size, 80))
    beta = beta / math.sqrt(model.L)
    grid = independent_linear(model, P, chi, alpha, beta)
    assert found[0].F_per_chi <= grid.min() * (1 + 1e-12)
    X = theory.branches(model, chi, [P]).lowest[0]
    assert action.per_chi(X, model, P, chi) <= found[0].F_per_chi * (1 + 1e-12)


def test_linear_minimum_is_continuous_in_P():
    P = np.linspace(5, 200, 400)
    X = theory.branches(LINEAR, INF, P).lowest
    F = action.per_chi(X, LINEAR, P, INF)
    assert np.all(np.diff(F, 2) < 1e-9)  # least of functions concave in P: concave, so continuous
    assert np.all(np.diff(X[:, 0]) >= 0)  # copying grows without a second transition
    assert np.abs(np.diff(X[:, 0])).max() < 0.02


def test_steps_descend_to_the_origin_below_the_onset():
    v = linear_landscape.descend(np.array([[0.3, 0.2]]), LINEAR, 10.0, INF)
    assert np.abs(v).max() < 1e-12
