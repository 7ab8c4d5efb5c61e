"""Dates of the stages of learning, on runs whose truth is known."""

import numpy as np
import pytest
import synthetic_runs as synthetic

from mcattn.analysis import stages
from mcattn.errors import RunFileError, TooFewSamplesError

GRID = np.concatenate([np.arange(9, 14, 0.5), np.arange(15, 61, 5)])
NOISE = 0.4
ONSET = 11 + NOISE**2 * (1 + np.sqrt(2))  # tau = +-sqrt(P - 11) + noise has its cumulant at 1/3


def linear_run(seed, replicas=24, rows=60, slope=0.1):
    """tau of known cumulant, and beta = slope (P - 20), which meets alpha = tau - beta."""
    rng = np.random.default_rng(seed)
    table = synthetic.path(GRID)
    state = np.repeat(np.arange(len(table["P"])), rows)
    P = table["P"][state][:, None]
    sign = rng.choice([-1.0, 1.0], (1, replicas))
    tau = sign * np.sqrt(np.maximum(P - 11, 0)) + NOISE * synthetic.ar1(
        0.3, len(state), replicas, rng
    )
    beta = np.sign(tau) * slope * np.maximum(P - 20, 0)
    X = synthetic.linear_sums(tau - beta, beta)
    states = np.tile(state[:, None], replicas)
    return synthetic.run(X, states, table, model=synthetic.LINEAR, switch=None)


@pytest.fixture(scope="module")
def dated():
    return [stages.analyze(linear_run(seed)) for seed in range(24)]


def test_dates_of_a_known_run(dated):
    # beta = alpha where 2 slope (P - 20) = sqrt(P - 11): with u = sqrt(P - 11), 0.2 (u^2 - 9) = u.
    u = (1 + np.sqrt(1 + 4 * 0.2 * 1.8)) / 0.4
    truth = (ONSET, 11 + u**2)
    for i, P in enumerate(truth):
        marks = [result.stages[i].P for result in dated]
        z = np.array([(mark.value - P) / mark.error for mark in marks])
        # Interpolation leaves a bias, which has to stay below a tenth of the path's step.
        assert (
            abs(np.mean([mark.value for mark in marks]) - P) < 0.1 * np.diff(GRID)[GRID[1:] > P][0]
        )
        assert 0.6 < z.std(ddof=1) < 1.5  # 24 pulls: 1 +- 0.15


def test_stages_that_the_path_does_not_reach_are_said_so():
    result = stages.analyze(linear_run(1, slope=0.0))
    assert result.stages[1].P.flag == "not reached on this path"
    assert np.isfinite(result.stages[0].P.value)
    assert result.to_json()["stages"][1]["P"]["value"] is None


def test_the_jump_of_softmax_attention():
    run, P_up, _ = synthetic.known_run()
    result = stages.analyze(run)
    (copying,) = result.stages
    assert abs(copying.P.value - P_up.mean()) < 10  # the path's step
    m = result.jump["m"]
    assert m[0].value == pytest.approx(synthetic.LOW_M, rel=0.05)
    assert m[1].value == pytest.approx(synthetic.HIGH_M, rel=0.05)


def test_root_takes_the_last_rise_and_follows_curvature():
    P = np.linspace(0, 3, 13)
    assert stages.root(P, P**2 - 2) == pytest.approx(np.sqrt(2), abs=2e-3)
    assert np.isnan(stages.root(P, -1 - P))
    assert 2 < stages.root(np.arange(4.0), np.array([-1.0, 1.0, -1.0, 1.0])) < 3


def test_bad_runs_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(RunFileError, match="expected a hysteresis run"):
        stages.analyze(synthetic.fixed_run(rng))
    down = synthetic.one_way(np.array([50.0, 40.0, 30.0, 20.0]), -1)
    state = np.tile(np.repeat(np.arange(4), 5)[:, None], 8)
    X = synthetic.softmax_sums(0.6 + 0.01 * rng.random(state.shape))
    with pytest.raises(RunFileError, match="never rises"):
        stages.analyze(synthetic.run(X, state, down))
    with pytest.raises(TooFewSamplesError, match="at least 3"):
        stages.analyze(synthetic.first_rows(synthetic.known_run()[0], 20))
