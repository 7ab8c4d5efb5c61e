"""Minima over all scores against theory, grids and differences of independent values."""

import math

import numpy as np
import pytest

from mcattn import action, data, theory
from mcattn.errors import JobError
from mcattn.minima import minimise, search, spread_of_rows
from mcattn.model import CopyModel
from mcattn.problems import DataSet, Population

STANDARD = CopyModel()
COPYING = 4.0 * np.roll(np.eye(16), -1, axis=1)


# --- population ------------------------------------------------------------------------------


@pytest.mark.parametrize("chi", [math.inf, 10.0])
@pytest.mark.parametrize("P", [310.0, 380.0])
def test_softmax_minima_are_those_of_the_landscape(chi, P):
    """Descending over 256 scores ends in the two minima that equal rows have, to rounding."""
    expected = sorted(theory.minima(STANDARD, P, chi), key=lambda one: one.m)
    rng = np.random.default_rng(0)
    for start, one in zip((0 * COPYING, COPYING), expected, strict=True):
        noise = 0.3 * rng.standard_normal((16, 16))
        found = minimise(Population(STANDARD, chi), P, start + noise)
        np.testing.assert_allclose(found.X, one.X, rtol=1e-8)
        assert found.F_per_chi == pytest.approx(one.F_per_chi, rel=1e-12)
        assert found.loss == pytest.approx(one.loss, rel=1e-8)
        assert (found.alpha, found.beta) == pytest.approx((one.alpha, one.beta), rel=1e-7)
        assert found.spread < 1e-8
        assert found.curvature > 0.05
        assert found.slope < 1e-10


def test_linear_minima_are_those_of_the_landscape():
    """At this P a second minimum has beta < 0, and some starts end there."""
    model = CopyModel(8, 4, "linear", g_s=1, g_w=0.1)
    for P in (8.0, 20.0, 60.0):
        expected = theory.minima(model, P)
        result = search(Population(model), P, starts=6)
        assert result.lowest.F_per_chi == pytest.approx(expected[0].F_per_chi, rel=1e-12)
        assert abs(result.lowest.alpha - expected[0].alpha) < 1e-7
        assert abs(result.lowest.beta - expected[0].beta) < 1e-7
        assert result.lowest.X[2] >= 0
    best, trap = theory.minima(model, 60.0)
    S = trap.alpha / 8 * np.ones((8, 8)) + trap.beta * np.roll(np.eye(8), -1, axis=1)
    found = minimise(Population(model), 60.0, S)
    assert (found.alpha, found.beta) == pytest.approx((trap.alpha, trap.beta), rel=1e-7)
    assert found.F_per_chi > best.F_per_chi + 0.1
    turned = minimise(Population(model), 60.0, -S)
    assert (turned.alpha, turned.beta) == pytest.approx((trap.alpha, trap.beta), rel=1e-7)


def test_a_start_on_a_saddle_falls_off():
    """A = 0 is stationary at every P, and a minimum up to P_c only."""
    model = CopyModel(8, 4, "linear", g_s=1, g_w=0.1)
    P_c = theory.critical_P(model)
    for factor, rests in ((0.99, True), (1.01, False)):
        found = minimise(Population(model), factor * P_c, np.zeros((8, 8)))
        assert (abs(found.alpha) < 1e-10) == rests
        (expected, *_) = theory.minima(model, factor * P_c)
        assert found.F_per_chi == pytest.approx(expected.F_per_chi, rel=1e-12)
        assert found.spread < 1e-6


# --- data sets -------------------------------------------------------------------------------


@pytest.mark.parametrize(("attention", "chi"), [("softmax", math.inf), ("linear", 4.0)])
def test_reported_minima_are_minima_of_the_exact_action(attention, chi):
    """Slope and curvature from values of F alone; half a step off the slope shows: the control.

    Second differences with h = 1e-3 are good to 1e-6 by curvature and to 1e-8 by rounding.
    """
    model = CopyModel(3, 3, attention, g_s=2.0, g_w=0.5)
    tokens = data.draw(model, 25, 2)
    T = data.counts(tokens, 3)

    def F(S):
        return action.exact_per_chi(S, T, model, 25, chi)[0]

    one = search(DataSet(model, tokens, chi), 25, starts=2).lowest
    h, unit = 1e-3, np.eye(9).reshape(9, 3, 3)
    signs = [(1, 1, 1), (1, -1, -1), (-1, -1, 1), (-1, 1, -1)]
    at = [[[z * F(one.S + h * (x * u + y * v)) for x, y, z in signs] for u in unit] for v in unit]
    hessian = np.sum(at, axis=2) / (4 * h * h)
    lowest = np.linalg.eigvalsh(hessian)[0]
    assert lowest > 0.1
    assert one.curvature == pytest.approx(lowest, rel=1e-4)

    def steepest(S):
        return max(abs(F(S + h * u) - F(S - h * u)) / (2 * h) for u in unit)

    assert one.slope < 1e-10
    assert steepest(one.S) < 1e-5
    assert steepest(one.S + h / 2 * unit[1]) > 1e-4
    assert one.F_per_chi == pytest.approx(F(one.S), rel=1e-14)
    np.testing.assert_allclose(one.X, action.order_parameters(one.S, attention), rtol=1e-12)


@pytest.mark.parametrize("chi", [math.inf, 3.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_point_of_a_grid_is_lower(chi, seed):
    """L = 2: a minimum's rows have mean zero, which leaves two gaps; a grid sees them all.

    The lowest grid point lies above the minimum, by no more than curvature x spacing^2 allows.
    """
    model = CopyModel(2, 3, g_s=4.0, g_w=2.0)
    tokens = data.draw(model, 12, seed)
    gap = np.linspace(-6, 6, 241)
    u, v = np.meshgrid(gap, gap, indexing="ij")
    S = np.stack([np.stack([u, -u], axis=-1), np.stack([v, -v], axis=-1)], axis=-2) / 2
    F = action.exact_per_chi(S, data.counts(tokens, 3), model, 12, chi)[0]
    result = search(DataSet(model, tokens, chi), 12, starts=8)
    assert 0 <= F.min() - result.lowest.F_per_chi < 2 * 0.05**2
    edge = np.concatenate([F[0], F[-1], F[:, 0], F[:, -1]])
    assert edge.min() > F.min() + 0.5
    # Every start is in a minimum of the grid: a point that lies below its four neighbours.
    inner = F[1:-1, 1:-1]
    low = np.minimum(np.minimum(F[:-2, 1:-1], F[2:, 1:-1]), np.minimum(F[1:-1, :-2], F[1:-1, 2:]))
    minima = inner[inner <= low]
    for one in result.found:
        assert np.abs(minima - one.F_per_chi).min() < 2 * 0.05**2


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_many_sequences_approach_the_population(attention):
    """kappa and P scaled alike leave the population action as it is, but not its disorder.

    64 times the sequences reduce what one data set is off by 8 where it is scatter, and by 64
    where it is bias; without more sequences the ratio is 1. Limits allow for three sets only.
    """
    off = []
    for scale in (1, 64):
        model = CopyModel(8, 4, attention, kappa=scale, g_s=2.0, g_w=0.1)
        P, start = 60 * scale, np.random.default_rng(0).normal(size=(8, 8))
        expected = minimise(Population(model), P, start)
        differences = [
            minimise(DataSet(model, data.draw(model, P, seed)), P, expected.S).X - expected.X
            for seed in range(3)
        ]
        off.append(np.abs(differences).mean(axis=0)[[0, 1, 4]])
    assert np.all(off[0] > 3 * off[1])
    assert np.all(off[0] < 100 * off[1])


# --- searches --------------------------------------------------------------------------------


def test_starts_are_the_same_for_any_number():
    model = CopyModel(4, 3, "linear", g_s=1, g_w=0.5)
    problem = DataSet(model, data.draw(model, 40, 0))
    few, more = (search(problem, 40, starts, seed=3) for starts in (2, 5))
    for one, other in zip(few.found, more.found, strict=False):
        np.testing.assert_array_equal(one.S, other.S)
    assert len(more.found) == 5
    assert more.lowest.F_per_chi == min(one.F_per_chi for one in more.found)
    F = np.array([one.F_per_chi for one in more.found])
    assert more.share == np.mean(F.min() + 1e-7 > F)
    with pytest.raises(JobError, match="seed is -1"):
        search(problem, 40, 1, seed=-1)


def test_leaving_ends_a_descent():
    problem = Population(STANDARD)
    assert minimise(problem, 250.0, COPYING, leave=lambda S: S[0, -1] < 2.0) is None
    assert minimise(problem, 350.0, COPYING, leave=lambda S: S[0, -1] < 2.0) is not None


def test_spread_of_rows():
    rng = np.random.default_rng(0)
    row = rng.normal(size=5)
    A = np.array([[row[(a - 1 - b) % 5] for b in range(5)] for a in range(5)])
    assert spread_of_rows(A) < 1e-15
    odd = A.copy()
    odd[2] *= 2  # off the mean by 4/5 of a row, the four others by 1/5: 4/5 row^2 of 8 row^2
    assert spread_of_rows(odd) == pytest.approx(math.sqrt(0.1))
    assert spread_of_rows(np.tile(row, (5, 1))) > 0.1  # equal rows that do not move along
    assert spread_of_rows(1e-40 * rng.normal(size=(5, 5))) == 0
