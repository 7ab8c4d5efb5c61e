"""The actions over all scores: gradients, counts that follow P, and the loss of a data set."""

import itertools
import math

import numpy as np
import pytest

from mcattn import action, data
from mcattn.errors import ModelError
from mcattn.model import CopyModel
from mcattn.problems import DataSet, Population

UNEQUAL = (0.5, 0.3, 0.2)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("chi", [math.inf, 3.0])
@pytest.mark.parametrize("tokens", [None, UNEQUAL])
def test_population_gradient_is_the_slope_of_the_action(attention, chi, tokens):
    """Central differences are good to h^2 ~ 1e-9; leaving out any of the five sums fails."""
    model = CopyModel(5, 3, attention, 0.7, 2.0, 0.3, tokens)
    S = np.random.default_rng(1).normal(size=(2, 5, 5)) + 0.3
    value, slope = Population(model, chi).at(40.5)(S)
    X = action.order_parameters(S, attention)
    np.testing.assert_allclose(value, action.per_chi(X, model, 40.5, chi), rtol=1e-14)
    h = 3e-5
    for a, b in itertools.product(range(5), repeat=2):
        ends = [S + sign * h * (np.arange(25).reshape(5, 5) == 5 * a + b) for sign in (1, -1)]
        ahead, behind = (
            action.per_chi(action.order_parameters(x, attention), model, 40.5, chi) for x in ends
        )
        np.testing.assert_allclose(slope[:, a, b], (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-8)


def test_counts_follow_P_up_and_down():
    model = CopyModel(4, 3, tokens=UNEQUAL)
    tokens = data.draw(model, 60, 0)
    problem = DataSet(model, tokens, 2.0)
    S = np.random.default_rng(0).normal(size=(4, 4))
    for P in (10, 60, 59, 1, 10, 10, 33):
        np.testing.assert_array_equal(problem.counts(P), data.counts(tokens[:P], 3))
        value = 2.0 * problem.at(P)(S)[0]
        assert value == pytest.approx(action.exact(S, tokens[:P], model, 2.0), rel=1e-13)
    kept = problem.at(10)
    before = kept(S)[0]
    problem.at(50)
    assert kept(S)[0] == before


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_loss_of_a_data_set_is_that_of_its_own_weights(attention):
    """Ridge regression on the sequences, then the mean over all 27 fresh sequences of L = 3.

    The population's mean predictor, which has not seen these data, has another loss: the control.
    """
    model = CopyModel(3, 3, attention, 0.7, 2.0, 0.4, UNEQUAL)
    tokens, S = data.draw(model, 6, 0), np.random.default_rng(4).normal(size=(3, 3))
    A, x = action.pattern(S, attention), np.eye(3)[tokens]
    z, y = A @ x, np.roll(x, 1, axis=1)
    z, y = (rows.reshape(-1, 3) for rows in (z, y))
    W = np.linalg.solve(z.T @ z / 3 + 0.7 / 0.4 * np.eye(3), z.T @ y / 3).T
    expected = 0.0
    for sequence in itertools.product(range(3), repeat=3):
        fresh = np.eye(3)[list(sequence)]
        misses = ((np.roll(fresh, 1, axis=0) - A @ fresh @ W.T) ** 2).sum() / 3
        expected += np.prod(model.probabilities[list(sequence)]) * misses
    assert DataSet(model, tokens).loss(S, 6) == pytest.approx(expected, rel=1e-12)
    assert abs(Population(model).loss(S, 6) - expected) > 1e-3


def test_loss_of_many_sequences_is_the_populations():
    """The two differ by 1/P: 4e-5 is seen at 4000 sequences."""
    model = CopyModel(4, 3, tokens=UNEQUAL, g_w=0.5)
    S = np.random.default_rng(4).normal(size=(4, 4)) + 2 * np.roll(np.eye(4), -1, axis=1)
    off = [
        abs(DataSet(model, data.draw(model, P, 1)).loss(S, P) - Population(model).loss(S, P))
        for P in (40, 4000)
    ]
    assert off[0] > 1e-3
    assert off[1] < 3e-4


def test_what_does_not_fit_is_refused():
    model = CopyModel(4, 3)
    problem = DataSet(model, data.draw(model, 20, 0))
    for P in (0, 21, 3.5, math.nan):
        with pytest.raises(ModelError, match="it must be a whole number from 1 to 20"):
            problem.at(P)
    with pytest.raises(ModelError, match="P is 0; it must be finite and > 0"):
        Population(model).at(0)
    for chi in (0, -1.0, math.nan):
        with pytest.raises(ModelError, match=r"chi is .*; it must be > 0, or inf"):
            Population(model, chi)
    with pytest.raises(ModelError, match=r"tokens have shape \(20, 4\); it must be \(P, 5\)"):
        DataSet(CopyModel(5, 3), problem.tokens)
