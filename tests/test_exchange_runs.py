"""Tempering runs: files that do not depend on ranks or stops, and what they hold."""

import numpy as np
import pytest
import tiny

import mcattn
from mcattn import action, run, schema
from mcattn.ranks import Serial
from mcattn.replicas import visit_order

SMALL = {
    "kind": "tempering",
    "P": [75, 95, 115],
    "chi": [20.0, 10.0, 60.0],
    "states": 5,
    "ladders": 4,
    "exchange_every": 10,
    "tune_rounds": 2,
    "tune_sweeps": 200,
    "thermalize": 25,
    "sweeps": 140,
    "every": 5,
    "pattern_replicas": 2,
}
# Commits between exchanges and at a stop; crashes at any commit are test_store.py's.
SELDOM = {"seed": 3, "commit_seconds": 1000.0, "commit_sweeps": 60}
TABLE = {**tiny.TABLE, "protocol": SMALL, "run": SELDOM}


def carry_out(path, watch=None):
    job, text = tiny.of_table(TABLE)
    return run.start(job, text, path, Serial(), watch or run.Watch())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("tempering") / "run.h5"
    assert carry_out(path).complete
    return path


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_file_does_not_depend_on_the_ranks(tmp_path, whole, size):
    (tmp_path / "job.toml").write_text(tiny.of_table(TABLE)[1])
    done = tiny.command("run", "job.toml", "-o", "run.h5", ranks=size, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.h5").read_bytes() == whole.read_bytes()


# In a pilot round, at the exchange after it, before and after an exchange among the rows.
LATER = [pytest.param(sweeps, marks=pytest.mark.long) for sweeps in (1, 415, 440, 535)]


@pytest.mark.parametrize("sweeps", [200, 210, 425, 435, *LATER])
def test_a_stopped_run_goes_on_elsewhere(tmp_path, whole, sweeps):
    path = tmp_path / "run.h5"
    outcome = carry_out(path, tiny.stop_after(sweeps))
    assert not outcome.complete
    assert sweeps <= outcome.sweep < sweeps + 25
    if sweeps in (210, 435):
        done = tiny.command("resume", path, ranks=3)
        assert done.returncode == 0, done.stderr
    else:
        assert tiny.continued(path).complete
    assert tiny.same(path, whole)


def test_rows_patterns_and_labels_agree(whole):
    data = mcattn.open_run(whole)
    assert data.protocol == "tempering"
    assert (np.sort(data.state.reshape(len(data.state), 4, 5), axis=2) == np.arange(5)).all()
    assert (data.state[0] != data.state[-1]).any()
    # The rows of one stretch between exchanges have one map.
    stretch = (data.sweep - 425 - 1 + 25) // 10
    for number in np.unique(stretch):
        assert (np.ptp(data.state[stretch == number], axis=0) == 0).all()
    for i in range(len(data.patterns["sweep"])):
        row = np.flatnonzero(data.sweep == data.patterns["sweep"][i])
        replica = data.patterns["replica"][i]
        if row.size:
            assert data.state[row[0], replica] == data.patterns["state"][i]
            X = action.order_parameters(data.patterns["scores"][i], "softmax")
            assert pytest.approx(data.X[row[0], replica], rel=1e-10) == X
    assert (data.patterns["reason"] == schema.REASON_CHOSEN).sum() == 2


def test_counts_and_places_are_stored(whole):
    data = mcattn.open_run(whole)
    e = data.exchanges
    assert e["attempted"].shape == (4, 4)
    # 25 sweeps of thermalising, then 14 exchanges while rows are taken, in turn.
    assert (e["attempted"].sum(axis=1) == 14 * 2).all()
    assert (e["accepted"] <= e["attempted"]).all()
    assert (e["chance"] <= e["attempted"]).all()
    assert sorted(zip(e["low"], e["high"], strict=True)) == [(i, i + 1) for i in range(4)]
    assert (np.diff(e["place"]) > 0).all()
    assert e["place"][[0, -1]].tolist() == [0, 2]
    assert not np.allclose(e["place"], np.linspace(0, 2, 5))
    assert data.states["P"] == pytest.approx(np.interp(e["place"], [0, 1, 2], SMALL["P"]))
    assert data.states["chi"] == pytest.approx(np.interp(e["place"], [0, 1, 2], SMALL["chi"]))
    swaps = (np.diff(data.state, axis=0) != 0).sum() / 2
    # The exchange after the last row is in the counts and not in the rows.
    assert 0 <= e["accepted"].sum() - swaps <= 8
    visits = 8 * len(visit_order(8))  # of the scores of a pattern in one sweep
    assert (data.states["attempted"] == 140 * 4 * visits).all()
