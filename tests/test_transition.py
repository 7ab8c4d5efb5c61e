"""Transition points, barrier and jump, read off synthetic runs whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from synthetic_runs import SOFTMAX
from toys import GRID, Toy

from mcattn import theory
from mcattn.analysis import mbar, peak, profile, resample, transition
from mcattn.analysis.transition import VALUES

TOY = Toy(chi=3.0, P=350.0)


def deviations(found, answers):
    return [(getattr(found, k).value - answers[k]) / getattr(found, k).error for k in VALUES]


@pytest.fixture(scope="module")
def big():
    """A run long enough to resolve small faults, and its pool."""
    run = TOY.run(1, rows=600)
    return run, mbar.pool(run)


def test_the_toy_is_the_landscape():
    answers = TOY.answers()
    jump = theory.boundary(SOFTMAX, TOY.chi)
    assert answers["P_equal_height"] == pytest.approx(jump.P_star, rel=1e-6)
    assert answers["barrier"] == pytest.approx(TOY.chi * jump.barrier, rel=1e-4)


def test_the_transition_of_a_two_phase_toy(big):
    """Six numbers, |z| < 3.5."""
    found = transition.estimate(big[1])
    assert found.phases == 2
    assert np.abs(deviations(found, TOY.answers())).max() < 3.5
    assert found.P_equal_weight.error < 0.002 * found.P_equal_weight.value
    assert found.P_equal_weight.flag is None
    assert "equal weight at P = 352." in found.verdict
    assert np.all(np.diff(found.weight) > 0)
    at = np.interp(found.P_equal_weight.value, found.P, found.weight)
    assert at == pytest.approx(0.5, abs=0.01)
    routes = transition.routes(found, SOFTMAX)
    assert [route.key for route in routes] == ["P_equal_weight", "P_equal_height", "P_landscape"]


def fluctuations(P):
    """Variance of m and the ratio B at P, exactly."""
    p = np.exp(TOY.ln_p(P) - TOY.ln_p(P).max())
    d = GRID - np.average(GRID, weights=p)
    two, four = (np.average(d**k, weights=p) for k in (2, 4))
    return two, 1 - four / (3 * two**2)


def test_the_peak_of_the_fluctuations(big):
    """Where they are largest, how large, and B there: |z| < 4. Control: B at a P 1 % lower."""
    found = transition.estimate(big[1]).peak
    ends = {"bounds": (345.0, 360.0), "method": "bounded", "options": {"xatol": 1e-6}}
    P = minimize_scalar(lambda x: -fluctuations(x)[0], **ends).x
    var, ratio = fluctuations(P)
    for value, truth in ((found.P, P), (found.var, var), (found.binder, ratio)):
        assert abs(value.value - truth) < 4 * value.error
    assert found.P.error < 0.002 * P
    assert abs(found.binder.value - fluctuations(0.99 * P)[1]) > 10 * found.binder.error


def test_draws_of_a_sharp_transition_find_their_own_peaks(big):
    """Asked for the peak from a point three widths away, they give the same numbers and errors."""
    whole = transition.estimate(big[1]).peak
    draws = resample.draw(big[1], peak.influence(big[1], TOY.chi, whole.P.value))
    P = whole.P.value + 3 * peak._step(big[1], TOY.chi, whole.P.value)
    for near in (whole.P.value, P):
        found = peak.estimate(big[1], draws, TOY.chi, near)
        assert found.P.value == pytest.approx(whole.P.value, abs=0.3 * whole.P.error)
        assert found.var.value == pytest.approx(whole.var.value, abs=0.3 * whole.var.error)
        assert found.binder.error < 2 * whole.binder.error


def test_a_wrong_coupling_of_the_samples_is_seen(big):
    """Control: P of the windows taken to be 1 % larger moves the transition by many errors."""
    states = big[0].states | {"P": 1.01 * big[0].states["P"]}
    found = transition.estimate(mbar.pool(replace(big[0], states=states)))
    assert abs(deviations(found, TOY.answers())[0]) > 6


def test_a_wrong_bias_is_seen(big):
    """Control: windows taken to be 10 % weaker."""
    states = big[0].states | {"bias_strength": 0.9 * big[0].states["bias_strength"]}
    found = transition.estimate(mbar.pool(replace(big[0], states=states)))
    assert found.phases != 2 or np.abs(deviations(found, TOY.answers())).max() > 5


def test_the_profile_is_the_landscape(big):
    """Phi of every bin with more than a few samples against the exact one: |z| < 4.5 in all."""
    pool = big[1]
    draws = resample.draw(pool, resample.of_ends(pool))
    found = profile.at(pool, draws, 340.0, 3.0)
    into = profile.bins(pool.X[:, 0])
    p = np.exp(TOY.ln_p(340.0) - TOY.ln_p(340.0).max())
    cumulative = np.concatenate([[0], np.cumsum(p)]) / p.sum()
    edges = np.concatenate([[0], np.interp(into.edges[1:-1], GRID, cumulative[1:]), [1]])
    wide = np.diff(into.edges)
    exact = -np.log(np.diff(edges) / wide)
    inner = slice(1, -1)
    z = (found.phi - exact)[inner] / found.error[inner]
    assert np.abs(z).max() < 4.5
    assert np.sqrt(np.mean(z**2)) < 1.6


@pytest.mark.parametrize("count", [50, 400])
def test_the_number_of_bins_does_not_matter(big, monkeypatch, count):
    found = transition.estimate(big[1])
    bins = profile.bins
    monkeypatch.setattr(profile, "bins", lambda m, _=0: bins(m, count))
    other = transition.estimate(big[1])
    for name in VALUES:
        one, two = getattr(found, name), getattr(other, name)
        assert two.value == pytest.approx(one.value, abs=one.error)


def test_the_same_pool_gives_the_same_numbers(big):
    one, two = (transition.estimate(big[1]).to_json() for _ in range(2))
    assert one == two


@pytest.mark.long
def test_the_intervals_of_the_transition_cover_the_truth():
    """240 runs: each number's 68 % interval covers in 60 to 76 % of them (2.7 deviations)."""
    answers, z = TOY.answers(), []
    for seed in range(240):
        found = transition.estimate(mbar.pool(TOY.run(seed)))
        z.append(deviations(found, answers))
    covered = (np.abs(z) < 1).mean(axis=0)
    assert ((covered > 0.6) & (covered < 0.76)).all(), dict(zip(VALUES, covered, strict=True))


# ---------------------------------------------------------------- no transition


def test_one_phase_is_told():
    """The toy at chi = 0.5, where the landscape has one minimum at every P."""
    toy = Toy(chi=0.5, P=550.0)
    assert theory.boundary(SOFTMAX, toy.chi) is None
    found = transition.estimate(mbar.pool(toy.run(1)))
    assert found.phases == 1
    assert found.verdict.startswith("One phase at chi = 0.5: p(m) has a single maximum at every P")
    assert [getattr(found, name) for name in VALUES] == [None] * 6
    assert transition.routes(found, SOFTMAX) == ()


def test_a_transition_out_of_reach_is_told():
    """Windows in the copy phase alone, far above the transition."""
    toy = Toy(chi=3.0, P=700.0)
    found = transition.estimate(mbar.pool(toy.run(1)), chi=30.0)
    assert found.phases == 0
    assert "beyond the reach of the samples" in found.verdict


def test_few_rows_are_flagged():
    found = transition.estimate(mbar.pool(TOY.run(1, rows=25, a=0.9)))
    assert any(text.startswith("too few samples: the blocks") for text in found.warnings)
    if found.P_equal_weight is not None:
        assert found.P_equal_weight.flag == "too short"
