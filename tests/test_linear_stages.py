"""Marks of the rounded transitions of linear attention, against the averages they are made of."""

import math

import pytest

from mcattn import linear_exact, linear_stages, theory
from mcattn.errors import ModelError
from mcattn.model import CopyModel

LINEAR = CopyModel(L=32, V=4, attention="linear", kappa=1, g_s=1, g_w=0.1)


@pytest.mark.parametrize("chi", [20, 200])
def test_marks_are_where_they_say(chi):
    onset = linear_stages.onset(LINEAR, chi)
    assert linear_exact.averages(LINEAR, onset, chi).binder == pytest.approx(1 / 3, abs=1e-4)
    at = linear_exact.averages(LINEAR, linear_stages.crossover(LINEAR, chi), chi)
    assert at.signed_alpha == pytest.approx(at.signed_beta, rel=1e-4)


def test_onset_tends_to_the_critical_point_as_chi_grows():
    critical = theory.critical_P(LINEAR)
    excess = [linear_stages.onset(LINEAR, chi) - critical for chi in (100, 1600)]
    assert 0 < excess[1] < excess[0] / 3


def test_crossover_tends_to_that_of_the_landscape():
    P = linear_stages.crossover(LINEAR, 3200)
    lowest = theory.minima(LINEAR, P, math.inf)[0]
    assert lowest.alpha == pytest.approx(lowest.beta, rel=0.02)


def test_softmax_is_refused():
    with pytest.raises(ModelError, match="linear attention"):
        linear_stages.onset(CopyModel(), 10)
