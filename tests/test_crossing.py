"""Branches carried to their crossing, on runs whose crossing is known."""

import dataclasses

import numpy as np
import pulls
import pytest
import synthetic_runs as synthetic
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq

from mcattn.analysis import crossing, routes
from mcattn.analysis.crossing import Anchor
from mcattn.errors import RunFileError

GRID = np.arange(300.0, 381.0, 5.0)
REPLICAS = 12
NOISE = 0.02
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


def change(P, noise=NOISE):
    """Difference of <dF/dP> between the two noisy levels of m of `loop`, at chi = 10."""
    levels = np.array([[synthetic.LOW_M], [synthetic.HIGH_M]])
    X = synthetic.softmax_sums(levels * (1 + noise * NODES))
    low, high = crossing.slope(X, synthetic.SOFTMAX, P, 10.0) @ WEIGHTS / WEIGHTS.sum()
    return high - low


def loop(seed, noise=NOISE, replicas=REPLICAS, rows=20, memory=0.3):
    """A loop whose replicas stay in their phase all the way: up uniform, down copying."""
    rng = np.random.default_rng(seed)
    table = synthetic.path(GRID)
    state = np.repeat(np.arange(len(table["P"])), rows)
    level = np.where(table["branch"][state] > 0, synthetic.LOW_M, synthetic.HIGH_M)[:, None]
    m = level * (1 + noise * synthetic.ar1(memory, len(state), replicas, rng))
    X = synthetic.softmax_sums(m)
    return synthetic.run(X, np.tile(state[:, None], replicas), table)


def truth(anchor, noise=NOISE):
    def difference(x):
        return anchor.difference + quad(change, anchor.P, x, args=(noise,))[0]

    return brentq(difference, GRID[0], GRID[-1])


ANCHOR = Anchor(350.0, -12.0, 0.0, "known")


@pytest.fixture(scope="module")
def found():
    return [crossing.crossings(loop(seed), ANCHOR)[0].P for seed in range(40)]


def test_crossing_of_known_branches(found):
    z = pulls.of(found, truth(ANCHOR))
    assert abs(np.mean(z)) < 4 / np.sqrt(z.size)
    assert pulls.honest(z, REPLICAS - 1)


def test_errors_of_half_or_three_times_the_size_are_noticed(found):
    z = pulls.of(found, truth(ANCHOR))
    assert not pulls.honest(2 * z, REPLICAS - 1)
    assert not pulls.honest(z / 3, REPLICAS - 1)


def crossings_with(sets, anchor_error=0.0, **kinds):
    """One crossing for each of many loops, every one from an anchor that is off by its error."""
    normal = stats.norm.ppf((np.arange(sets) + 0.5) / sets)
    for seed, off in enumerate(normal, start=1000):
        difference = ANCHOR.difference + anchor_error * off
        anchor = dataclasses.replace(ANCHOR, difference=difference, error=anchor_error)
        yield crossing.crossings(loop(seed, **kinds), anchor)[0].P


@pytest.mark.long
@pytest.mark.parametrize(
    "kinds",
    [{}, {"memory": 0.95}, {"noise": 0.06}, {"replicas": 4}, {"anchor_error": 0.3}],
    ids=lambda kinds: next(iter(kinds), "as above"),
)
def test_errors_of_crossings_cover(kinds):
    """300 loops: coverage is known to 0.027. Control: errors of three quarters cover less."""
    at = truth(ANCHOR, noise=kinds.get("noise", NOISE))
    z = pulls.of(list(crossings_with(300, **kinds)), at)
    assert 0.60 <= pulls.coverage(z) <= 0.76
    assert pulls.coverage(z / 0.75) < 0.60


def test_a_wrong_anchor_moves_it_and_its_error_counts():
    (right,) = crossing.crossings(loop(1), ANCHOR)
    (wrong,) = crossing.crossings(loop(1), dataclasses.replace(ANCHOR, difference=-11.0))
    assert wrong.P.value - right.P.value == pytest.approx(-1 / change(340.0), rel=0.1)
    (vague,) = crossing.crossings(loop(1), dataclasses.replace(ANCHOR, error=0.5))
    assert vague.P.error > abs(0.45 / change(340.0))


def test_replicas_that_left_their_phase_do_not_count():
    run = loop(2)
    X = run.X.copy()
    early = run.state[:, 0] == 5
    X[early, 0] = synthetic.softmax_sums(np.full(early.sum(), synthetic.HIGH_M))
    (found,) = crossing.crossings(dataclasses.replace(run, X=X), ANCHOR)
    assert found.replicas < run.replicas


def test_what_has_no_crossing_is_said():
    with pytest.raises(RunFileError, match="no loop has"):
        crossing.crossings(loop(1), dataclasses.replace(ANCHOR, P=500.0))
    with pytest.raises(RunFileError, match="expected a hysteresis run"):
        crossing.crossings(synthetic.fixed_run(np.random.default_rng(0)), ANCHOR)


def test_branches_alone_mixed_models_and_linear_attention_are_refused():
    with pytest.raises(RunFileError, match="branches alone"):
        routes.analyze([loop(1)])
    other = dataclasses.replace(loop(1), model=dataclasses.replace(synthetic.SOFTMAX, V=8))
    with pytest.raises(RunFileError, match="another model"):
        routes.analyze([loop(1), other])
    with pytest.raises(RunFileError, match="no jump"):
        routes.analyze([synthetic.linear_run(np.random.default_rng(0))])
