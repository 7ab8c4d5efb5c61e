"""The error of an average over data sets: sampling and disorder told apart."""

import numpy as np
import pytest
import tiny
from test_exact_sampling import FIXED, JOBS, carry_out

import mcattn
from mcattn.analysis import fixed, mbar, report
from mcattn.analysis.disorder import split
from mcattn.errors import RunFileError


def test_a_case_worked_by_hand():
    """Two sets with two replicas of two rows each: means 1, 3 and 6, 6."""
    x = np.array([[0.0, 5.0, 3.0, 6.0], [2.0, 7.0, 3.0, 6.0]])
    found = split("m", 3.0, 1.0, x, np.array([0, 1, 0, 1]))
    # Sets have means 2 and 6; replicas scatter with variances 2 and 0, so sampling has 1/2.
    assert (found.sets, found.value) == (2, 4.0)
    assert found.error == pytest.approx(np.sqrt(8 / 2))
    assert found.sampling == pytest.approx(np.sqrt(0.5 / 2))
    assert found.disorder == pytest.approx(np.sqrt(8 - 0.5))


@pytest.mark.parametrize("disorder", [0.0, 0.7])
def test_known_disorder_is_found(disorder):
    """Gaussian sets and rows; 400 sets make the estimates good to 5 %."""
    rng = np.random.default_rng(6)
    sets, replicas, rows = 400, 4, 25
    set_of = np.tile(np.arange(sets), replicas)
    x = disorder * rng.normal(size=sets)[set_of] + rng.normal(size=(rows, len(set_of)))
    found = split("m", 1.0, 1.0, x, set_of)
    own = 1 / (replicas * rows)
    assert found.sampling == pytest.approx(np.sqrt(own / sets), rel=0.1)
    assert found.error == pytest.approx(np.sqrt((disorder**2 + own) / sets), rel=0.15)
    assert found.disorder == pytest.approx(disorder, rel=0.15, abs=0.04)


def test_one_set_or_one_replica_tells_nothing():
    x = np.random.default_rng(1).normal(size=(9, 4))
    one = split("m", 1.0, 1.0, x, np.zeros(4, dtype=int))
    assert np.isnan([one.error, one.disorder]).all()
    assert one.sampling > 0
    alone = split("m", 1.0, 1.0, x, np.arange(4))
    assert np.isnan([alone.sampling, alone.disorder]).all()
    assert alone.error > 0


def test_a_fixed_run_on_data_sets_shows_both(tmp_path, capsys):
    file = carry_out(tmp_path / "run.h5", {**FIXED, "replicas": 8, "sweeps": 300}, sets=4)
    run = mcattn.open_run(file)
    found = fixed.analyze(run)
    assert [(s.name, s.P, s.sets) for s in found.disorder] == [
        ("m", 3, 4), ("q", 3, 4), ("m", 5, 4), ("q", 5, 4),
    ]  # fmt: skip
    m = run.X[:, 8:, 0].mean(axis=0).reshape(2, 4)  # the second state; sets in turn
    assert found.disorder[2].error == pytest.approx(m.mean(axis=0).std(ddof=1) / 2)
    report.print_tables(found)
    assert "between sets" in capsys.readouterr().out
    with pytest.raises(RunFileError, match="sampled the exact action of data sets"):
        mbar.pool(run)


def test_a_population_run_has_no_such_table(tmp_path):
    given = {k: v for k, v in JOBS["fixed"].items() if k != "action"}
    file = tmp_path / "run.h5"
    tiny.carry_out(file, only={**given, "P": [90.0], "replicas": 8})
    assert fixed.analyze(mcattn.open_run(file)).disorder == ()
