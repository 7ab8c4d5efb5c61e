"""Branches of minima over all scores: ends and crossing against theory, brackets of data sets."""

import math

import numpy as np
import pytest

from mcattn import action, data, theory
from mcattn.continuation import Branches
from mcattn.errors import ModelError
from mcattn.minima import minimise
from mcattn.model import CopyModel
from mcattn.problems import DataSet, Population

SMALL = CopyModel(12, 6, kappa=1, g_s=3, g_w=0.1)


@pytest.mark.parametrize(
    ("chi", "P_lo", "P_star", "P_hi"),
    [(math.inf, 279.67, 306.716, 414.76), (10.0, 294.53, 320.513, 420.84)],
)
def test_population_boundary_is_the_reference(chi, P_lo, P_star, P_hi):
    """theory.md's table, which assumes equal rows, from all 256 scores."""
    found = Branches(Population(CopyModel(), chi)).jump()
    # The table has five digits or six; ends are sought to 1e-6.
    assert found.P_lo == pytest.approx(P_lo, abs=6e-3)
    assert found.P_star == pytest.approx(P_star, abs=6e-4)
    assert found.P_hi == pytest.approx(P_hi, abs=6e-3)
    assert found.star[0] <= found.P_star <= found.star[1]


@pytest.mark.parametrize("model", [SMALL, CopyModel(10, 3, g_s=5, tokens=(0.5, 0.3, 0.2))])
def test_population_boundary_is_that_of_equal_rows(model):
    expected, found = theory.boundary(model), Branches(Population(model)).jump()
    assert found.P_star == pytest.approx(expected.P_star, rel=1e-7)
    assert found.P_lo == pytest.approx(expected.P_lo, rel=1e-5)
    assert found.P_hi == pytest.approx(expected.P_hi, rel=1e-5)
    assert abs(found.P_hi / expected.P_star - 1) > 0.01  # the three are told apart


def test_tables_hold_the_minima_that_theory_has():
    P = [330.0, 250.0, 450.0, 300.0, 410.0]  # in no order
    uniform, copy = Branches(Population(CopyModel())).table(P)
    assert [one is None for one in uniform] == [False, False, True, False, False]
    assert [one is None for one in copy] == [False, True, False, False, False]
    for x, low, high in zip(P, uniform, copy, strict=True):
        expected = sorted(theory.minima(CopyModel(), x), key=lambda one: one.m)
        found = [one for one in (low, high) if one is not None]
        assert [one.m for one in found] == pytest.approx([one.m for one in expected], rel=1e-8)
        assert all(x == one.P for one in found)


def test_brackets_of_a_data_set():
    """At the last P of a branch it holds, one row further it is lost, by plain descent.

    The descent shares nothing with the search: gradient steps, below 2 over the largest
    curvature, from the minimum at the P before.
    """
    tokens = data.draw(SMALL, 400, 1)
    branches = Branches(DataSet(SMALL, tokens))
    jump, expected = branches.jump(), theory.boundary(SMALL)
    for bracket in (jump.low, jump.star, jump.high):
        assert bracket[1] == bracket[0] + 1
    assert jump.star[0] <= jump.P_star <= jump.star[1]
    # Disorder moves the points by about 1 %.
    assert jump.P_lo == pytest.approx(expected.P_lo, rel=0.03)
    assert jump.P_star == pytest.approx(expected.P_star, rel=0.03)
    assert jump.P_hi == pytest.approx(expected.P_hi, rel=0.03)

    def departs(one, P, steps):
        T, S = data.counts(tokens[: int(P)], SMALL.V), one.S
        for _ in range(steps):
            S = S - 0.5 * action.exact_per_chi(S, T, SMALL, int(P), math.inf)[1]
            if abs(action.order_parameters(S, "softmax")[0] - one.m) > 0.2:
                return True
        return False

    for branch, kept, lost in (
        (branches.uniform, *jump.high),
        (branches.copy, *reversed(jump.low)),
    ):
        assert not departs(branch.at(2 * kept - lost), kept, 2000)
        assert departs(branch.at(kept), lost, 20_000)
    excess = [branches.copy.at(P).F_per_chi - branches.uniform.at(P).F_per_chi for P in jump.star]
    assert excess[0] > 0 >= excess[1]


def test_disorder_is_there_and_averages_out():
    """With kappa and P scaled by 16 the population stays; a data set is off by 4 (at least 2) less.

    Without more sequences the ratio is 1.
    """
    off = []
    for scale in (1, 16):
        model = CopyModel(12, 6, kappa=scale, g_s=3, g_w=0.1)
        sets = [DataSet(model, data.draw(model, 180 * scale, seed)) for seed in range(4)]
        P = np.array([Branches(one).jump().P_star for one in sets]) / scale
        off.append(math.sqrt(((P - theory.boundary(model).P_star / scale) ** 2).mean()))
    assert 0.05 < off[0] < 2
    assert off[0] > 2 * off[1]


def test_a_table_that_ends_too_early():
    """Whether a branch goes on beyond the last row is not known: nan, and no guess."""
    expected = theory.boundary(SMALL)
    rows = round(expected.P_star) + 8
    jump = Branches(DataSet(SMALL, data.draw(SMALL, rows, 0))).jump()
    assert jump.high[0] == rows
    assert math.isnan(jump.high[1])
    assert math.isnan(jump.P_hi)
    assert jump.low[1] == jump.low[0] + 1
    assert math.isfinite(jump.P_star)
    short = Branches(DataSet(SMALL, data.draw(SMALL, round(expected.P_lo) - 30, 0)))
    with pytest.raises(ModelError, match="perhaps the data end before it"):
        short.jump()


@pytest.mark.parametrize("model", [CopyModel(4, 4), CopyModel(8, 4, "linear")])
def test_one_branch_has_no_ends(model):
    with pytest.raises(ModelError, match="the landscape has one branch only"):
        Branches(Population(model))


def test_a_branch_follows_what_a_far_start_does_not_find():
    """From the middle of the copy branch its minimum at P_lo is found, from nothing it is not."""
    model = CopyModel()
    P = theory.boundary(model).P_lo + 0.5
    followed = Branches(Population(model)).table([P])[1][0]
    assert followed.m > 0.4
    assert minimise(Population(model), P, np.zeros((16, 16))).m < 0.1
