"""What `mcattn status` says of runs that go on, have ended or were killed."""

import json
import os
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
import tiny

from mcattn import lock, run, status, store
from mcattn.analysis import tempering
from mcattn.errors import RunFileError
from mcattn.ladder import RoundTrips, round_trips
from mcattn.ranks import Serial
from mcattn.runfile import open_run

LADDER = {"kind": "tempering", "P": [90, 110], "chi": 30.0, "states": 3, "ladders": 4}
LADDER |= {"exchange_every": 10, "thermalize": 100, "sweeps": 1500}


@pytest.fixture(scope="module")
def tempered(tmp_path_factory):
    """A finished tempering run, which commits seldom."""
    path = tmp_path_factory.mktemp("tempering") / "run.h5"
    checked, text = tiny.of_table({**tiny.TABLE, "protocol": LADDER, "run": {"seed": 3}})
    run.start(checked, text, path, Serial(), run.Watch())
    return path


def test_a_finished_run(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path)
    now = status.read(path)
    assert (now.state, now.sweep, now.committed) == ("finished", now.planned, now.planned)
    assert now.rows == 64
    assert now.holder is now.rate is now.left is now.ranks is None
    assert 0 <= now.checkpoint_age < 100
    assert 0.1 < now.measures["lowest acceptance of a state"] <= now.measures["acceptance"] < 0.9
    assert now.measures["drift of the caches"] < 1e-10


def test_a_tempering_run_tells_swaps_and_round_trips(tempered):
    told = status.read(tempered).measures
    found = tempering.analyze(open_run(tempered))
    assert told["round trips"] == sum(found.round_trips) > 0
    weakest = min(found.pairs, key=lambda pair: pair.accepted / pair.attempted)
    assert told["lowest swap acceptance"] == weakest.accepted / weakest.attempted
    assert told["lower state of that pair"] == weakest.low
    assert 0 < told["lowest swap acceptance"] <= told["swap acceptance"] < 1


def test_round_trips_are_counted_in_slabs_and_over_looks(tmp_path, monkeypatch):
    """A file of many rows read in one look, in slabs, and in looks while it grows."""
    rng = np.random.default_rng(1)
    steps = rng.choice([-1, 1], (5000, 12))
    state = np.abs((np.cumsum(steps, axis=0) + 4) % 8 - 4)  # a walk between 0 and 4
    whole = round_trips(state, 5)
    path = tmp_path / "state.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("state", data=state, maxshape=(None, 12), dtype="i4")
    monkeypatch.setattr(status, "_SLAB", 1000)
    looks = RoundTrips()
    with h5py.File(path, "r+") as f:
        slabs = RoundTrips()
        status._count(f["state"], 5, slabs)
        for rows in (1, 2, 700, 701, 5000):
            f["state"].resize(rows, axis=0)
            f["state"][:] = state[:rows]
            f["state"][rows // 2 + 1 :] = -1  # as rows read whose part is being merged
            status._count(f["state"], 5, looks)
            f["state"][:] = state[:rows]
            status._count(f["state"], 5, looks)
            assert looks.rows == rows
            assert (looks.counts == round_trips(state[:rows], 5)).all()
    assert whole.min() > 10
    assert (slabs.counts == whole).all()
    assert (looks.counts == whole).all()


def test_a_second_look_reads_only_new_rows(tempered, monkeypatch):
    trips = RoundTrips()
    first = status.read(tempered, trips)
    read = []
    monkeypatch.setattr(RoundTrips, "add", lambda self, state, states: read.append(len(state)))
    assert status.read(tempered, trips).measures == first.measures
    assert read == []
    status.read(tempered)
    assert sum(read) == first.rows


def test_a_stopped_run_tells_what_was_committed(tmp_path):
    path = tmp_path / "run.h5"
    outcome = tiny.carry_out(path, tiny.stop_after(130))
    now = status.read(path)
    assert (now.state, now.sweep, now.planned) == ("interrupted", outcome.sweep, outcome.planned)
    assert f"nobody; go on with: mcattn resume {path}" in status.lines(now)


def test_nothing_committed_yet(tmp_path):
    path = tmp_path / "run.h5"
    job, text = tiny.job()
    header = run._header(job, text, job.protocol.plan(), None)
    held = store.Store(path, header, None)
    now = status.read(path)
    assert (now.state, now.sweep, now.checkpoint_age) == ("running", 0, None)
    assert now.holder == lock.this_process()
    assert now.measures == {}
    assert "checkpoint  none yet" in status.lines(now)
    held.close()
    assert status.read(path).holder is None


def test_looking_never_keeps_a_run_from_its_lock(tmp_path):
    """A look takes the lock for a moment; taking it for good waits that moment."""
    path = tmp_path / "parts" / "lock"
    lock.hold(path, tmp_path).close()
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            lock.holder(path, tmp_path)
        os._exit(0)
    for _ in range(100):
        lock.hold(path, tmp_path).close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_full_disk_does_not_stop_the_pulse(tmp_path):
    status.Pulse(tmp_path / "no_such_run.h5", 1)(1, 2)


def test_running_and_killed(tmp_path):
    """Commits are rare here: what the run tells between them comes from its side file."""
    job = tiny.write_job(tmp_path / "job.toml", sweeps=[900_000, 100], every=100)
    words = [tiny.MPIEXEC, "-n", "2", tiny.BIN / "mcattn", "run", job, "-o", "r.h5"]
    words += ["--set", "run.commit_sweeps=500", "--set", "run.commit_seconds=1000"]
    child = subprocess.Popen([str(w) for w in words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    path = tmp_path / "r.h5"
    try:
        watch = [str(tiny.BIN / "mcattn"), "status", str(path), "--json", "--watch"]
        while not path.exists():
            time.sleep(0.05)
        looking = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
        first = looking.stdout.readline()
        while (now := status.read(path)).rate is None:
            time.sleep(0.1)
        assert now.state == "running"
        assert now.ranks == 2
        assert 0 < now.sweep < now.planned
        assert now.left == pytest.approx((now.planned - now.sweep) / now.rate)
        assert now.silent < 30
        assert f"written by  {now.holder}, 2 ranks, last heard of" in status.lines(now)
        pid = int(now.holder.split()[1])
        os.kill(pid, signal.SIGKILL)
        child.wait(timeout=60)
    finally:
        child.kill()
        child.wait()
    last = looking.communicate(timeout=60)[0].splitlines()[-1]
    assert json.loads(first)["state"] == "running"
    assert json.loads(last)["state"] == "interrupted"
    after = status.read(path)
    assert after.state == "interrupted"
    assert after.rate is None
    assert after.sweep == after.committed >= now.committed
    assert (after.measures == {}) == (after.rows == 0)


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(RunFileError, match="does not exist"):
        status.read(tmp_path / "none.h5")
    done = tiny.command("status", "none.h5", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.h5 does not exist; expected a run file" in done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "unknown time"), (3, "3 s"), (90, "1.5 min"), (90_000, "1.0 d")]
)
def test_times_are_spoken(seconds, text):
    assert status.spoken(seconds) == text
