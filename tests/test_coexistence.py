"""Finite-chi theory of softmax attention against quadrature, Monte Carlo, and its own limits."""

import math

import exact
import numpy as np
import pytest

import mcattn
from mcattn import action, coexistence, finite_chi, rows, theory
from mcattn.analysis import series
from mcattn.errors import ModelError
from mcattn.model import CopyModel

STANDARD = CopyModel()
P_HERE = 337.58  # of equal weights at chi = 10, where the standard lines are made
SHORT = {name: case for name, *case in exact.small_cases() if name.startswith("softmax")}
QUICK = ("softmax2-mixed", "softmax2-tokens", "softmax3-mixed", "softmax3-tokens")


def short_errors(name, chi_factor=1.0, g_w_factor=1.0):
    """Differences of ln Z, <m>, <q> (in standard deviations of m) and var m (relative)."""
    model, P, chi = SHORT[name]
    known = exact.averages(model, P, chi)
    wrong = CopyModel(**model.to_dict() | {"g_w": g_w_factor * model.g_w})
    found = coexistence.lines(wrong, chi_factor * chi, P).curve(P)
    # The quadrature has no constants dropped, this theory the prior normalised.
    ln_z = known["ln_z"] - model.L**2 / 2 * math.log(2 * math.pi * model.g_s / chi)
    means, width = found.means(), math.sqrt(known["var_m"])
    return (
        found.ln_weight() - ln_z,
        (means["m"] - known["m"]) / width,
        (means["q"] - known["q"]) / width,
        means["var_m"] / known["var_m"] - 1,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in SHORT
        if name != "softmax2-copy"  # q has two likely values at the same m: refused
    ],
)
def test_two_and_three_rows_equal_quadrature(name):
    # Two rows have a density with edges; three are smooth enough to be 30 times better.
    limit = 2e-3 if "2" in name else 1e-4
    assert np.abs(short_errors(name)).max() < limit


def test_wrong_models_miss_the_quadrature():
    assert abs(short_errors("softmax3-mixed", g_w_factor=1.01)[0]) > 3e-3
    assert abs(short_errors("softmax3-mixed", chi_factor=1.01)[0]) > 3e-3


@pytest.fixture(scope="module")
def standard():
    return coexistence.lines(STANDARD, 10, P_HERE)


# The copy phase is not metastable at 320: what is compared is a phase, not both.
@pytest.mark.parametrize(
    ("P", "start", "ends"), [(320, "uniform", (0, 0.3)), (370, "copy", (0.3, 1))]
)
def test_both_phases_equal_monte_carlo(P, start, ends, standard):
    X, _ = mcattn.sample(
        STANDARD, P=P, chi=10, replicas=32, sweeps=3000, thermalize=500, start=start, seed=3
    )
    loss = series.mean(action.test_loss(X, STANDARD, P))
    sampled = {"m": series.mean(X[..., 0]), "q": series.mean(X[..., 1]), "loss": loss}
    sampled["var_m"] = series.mean((X[..., 0] - X[..., 0].mean()) ** 2)
    found = standard.curve(P).between(*ends).means()
    wrong = coexistence.lines(CopyModel(g_w=0.031), 10, P_HERE).curve(P).between(*ends).means()

    def missed(means):
        return [n for n, v in sampled.items() if abs(v.value - means[n]) > 4 * v.error]

    assert missed(found) == []
    assert missed(wrong)


def test_runs_of_the_standard_case_are_met(standard):
    # Means of long runs at fixed P that had not seen this theory.
    for P, ends, m, m_error, q, q_error in (
        (300, (0, 0.3), 0.072677, 18e-6, None, None),
        (310, (0, 0.3), 0.073713, 14e-6, 0.081463, 2e-6),
        (400, (0.3, 1), 0.72474, 2e-5, 0.53570, 3e-5),
    ):
        found = standard.curve(P).between(*ends).means()
        assert abs(found["m"] - m) < 3 * m_error
        assert q is None or abs(found["q"] - q) < 3 * q_error


def test_the_profile_is_a_density():
    found = coexistence.curve(STANDARD, 10, 330)
    assert np.trapezoid(np.exp(found.ln_p), found.m) == pytest.approx(1)
    nothing = coexistence.lines(STANDARD, 10, 1e-6).curve(1e-6)
    assert nothing.ln_weight() == pytest.approx(0, abs=3e-4)
    assert nothing.means()["m"] == pytest.approx(1 / 16, abs=1e-6)


@pytest.fixture(scope="module")
def transition():
    return coexistence.coexistence(STANDARD, 10)


def test_the_standard_transition(transition, standard):
    found = transition
    assert found.P_equal_weight.value == pytest.approx(337.578, abs=0.02)
    assert found.P_equal_weight.error < 0.02
    assert found.barrier.value == pytest.approx(18.533, abs=0.01)
    assert found.dm.value == pytest.approx(found.m_plus.value - found.m_minus.value)
    # The fluctuations lift the transition above the landscape's, which leaves them out.
    assert found.P_equal_weight.value > theory.boundary(STANDARD, 10).P_star + 15
    curve = standard.curve(found.P_equal_weight.value)
    low, high = (curve.between(*ends).ln_weight() for ends in ((0, 0.3), (0.3, 1)))
    assert low == pytest.approx(high, abs=2e-3)
    level = coexistence.phases(standard.curve(found.P_equal_height.value))
    assert level.minus[1] == pytest.approx(level.plus[1], abs=2e-3)
    assert level.minus[0] == pytest.approx(found.peak_minus.value, abs=1e-4)


def test_the_stated_errors_hold(transition):
    finer = rows.sample(STANDARD, 10, 7, rows.GATHER / 2, 4 * rows.SAMPLES)
    path = finite_chi.path(finer, STANDARD, P_HERE, 10)
    better = coexistence.numbers(finite_chi.lines(finer, STANDARD, 10, path), P_HERE)
    for name, value in better.items():
        given = getattr(transition, name)
        assert abs(given.value - value) < 2 * given.error


def test_the_saddle_point_is_covered_by_its_error(transition):
    saddle, best = transition.P_saddle, transition.P_equal_weight
    assert abs(saddle.value - best.value) <= saddle.error < 0.02
    # Without its Gaussian correction in q it would not be.
    nodes = rows.sample(STANDARD, 10, 0)
    path = finite_chi.path(nodes, STANDARD, P_HERE, 10)
    smooth = finite_chi.saddle(nodes, STANDARD, 10, path)
    bare = finite_chi.Saddle(**vars(smooth) | {"ln_p": smooth.ln_p - np.log(smooth.precision) / 2})
    wrong = coexistence.numbers(bare, P_HERE)["P_equal_weight"]
    assert abs(wrong - best.value) > 5 * saddle.error


def test_the_landscape_is_the_limit_of_large_chi():
    shift = [
        coexistence.sketch(STANDARD, chi)[0] - theory.boundary(STANDARD, chi).P_star
        for chi in (20, 80)
    ]
    assert shift[1] == pytest.approx(shift[0] / 4, rel=0.05)  # proportional to 1 / chi


@pytest.mark.long
@pytest.mark.parametrize("L", [32, 64])
def test_the_barrier_of_long_sequences_is_below_the_landscapes(L):
    # Single rows turn on one after another there, which equal rows cannot.
    found, equal_rows = (
        coexistence.coexistence(CopyModel(L=L), 10),
        theory.boundary(CopyModel(L=L), 10),
    )
    assert found.barrier.value < 10 * equal_rows.barrier
    assert found.P_equal_weight.value > equal_rows.P_star


def test_one_phase_is_told_and_a_slight_one_shown():
    assert coexistence.coexistence(CopyModel(L=6), 10) is None
    slight = coexistence.coexistence(CopyModel(L=8), 10)
    assert slight.barrier.value == pytest.approx(0.187, abs=0.002)  # kT: no chain can see it


def test_most_prominent_peaks_are_the_phases():
    m = np.linspace(0.05, 0.95, 1801)
    bumps = [h * np.exp(-(((m - c) / 0.05) ** 2)) for h, c in ((9, 0.2), (2, 0.45), (10, 0.8))]
    curve = finite_chi.Curve(m, sum(bumps), m, m)
    found = coexistence.phases(curve)
    assert found.minus == pytest.approx((0.2, 9), abs=1e-3)
    assert found.plus == pytest.approx((0.8, 10), abs=1e-3)
    one = finite_chi.Curve(m, bumps[0], m, m)
    assert coexistence.phases(one) is None


def test_cumulants_of_one_row_are_those_of_random_scores():
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
    h, k, step = 20.0, -5.0, 1e-4
    tilted = nodes.cumulants(h, k)
    slope = (nodes.cumulants(h + step, k).K - nodes.cumulants(h - step, k).K) / (2 * step)
    assert tilted.mean[0] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "chi", "text"),
    [
        (CopyModel(attention="linear"), 10, "linear_exact"),
        (STANDARD, math.inf, "theory.boundary"),
        (STANDARD, -1, "chi"),
        (STANDARD, 1e9, "the landscape is the answer there"),
    ],
)
def test_what_has_no_such_theory_is_refused(model, chi, text):
    with pytest.raises(ModelError, match=text):
        coexistence.coexistence(model, chi)


def test_two_likely_q_at_one_m_are_refused():
    model, P, chi = SHORT["softmax2-copy"]
    with pytest.raises(ModelError, match="no saddle point"):
        coexistence.lines(model, chi, P)


def test_a_P_far_from_the_path_is_refused(standard):
    with pytest.raises(ModelError, match="too far"):
        standard.curve(10 * P_HERE)
