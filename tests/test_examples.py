"""The worked examples of docs/extending.md do what the page says."""

import runpy
import sys
from pathlib import Path

import exact
import numpy as np
import pytest

import mcattn
from mcattn.analysis import series
from mcattn.model import CopyModel

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
SMALL = (CopyModel(3, 3, "softmax", 1.0, 2.0, 0.5), 15, 5)
LIMIT = 4.0  # of |z|, for some ten comparisons


@pytest.fixture
def example(request):
    return runpy.run_path(str(EXAMPLES / f"{request.param}.py"))


def pull(m):
    mean = series.mean(m)
    return (mean.value - exact.averages(*SMALL)["m"]) / mean.error


@pytest.mark.parametrize("example", ["own_move"], indirect=True)
def test_a_move_leaves_the_distribution_alone(example):
    m, accepted = example["sample"](*SMALL, replicas=32, sweeps=1000)
    assert 0.01 < accepted < 0.1
    assert abs(pull(m)) < LIMIT


@pytest.mark.parametrize("example", ["own_move"], indirect=True)
def test_a_move_without_its_ratio_would_be_seen(example):
    def blind(S, model, P, chi, rng):
        take = rng.random(len(S)) < 0.03
        return np.where(take[:, None, None], example["swapped"](S, rng), S), take

    m, _ = example["sample"](*SMALL, replicas=32, sweeps=1000, move=blind)
    assert abs(pull(m)) > 6


@pytest.mark.parametrize("example", ["own_action"], indirect=True)
def test_an_action_is_sampled_alike_by_two_ways(example):
    assert abs(pull(example["sample"](*SMALL, cost=0.0, replicas=32)[..., 0])) < LIMIT
    direct = series.mean(example["sample"](*SMALL, cost=0.3, replicas=32)[..., 0])
    without, weighted = example["reweighted"](*SMALL, cost=0.3)
    error = np.hypot(direct.error, weighted.error)
    assert abs(direct.value - weighted.value) < LIMIT * error
    assert abs(without.value - exact.averages(*SMALL)["m"]) < LIMIT * without.error
    assert direct.value - without.value > 6 * error  # the cost is felt


@pytest.mark.parametrize("example", ["own_protocol"], indirect=True)
def test_a_quench_loses_copy_heads_only_where_they_are_unstable(example):
    model = CopyModel(16, 16, "softmax", 1.0, 3.0, 0.03)
    P_lo = mcattn.theory.boundary(model, 10).P_lo
    plan = example["quench"]([400, 345, P_lo - 15], chi=10, wait=150, replicas=16)
    share, P = example["survival"](model, plan)
    assert len(share) == 20 + 15 + 15
    assert (share[P_lo < P] == 1).all()
    assert share[-1] == 0
    assert (np.diff(share) <= 0).all()


@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("own_*.py")))
def test_each_runs_as_a_script(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [example])
    runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
