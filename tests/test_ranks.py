"""Launching: who holds which replicas, one answer on any number of ranks, no hanging job."""

import subprocess
import sys
import time

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from mcattn import ranks
from mcattn.errors import LaunchError

BLOCK = 8


@given(st.integers(1, 300), st.integers(1, 40))
def test_every_replica_has_one_rank(replicas, size):
    blocks = -(-replicas // BLOCK)
    if size > blocks:
        with pytest.raises(LaunchError, match=f"at most {blocks} ranks have work"):
            ranks.share(replicas, BLOCK, 0, size)
        return
    shares = [ranks.share(replicas, BLOCK, rank, size) for rank in range(size)]
    end = 0
    for first, count in shares:
        assert first == end
        assert count > 0
        assert first % BLOCK == 0
        end += count
    assert end == replicas
    counts = [-(-count // BLOCK) for _, count in shares]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"SLURM_NTASKS": "8"}, 1),  # the batch shell itself: one process is right
        ({"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "2"}, 2),
    ],
)
def test_the_launcher_says_how_many_processes_there_are(environment, size):
    assert ranks.expected_size(environment)[0] == size


def test_processes_that_do_not_see_one_another_are_refused():
    with pytest.raises(LaunchError, match=r"Open MPI's mpirun started 2 processes.*MPICH.*sees 1"):
        ranks.connect({"OMPI_COMM_WORLD_SIZE": "2"})


def test_a_crossed_launcher_says_so_once(tmp_path):
    """What a foreign mpirun does: two processes, each alone, each with the launcher's variables."""
    job = tiny.write_job(tmp_path / "job.toml")
    outputs = []
    for rank in "01":
        environment = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank}
        done = tiny.command("run", job, "-o", "x.h5", cwd=tmp_path, environment=environment)
        assert done.returncode == 2
        outputs.append(done.stderr)
    assert "Open MPI's mpirun started 2 processes" in outputs[0]
    assert "MPICH" in outputs[0]
    assert outputs[1] == ""
    assert not (tmp_path / "x.h5").exists()


def test_one_process_without_any_mpi_library(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml")
    hidden = "import sys; sys.modules['mpi4py'] = None; from mcattn.cli import main; main()"
    words = [sys.executable, "-c", hidden, "run", str(job), "-o", "serial.h5"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "no MPI library found: one process" in done.stderr
    tiny.carry_out(tmp_path / "here.h5")
    assert tiny.same(tmp_path / "serial.h5", tmp_path / "here.h5")


def test_without_mpi_a_launcher_of_many_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(LaunchError, match="started 3 processes, but no MPI library could be"):
        ranks.connect({"PMI_SIZE": "3"})


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "run.h5"
    assert tiny.carry_out(path).complete
    return path


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_file_does_not_depend_on_the_ranks(tmp_path, alone, size):
    job = tiny.write_job(tmp_path / "job.toml")
    done = tiny.command("run", job, "-o", "run.h5", ranks=size, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.h5").read_bytes() == alone.read_bytes()


def test_other_seeds_and_models_do_differ(tmp_path, alone):
    tiny.carry_out(tmp_path / "other.h5", replicas=21)
    assert not tiny.same(tmp_path / "other.h5", alone)


def test_linear_and_fixed_runs_do_not_depend_on_the_ranks_either(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(
        'model = { L = 5, V = 3, attention = "linear", g_s = 1.0, g_w = 0.2 }\n'
        "[protocol]\nkind = 'fixed'\nP = [4, 8]\nchi = 30\nreplicas = 10\nsweeps = 60\n"
        "bias_strength = [0, 5]\npattern_replicas = 12\nthermalize = 40\nevery = 7\n"
    )
    files = []
    for size in (1, 3):
        files.append(tmp_path / f"run{size}.h5")
        done = tiny.command("run", job, "-o", files[-1], ranks=size)
        assert done.returncode == 0, done.stderr
    assert files[0].read_bytes() == files[1].read_bytes()


def test_more_ranks_than_blocks_is_a_sentence(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml")
    done = tiny.command("run", job, "-o", "run.h5", ranks=4, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("4 ranks for 20 replicas") == 1
    assert "so at most 3 ranks have work" in done.stderr
    assert not (tmp_path / "run.h5").exists()


FAULT = """
import sys
from mcattn import errors, ranks, sampler
from mcattn.cli import main
advance = sampler.Sampler.advance
def faulty(self):
    if self._ranks.rank == 1 and self.sweep > 100:
        raise {error}
    return advance(self)
sampler.Sampler.advance = faulty
main()
"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("ZeroDivisionError('of rank one')", "ZeroDivisionError: of rank one"),
        ("errors.SamplingError('scores grew')", "error on rank 1 of 3: scores grew"),
    ],
)
def test_an_error_on_one_rank_ends_the_job(tmp_path, error, says):
    job = tiny.write_job(tmp_path / "job.toml")
    script = tmp_path / "faulty.py"
    script.write_text(FAULT.format(error=error))
    words = [tiny.MPIEXEC, "-n", "3", sys.executable, script, "run", job, "-o", "run.h5"]
    began = time.monotonic()
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began < 45
    assert done.returncode == (2 if "Sampling" in error else 1)
    assert "error on rank 1 of 3" in done.stderr
    assert says in done.stderr


def test_a_failing_disk_on_rank_0_ends_the_job(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml")
    done = tiny.command("run", job, "-o", "/proc/run.h5", ranks=2, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("cannot write /proc/run.h5") == 1
