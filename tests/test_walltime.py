"""Time limits: how they are written, and that a run stops in time and goes on afterwards."""

import time

import pytest
import tiny

from mcattn import walltime
from mcattn.errors import JobError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("0:02", 2),
        ("3:50:00", 13800),
        ("1-0", 86400),
        ("1-2:30", 86400 + 9000),
        ("2-00:00:05", 172805),
        (" 10 ", 600),
    ],
)
def test_times_are_read_as_slurm_writes_them(text, seconds):
    assert walltime.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4", "-5", "1-", "1.5", "2 h", "1--2", "1:", "²"])
def test_other_times_are_refused(text):
    with pytest.raises(JobError, match=r"--walltime .*: expected MINUTES, M:S"):
        walltime.seconds(text)


def test_no_time_at_all_is_refused():
    with pytest.raises(JobError, match="longer than zero"):
        walltime.seconds("0:00:00")


def test_the_batch_system_says_when_the_job_ends():
    now = int(time.time())
    left = walltime.granted({"SLURM_JOB_END_TIME": str(now + 500)})
    assert left == pytest.approx(500, abs=2)
    assert walltime.granted({}) is None
    assert walltime.granted({"SLURM_JOB_END_TIME": "Unknown"}) is None
    assert walltime.granted({"SLURM_JOB_END_TIME": str(now - 5)}) is None  # of another job


def test_a_limit_leaves_room_for_the_slowest_block_and_its_commit(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(walltime.time, "monotonic", lambda: clock[0])
    limit = walltime.Limit(1000.0)
    stops = []
    for clock[0] in (0, 100, 110, 700, 790, 949, 951):
        stops.append(limit.reached())
    assert stops == [False, False, False, True, True, True, True]  # 590 s passed unasked
    clock[0] = 0.0
    limit = walltime.Limit(1000.0)
    for now in range(0, 948, 1):
        clock[0] = now
        assert not limit.reached(), now
    clock[0] = 949
    assert limit.reached()
    assert not walltime.Limit(None).reached()


@pytest.mark.parametrize(
    "sources",
    [("option", "slurm"), pytest.param(("slurm", "option"), marks=pytest.mark.long)],
    ids=["option-slurm", "slurm-option"],
)
def test_both_legs_of_a_limited_run_stop_in_time(tmp_path, sources):
    """Unlimited, this job would take minutes; each leg must end by itself and go further."""
    job = tiny.write_job(tmp_path / "job.toml", sweeps=[2_000_000, 1000], every=1000)
    words, sweeps = ["run", job, "-o", "r.h5"], 0
    for source in sources:
        environment = {}
        if source == "slurm":
            environment["SLURM_JOB_END_TIME"] = str(int(time.time()) + 12)
        else:
            words += ["--walltime", "0:00:12"]
        began = time.time()
        done = tiny.command(*words, ranks=2, cwd=tmp_path, environment=environment)
        assert time.time() - began < 20
        assert done.returncode == 75, done.stderr
        assert "go on with: mcattn resume r.h5" in done.stderr
        reached = tiny.reached(tmp_path / "r.h5")
        assert reached > sweeps
        words, sweeps = ["resume", "r.h5"], reached


def test_a_wrong_limit_is_said_once(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml")
    done = tiny.command("run", job, "--walltime", "soon", ranks=2, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("--walltime soon: expected MINUTES") == 1
