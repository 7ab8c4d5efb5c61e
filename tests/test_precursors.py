"""Fluctuations before a transition, on series whose variance and autocorrelation are known."""

import numpy as np
import pulls
import pytest
import synthetic_runs as synthetic

from mcattn.analysis import precursors, series
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


TRUE = {
    "variance": SIGMA**2,
    "time": EVERY * (1 + MEMORY) / (1 - MEMORY),
    "growth": (SIGMA / SIGMA[0]) ** 2,
    "slowing": (1 + MEMORY) / (1 - MEMORY) / ((1 + MEMORY[0]) / (1 - MEMORY[0])),
}
RELATIVE = ("growth", "slowing")
REPLICAS = 16


def told(results, name):
    """Estimates of a quantity, one row for each run, and their truths; relative ones but 1."""
    first = 1 if name in RELATIVE else 0
    rows = [[getattr(state, name) for state in result.states[first:]] for result in results]
    return rows, TRUE[name][first:]


@pytest.fixture(scope="module")
def results():
    return [precursors.analyze(approach(seed, rows=400)) for seed in range(40)]


@pytest.mark.parametrize("name", TRUE)
def test_fluctuations_of_known_series(results, name):
    """The quotients share a denominator, so that only one state's are independent."""
    estimates, truth = told(results, name)
    assert (np.abs(pulls.bias(estimates, truth)) < 4).all()
    z = pulls.of(estimates, truth)
    assert pulls.honest(z[:, -1] if name in RELATIVE else z, REPLICAS - 1)


@pytest.mark.parametrize("name", ["variance", "time"])
def test_wrong_values_and_errors_are_noticed(results, name):
    estimates, truth = told(results, name)
    assert (np.abs(pulls.bias(estimates, 1.2 * truth)) > 4).all()
    z = pulls.of(estimates, truth)
    assert not pulls.honest(z / 0.7, REPLICAS - 1)
    assert not pulls.honest(z * 0.7, REPLICAS - 1)


def test_growth_is_relative_to_the_lowest_P(results):
    assert all(result.states[0].growth.value == 1 for result in results)


@pytest.mark.long
@pytest.mark.parametrize(("rows", "replicas"), [(800, 16), (300, 16), (800, 4), (2000, 1)])
def test_errors_of_fluctuations_cover(rows, replicas):
    """200 runs of 4 states: coverage is known to 0.017. Control: errors of three quarters."""
    results = [precursors.analyze(approach(seed, rows, replicas)) for seed in range(100, 300)]
    for name in TRUE:
        estimates, truth = told(results, name)
        z = pulls.of(estimates, truth)
        assert 0.60 <= pulls.coverage(z) <= 0.76, name
        assert pulls.coverage(z / 0.75) < 0.60


@pytest.mark.parametrize("center", [None, 0.0])
def test_the_variance_of_short_series_is_not_low(center):
    """80 rows of tau 3: their own mean takes 4 % of the variance away, 6 errors of 1000 sets."""
    rng = np.random.default_rng(3)
    sets = [synthetic.ar1(0.5, 80, 1, rng) for _ in range(1000)]
    found = [[precursors._fluctuations(x, 1.0, center)[0]] for x in sets]
    assert abs(pulls.bias(found, 1.0)) < 4
    assert pulls.bias([[series.exactly(x.var())] for x in sets], 1.0) < -4


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
