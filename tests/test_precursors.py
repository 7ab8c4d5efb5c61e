"""Fluctuations before a transition, on series whose variance and autocorrelation are known."""

import numpy as np
import pytest
import synthetic_runs as synthetic

from mcattn.analysis import precursors
from mcattn.errors import RunFileError

P = np.array([160.0, 240.0, 310.0, 330.0])
SIGMA = np.array([0.004, 0.005, 0.008, 0.009])
MEMORY = np.array([0.2, 0.4, 0.7, 0.7])
EVERY = 10  # sweeps from row to row in synthetic runs


def approach(seed, rows=800, replicas=16, level=synthetic.LOW_M, memory=MEMORY):
    rng = np.random.default_rng(seed)
    count = len(P)
    table = synthetic.states(P, np.zeros(count, int), np.zeros(count, int), np.full(count, rows))
    state = np.tile(np.repeat(np.arange(count), replicas), (rows, 1))
    series = [
        level + sigma * synthetic.ar1(a, rows, replicas, rng)
        for sigma, a in zip(SIGMA, memory, strict=True)
    ]
    X = synthetic.softmax_sums(np.concatenate(series, axis=1))
    return synthetic.run(X, state, table, protocol="fixed")


def pulls(results, value, truth):
    estimates = [[value(state) for state in result.states] for result in results]
    return np.array([[(e.value - t) / e.error for e, t in zip(row, truth, strict=True)]
                     for row in estimates])  # fmt: skip


@pytest.fixture(scope="module")
def results():
    return [precursors.analyze(approach(seed)) for seed in range(20)]


def test_variance_and_time_of_known_series(results):
    time = EVERY * (1 + MEMORY) / (1 - MEMORY)
    for value, truth in ((lambda s: s.variance, SIGMA**2), (lambda s: s.time, time)):
        z = pulls(results, value, truth)
        # 80 pulls: their mean is known to 0.11; a windowed time is low by up to half an error.
        assert abs(z.mean()) < 0.6
        assert 0.7 < z.std() < 1.4


def test_growth_is_relative_to_the_lowest_P(results):
    for result in results:
        assert result.states[0].growth.value == 1
    z = [(r.states[2].growth.value - 4) / r.states[2].growth.error for r in results]
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z))


def test_a_wrong_variance_is_noticed(results):
    z = pulls(results, lambda s: s.variance, (1.1 * SIGMA) ** 2)
    assert abs(z.mean()) > 4


def test_distances_and_the_statement(results):
    result = results[0]
    assert [s.distance for s in result.states] == pytest.approx(P / result.transition)
    assert len(result.before) == sum(result.transition > P)
    assert "from 0." in result.statement
    assert "var(m)" in result.statement
    assert result.to_json()["statement"] == result.statement


def test_replicas_that_went_over_are_left_out():
    run = approach(1)
    last = run.state[0] == len(P) - 1
    X = run.X.copy()
    X[400:, last] = synthetic.softmax_sums(np.full((400, last.sum()), synthetic.HIGH_M))
    result = precursors.analyze(synthetic.run(X, run.state, run.states, protocol="fixed"))
    assert len(result.states) == len(P) - 1
    assert any("left out" in warning and "330" in warning for warning in result.warnings)


def test_bad_runs_are_refused():
    with pytest.raises(RunFileError, match="expected a fixed run"):
        precursors.analyze(synthetic.known_run()[0])
    above = approach(1)
    above.states["P"] += 300
    with pytest.raises(RunFileError, match="fewer than two states below"):
        precursors.analyze(above)
    biased = approach(1)
    biased.states["bias_strength"][0] = 1
    with pytest.raises(RunFileError, match="without bias"):
        precursors.analyze(biased)
