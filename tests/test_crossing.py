"""Branches carried to their crossing, on runs whose crossing is known."""

import dataclasses

import numpy as np
import pytest
import synthetic_runs as synthetic
from scipy.integrate import quad
from scipy.optimize import brentq

from mcattn.analysis import crossing, routes
from mcattn.analysis.crossing import Anchor
from mcattn.errors import RunFileError

GRID = np.arange(300.0, 381.0, 5.0)


NOISE = 0.02
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


def change(P, noise=NOISE):
    """Difference of <dF/dP> between the two noisy levels of m of `loop`, at chi = 10."""
    levels = np.array([[synthetic.LOW_M], [synthetic.HIGH_M]])
    X = synthetic.softmax_sums(levels * (1 + noise * NODES))
    low, high = crossing.slope(X, synthetic.SOFTMAX, P, 10.0) @ WEIGHTS / WEIGHTS.sum()
    return high - low


def loop(seed, noise=NOISE, replicas=12, rows=20):
    """A loop whose replicas stay in their phase all the way: up uniform, down copying."""
    rng = np.random.default_rng(seed)
    table = synthetic.path(GRID)
    state = np.repeat(np.arange(len(table["P"])), rows)
    level = np.where(table["branch"][state] > 0, synthetic.LOW_M, synthetic.HIGH_M)[:, None]
    m = level * (1 + noise * synthetic.ar1(0.3, len(state), replicas, rng))
    X = synthetic.softmax_sums(m)
    return synthetic.run(X, np.tile(state[:, None], replicas), table)


def truth(anchor, grid=GRID):
    def difference(x):
        return anchor.difference + quad(change, anchor.P, x)[0]

    return brentq(difference, grid[0], grid[-1])


ANCHOR = Anchor(350.0, -12.0, 0.0, "known")


def test_crossing_of_known_branches():
    """40 loops: the mean of their pulls at |z| < 4, their scatter within its own 4 errors."""
    P, z = truth(ANCHOR), []
    for seed in range(40):
        (found,) = crossing.crossings(loop(seed), ANCHOR)
        z.append((found.P.value - P) / found.P.error)
    assert abs(np.mean(z)) < 4 / np.sqrt(40)
    assert abs(np.std(z, ddof=1) - 1) < 4 / np.sqrt(2 * 40)


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
