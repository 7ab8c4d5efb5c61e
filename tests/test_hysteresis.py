"""Loops and fixed averages from runs whose switching points, areas and means are known."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from synthetic_runs import (
    GRID,
    HIGH_M,
    LINEAR,
    LOW_M,
    SOFTMAX,
    ar1,
    first_rows,
    fixed_run,
    known_run,
    linear_run,
    one_way,
    path,
    run,
    softmax_sums,
    states,
    switching_run,
)

from mcattn import action, theory
from mcattn.analysis import fixed, hysteresis, series
from mcattn.analysis.loop import DOWN, UP
from mcattn.errors import RunFileError, TooFewSamplesError


def test_switching_points_are_recovered():
    data, P_up, P_down = known_run()
    result = hysteresis.analyze(data)
    loop = result.slowest
    # Replicas switch at the first point of the grid at or beyond their own value.
    np.testing.assert_allclose(loop.P_up.at, np.ceil(P_up[0] / 10) * 10)
    np.testing.assert_allclose(loop.P_down.at, np.floor(P_down[0] / 10) * 10)
    for switching, truth, width in ((loop.P_up, 420, 15), (loop.P_down, 290, 8)):
        assert switching.note is None
        assert switching.switched == switching.replicas == 32
        assert abs(switching.value - truth) < 3 * switching.error
        assert switching.error == pytest.approx(
            math.hypot(1.016 * switching.spread / math.sqrt(32), 10 / math.sqrt(12)), rel=1e-3
        )
        assert switching.spread == pytest.approx(math.hypot(width, 10 / math.sqrt(12)), rel=0.4)
    assert result.warnings == ()


def test_area_is_that_of_every_replica():
    data, P_up, P_down = known_run(rows=40)
    area = hysteresis.analyze(data).slowest.area
    # The trapezoid rule cuts half a step off each step-like branch.
    width = (np.ceil(P_up[0] / 10) - np.floor(P_down[0] / 10) - 1) * 10
    truth = (HIGH_M - LOW_M) * width.mean()
    assert area.value == pytest.approx(truth, abs=0.2)
    assert area.error == pytest.approx((HIGH_M - LOW_M) * width.std(ddof=1) / 32**0.5, rel=0.05)
    assert area.flag is None


def test_error_covers_the_mean_switching_point(monkeypatch):
    """200 ensembles: the truth of the switch on the grid is what the scatter must cover."""
    monkeypatch.setattr(theory, "report", functools.cache(theory.report))  # one model, one chi
    hits, wrong = 0, 0
    grid = np.arange(320.0, 541.0, 20.0)
    table = one_way(grid, UP)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        data = switching_run(rng.normal(420, 30, (1, 16)), np.zeros((1, 16)), table, 1, rng)
        switching = hysteresis.analyze(data).slowest.P_up
        scatter = math.sqrt(switching.error**2 - 20**2 / 12)
        hits += abs(switching.value - 430) <= scatter
        wrong += abs(switching.value - 430) <= scatter / 3
    low, high = stats.binom.interval(0.9999, 200, 0.6827)
    assert low <= hits <= high
    assert wrong < low


def test_branch_means():
    data, _, _ = known_run(rows=30)
    points = hysteresis.analyze(data).slowest.branch(UP)
    assert [point.P for point in points] == list(GRID)
    low = [point for point in points if point.P < 370]
    z = [(point.m.value - LOW_M) / point.m.error for point in low]
    assert np.abs(z).max() < 4
    assert np.std(z) == pytest.approx(1, abs=0.6)
    assert all(point.copy_fraction == 0 and point.acceptance == 0.45 for point in low)
    X = softmax_sums(np.array(LOW_M))
    assert low[0].loss.value == pytest.approx(action.test_loss(X, SOFTMAX, 200), abs=1e-3)
    assert low[3].tau == pytest.approx(3, abs=1.5)
    top = points[-1]
    assert top.copy_fraction == 1
    np.testing.assert_allclose(top.alpha.value + top.beta.value, 1)


def test_loss_is_that_of_the_own_number_of_sequences():
    """The control: the loss at another P is off by many errors."""
    data, _, _ = known_run(rows=30)
    point = hysteresis.analyze(data).slowest.branch(UP)[0]
    other = action.test_loss(softmax_sums(np.array(LOW_M)), SOFTMAX, 500)
    assert abs(point.loss.value - other) > 20 * point.loss.error


def test_no_transition_is_said():
    rng = np.random.default_rng(3)
    never = switching_run(np.full((1, 8), 1e9), np.full((1, 8), 290.0), path(GRID), 4, rng)
    loop = hysteresis.analyze(never).slowest
    assert loop.P_up.note == "no transition seen on this branch"
    assert math.isnan(loop.P_up.value)
    assert loop.P_up.switched == 0
    # On the way down they are in the copy phase from the start of the branch on.
    assert loop.P_down.value == 290


def test_censored_switching_is_said():
    rng = np.random.default_rng(3)
    P_up = np.array([[400.0] * 6 + [1e9] * 2])
    data = switching_run(P_up, np.full((1, 8), 1e9), path(GRID), 4, rng)
    result = hysteresis.analyze(data)
    loop = result.slowest
    assert loop.P_up.note == "only 6 of 8 replicas switched, and the mean is theirs"
    assert loop.P_up.value == 400
    assert loop.P_up.error == pytest.approx(10 / math.sqrt(12))
    assert any("only 6 of 8" in text for text in result.warnings)
    assert sum(map(math.isnan, loop.P_up.at)) == 2


def test_noise_around_one_threshold_is_no_switch():
    rng = np.random.default_rng(5)
    table = path(GRID)
    state = np.repeat(np.arange(len(GRID) * 2), 20)
    m = 0.2 + 0.03 * ar1(0.2, len(state), 8, rng)
    data = run(softmax_sums(m), np.tile(state[:, None], 8), table)
    assert hysteresis.analyze(data).slowest.P_up.switched == 0
    single = hysteresis.analyze(replace(data, switch=(0.2, 0.2))).slowest
    assert single.P_up.switched == 8
    assert single.recrossed == 8


def test_rates():
    data, P_up, _ = known_run(sweeps=(200, 3200, 800))
    result = hysteresis.analyze(data)
    assert [loop.sweeps_per_point for loop in result.loops] == [250, 4000, 1000]
    assert result.slowest.index == 1
    for loop in result.loops:
        np.testing.assert_allclose(loop.P_up.at, np.ceil(P_up[loop.index] / 10) * 10)
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert content["P_up"]["value"] == result.loops[1].P_up.value
    assert content["area"]["value"] == result.loops[1].area.value
    assert [loop["sweeps_per_point"] for loop in content["loops"]] == [250, 4000, 1000]
    named = [(branch["loop"], branch["branch"]) for branch in content["branches"]]
    assert named == [(i, name) for i in range(3) for name in ("up", "down")]
    assert len(content["branches"][0]["m_error"]) == len(GRID)
    assert content["model"]["L"] == 16
    assert content["complete"] is True
    assert content["switch"] == [0.2, 0.4]


@pytest.mark.parametrize("points", [1, 12, 31, 33, 50, 62])
def test_unfinished_run_uses_the_rows_there_are(points):
    whole, _, _ = known_run(rows=6)
    result = hysteresis.analyze(first_rows(whole, 6 * points - 2))
    loop = result.slowest
    assert len(loop.points) == points
    assert loop.points[-1].rows == 4
    assert result.warnings[0].startswith("unfinished")
    if points <= 31:
        assert loop.area is None
        assert loop.P_down.note == "the down branch has not begun"
    elif points < 62:
        assert loop.area is None or loop.area.flag == hysteresis.PARTIAL
    full = hysteresis.analyze(whole).slowest
    assert loop.points[:-1] == full.points[: points - 1]
    json.dumps(result.to_json(), allow_nan=False)


def test_one_way_path_has_no_area():
    rng = np.random.default_rng(1)
    table = one_way(GRID, UP)
    loop = hysteresis.analyze(
        switching_run(np.full((1, 8), 350.0), np.full((1, 8), 1.0), table, 4, rng)
    ).slowest
    assert loop.area is None
    assert loop.P_down.note == "the path has no down branch"
    assert loop.P_up.value == 350


def test_start_in_the_other_phase_is_no_switch():
    """Down path from the copy phase, thresholds crossed once; then the same read as an up path."""
    rng = np.random.default_rng(1)
    down = one_way(GRID[::-1], DOWN)
    data = switching_run(np.full((1, 8), 1.0), np.full((1, 8), 300.0), down, 4, rng)
    assert hysteresis.analyze(data).slowest.P_down.value == 300
    up = replace(data, states=down | {"branch": -down["branch"]})
    note = hysteresis.analyze(up).slowest.P_up.note
    assert note.startswith("no transition seen on this branch; 8 began this branch")


@pytest.mark.parametrize("replicas", [1, 3])
def test_few_replicas_are_flagged(replicas):
    data, _, _ = known_run(replicas=replicas)
    result = hysteresis.analyze(data)
    assert result.slowest.area.flag == series.FEW
    assert any("fewer than 8" in text for text in result.warnings)
    assert math.isnan(result.slowest.P_up.error) == (replicas == 1)


def test_linear_means_with_random_signs():
    data = linear_run(np.random.default_rng(2))
    result = hysteresis.analyze(data)
    for point in result.slowest.points:
        assert abs(point.alpha.value - math.sqrt(point.P - 11)) < 4 * point.alpha.error
        assert abs(point.beta.value - 0.02 * point.P) < 4 * point.beta.error
        assert math.isnan(point.copy_fraction)
    area = result.slowest.area
    assert abs(area.value) < 4 * area.error
    assert result.slowest.P_up.note == hysteresis.NO_RULE
    assert result.warnings == ()


def test_signs_must_be_fixed():
    """The control: without the sign the averages are near zero."""
    data = linear_run(np.random.default_rng(2))
    alpha, _ = action.alpha_beta(data.X, LINEAR.L)
    raw = series.mean(alpha[data.state[:, 0] == 7])
    assert abs(raw.value - math.sqrt(40 - 11)) > 20 * raw.error


def test_wrong_runs_are_refused():
    data, _, _ = known_run(rows=2)
    with pytest.raises(RunFileError, match="is a fixed run; expected a hysteresis run"):
        hysteresis.analyze(replace(data, protocol="fixed"))
    mixed = data.state.copy()
    mixed[5, 3] += 1
    with pytest.raises(RunFileError, match="same state"):
        hysteresis.analyze(replace(data, state=mixed))
    with pytest.raises(TooFewSamplesError, match="no rows yet"):
        hysteresis.analyze(first_rows(data, 0))


def test_copies_and_stuck_replicas_are_reported():
    data, _, _ = known_run(rows=8)
    X = data.X.copy()
    X[:, 3] = X[:, 9]
    texts = hysteresis.analyze(replace(data, X=X)).warnings
    assert texts == ("only 31 of 32 replicas differ: the others are copies",)
    X = data.X.copy()
    X[40:, 3] = X[40, 3]
    texts = hysteresis.analyze(replace(data, X=X)).warnings
    assert any("does not move" in text for text in texts)


@given(seed=st.integers(0, 2**32 - 1), replicas=st.integers(1, 9), rows=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_path(seed, replicas, rows):
    """Wherever P goes: counts add up, every switch lies on a branch of its kind, JSON holds."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    P = 10.0 * rng.integers(20, 50, count)
    table = states(P, rng.integers(-1, 2, count), np.zeros(count, int), np.full(count, 10))
    low, high = rng.uniform(200, 500, (2, 1, replicas))
    result = hysteresis.analyze(switching_run(high, low, table, rows, rng))
    loop = result.slowest
    for branch, switching in ((UP, loop.P_up), (DOWN, loop.P_down)):
        seen = np.array(switching.at)[np.isfinite(switching.at)]
        assert switching.switched == seen.size
        assert np.isin(seen, P[table["branch"] == branch]).all()
        assert (switching.note is None) == (seen.size == replicas)
    json.dumps(result.to_json(), allow_nan=False)


def test_fixed_averages():
    result = fixed.analyze(fixed_run(np.random.default_rng(1)))
    for state, truth, in_copy in zip(result.states, (LOW_M, HIGH_M), (0, 1), strict=True):
        assert abs(state.m.value - truth) < 4 * state.m.error
        assert state.m.tau == pytest.approx(4, abs=1)
        assert state.m.flag is None
        assert (state.replicas, state.rows) == (10, 300)
        assert (state.copy_fraction, state.acceptance) == (in_copy, 0.45)
        assert state.tau == state.r == series.exactly(1.0)
    assert result.warnings == ()
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert content["states"][1]["m"]["value"] == result.states[1].m.value


def test_fixed_run_with_a_moving_replica_is_refused():
    data = fixed_run(np.random.default_rng(1), rows=20)
    data.state[7, 0] = 1
    with pytest.raises(RunFileError, match="changed its state"):
        fixed.analyze(data)


def test_a_ramp_of_chi_has_its_switching_points_in_chi():
    data = known_run()[0]
    table = data.states | {"chi": data.states["P"], "P": np.full_like(data.states["P"], 350.0)}
    ramp = hysteresis.analyze(replace(data, states=table))
    loop, same = ramp.slowest, hysteresis.analyze(data).slowest
    assert ramp.control == "chi"
    assert loop.P_up.at == same.P_up.at
    assert (loop.P_down.value, loop.P_down.error) == (same.P_down.value, same.P_down.error)
    assert loop.area == same.area
    assert [point.chi for point in loop.points] == [point.P for point in same.points]
    assert ramp.to_json()["branches"][0]["chi"] == [point.P for point in same.branch(UP)]
    assert ramp.theory == {}
