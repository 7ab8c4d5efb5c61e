"""jobs/run.sbatch on a real Slurm: time limit, signals, cancelling, arrays, both launchers."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import slurm_cluster
import tiny

SCRIPT = Path(__file__).resolve().parent.parent / "jobs" / "run.sbatch"
SECONDS = 150  # for one job's way through the queue, restarts and load of the machine included
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
# A few seconds in dozens of commits; few large blocks, since ranks wait for each other at each.
PROTOCOL = {"sweeps": 700, "every": 50}
SETTINGS = ["--set", "model.L=32", "--set", "run.commit_seconds=0.1"]

_missing = slurm_cluster.missing()
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(_missing) or os.geteuid() != 0,
        reason=f"not installed: {', '.join(_missing)}" if _missing else "Slurm starts as root only",
    ),
]


class Queue:
    """Submits in one folder, and looks at jobs."""

    def __init__(self, conf, folder):
        self.folder = folder
        # As a user has it who activated an environment: its programs first, no launcher's traces.
        self._environment = {
            **{k: v for k, v in os.environ.items() if not re.match("SLURM|SBATCH|PMI_|OMPI_", k)},
            "SLURM_CONF": str(conf),
            "PATH": f"{tiny.BIN}:{os.environ['PATH']}",
        }

    def command(self, *words, **more):
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env={**self._environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *arguments, options=("-n", 2), **more):
        """Submit the script; the number of the job."""
        words = ["sbatch", "--parsable", "-t", 5, "-o", "log-%j.txt", *options, SCRIPT, *arguments]
        return self.command(*words, **more)

    def field(self, job, name):
        shown = self.command("scontrol", "show", "job", "-o", job)
        return re.search(rf"\b{name}=(\S+)", shown).group(1)

    def log(self, job):
        return (self.folder / f"log-{self.field(job, 'JobId')}.txt").read_text()

    def wait(self, job, condition, what):
        until = time.monotonic() + SECONDS
        while not condition():
            state = self.field(job, "JobState"), self.field(job, "Restarts")
            assert time.monotonic() < until, f"no {what} after {SECONDS} s: {state}"
            time.sleep(0.1)

    def committed(self, job, run="run.h5"):
        """Wait for the run's first commit."""
        parts = self.folder / f"{run}.parts"
        self.wait(job, lambda: any(parts.glob("*.h5")), "commit")

    def restarted(self, job, times=1):
        self.wait(job, lambda: int(self.field(job, "Restarts")) >= times, "restart")

    def end(self, job):
        """State and exit code in which a job ends."""
        self.wait(job, lambda: self.field(job, "JobState") in ENDED, "end")
        return self.field(job, "JobState"), self.field(job, "ExitCode").split(":")[0]


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    yield slurm_cluster.start(folder)
    slurm_cluster.stop(folder)


@pytest.fixture
def queue(conf, tmp_path):
    tiny.write_job(tmp_path / "job.toml", **PROTOCOL)
    return Queue(conf, tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run without any interruption, in one process without a queue."""
    folder = tmp_path_factory.mktemp("whole")
    job = tiny.write_job(folder / "job.toml", **PROTOCOL)
    done = tiny.command("run", job, "-o", "run.h5", *SETTINGS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "run.h5").read_bytes()


@pytest.fixture(scope="module")
def too_long(conf, tmp_path_factory):
    """A job that meets its time limit twice while the other tests go on."""
    folder = tmp_path_factory.mktemp("too_long")
    tiny.write_job(folder / "job.toml", sweeps=1_000_000, every=1000)
    queue = Queue(conf, folder)
    options = ["-n", 1, "-t", 1, "--signal=B:USR1@20"]
    more = {"options": options, "MCATTN_MAX_RESTARTS": "1"}
    return queue, queue.submit("job.toml", "run.h5", *SETTINGS, **more)


@pytest.mark.parametrize("launch", ["", "srun --mpi=pmi2"], ids=["mpirun", "srun"])
def test_a_signalled_run_requeues_itself_and_ends_as_if_never_stopped(
    queue, too_long, whole, launch
):
    job = queue.submit("job.toml", "run.h5", *SETTINGS, MCATTN_LAUNCH=launch)
    queue.committed(job)
    queue.command("scancel", "--signal=USR1", "--batch", job)
    queue.restarted(job)
    assert queue.end(job) == ("COMPLETED", "0"), queue.log(job)
    assert queue.field(job, "Restarts") == "1"
    assert queue.log(job).count("mcattn: 2 ranks") == 2
    assert queue.log(job).count("stopped; go on with: mcattn resume run.h5") == 1
    assert (queue.folder / "run.h5").read_bytes() == whole


def test_a_cancelled_run_stays_cancelled_and_can_be_resumed(queue, whole):
    job = queue.submit("job.toml", "run.h5", *SETTINGS)
    queue.committed(job)
    queue.command("scancel", job)
    assert queue.end(job) == ("CANCELLED", "75"), queue.log(job)
    assert "stopped; go on with" in queue.log(job)
    again = queue.submit("job.toml", "run.h5", *SETTINGS, options=["-n", 1])
    assert queue.end(again) == ("COMPLETED", "0"), queue.log(again)
    assert queue.field(job, "JobState") == "CANCELLED"
    assert (queue.folder / "run.h5").read_bytes() == whole


def test_an_array_leaves_its_finished_members_alone(queue, whole):
    words = ["--set", "protocol.replicas=%a", *SETTINGS]
    done = [word.replace("%a", "8") for word in words]
    finished = queue.folder / "R8.h5"
    tiny.command("run", "job.toml", "-o", finished, *done, cwd=queue.folder)
    before = finished.stat().st_mtime_ns
    array = queue.submit("job.toml", "R%a.h5", *words, options=["-n", 1, "-a", "8,20"])
    for member in (f"{array}_8", f"{array}_20"):
        queue.committed(member, "R20.h5")
        if member.endswith("20"):
            queue.command("scancel", "--signal=USR1", "--batch", member)
        assert queue.end(member) == ("COMPLETED", "0"), queue.log(member)
    assert finished.stat().st_mtime_ns == before
    assert queue.field(f"{array}_8", "Restarts") == "0"
    assert queue.field(f"{array}_20", "Restarts") == "1"
    assert (queue.folder / "R20.h5").read_bytes() == whole


def test_ranks_that_srun_leaves_alone_are_refused_in_one_sentence(queue):
    job = queue.submit("job.toml", "run.h5", MCATTN_LAUNCH="srun --mpi=none")
    assert queue.end(job) == ("FAILED", "2")
    said = [line for line in queue.log(job).splitlines() if line.startswith("mcattn:")]
    assert len(said) == 1
    assert "srun started 2 processes, but the MPI library that mpi4py loaded" in said[0]
    assert not (queue.folder / "run.h5").exists()


def test_a_wrong_job_fails_once(queue):
    job = queue.submit("job.toml", "run.h5", "--set", "model.Q=1")
    nameless = queue.submit("job.toml", options=["-n", 1])
    for wrong, sentence in ((job, "unknown key model.Q"), (nameless, "usage: sbatch")):
        assert queue.end(wrong) == ("FAILED", "2")
        assert queue.log(wrong).count(sentence) == 1


def test_the_time_limit_requeues_until_the_cap(too_long):
    queue, job = too_long
    assert queue.end(job) == ("FAILED", "75"), queue.log(job)
    assert queue.field(job, "Restarts") == "1"
    assert "run.sbatch: not requeued after 1 restarts" in queue.log(job)
    said = re.findall(r"run.h5: (\d+) of \d+ sweeps\nmcattn: stopped", queue.log(job))
    first, second = map(int, said)
    assert 0 < first < second
