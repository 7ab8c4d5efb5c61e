"""Launchers and MPI libraries that do not belong together: refused, never run twice."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny

OPEN_MPIRUN = shutil.which("mpirun.openmpi")
OPEN_LIBRARY = next(Path("/usr/lib").glob("*/libmpi.so.40"), None)
# Open MPI wants to be asked twice before it runs as root, and counts cores.
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WITH_OPEN_MPI = {**ROOT, "MPI4PY_LIBMPI": str(OPEN_LIBRARY)}

pytestmark = pytest.mark.skipif(
    OPEN_MPIRUN is None or OPEN_LIBRARY is None or not tiny.MPIEXEC.exists(),
    reason="needs Open MPI of the system (Debian: openmpi-bin) beside MPICH of the environment",
)


def launch(launcher, ranks, folder, environment):
    """`mcattn run` of the tiny job into run.h5 under some launcher."""
    job = tiny.write_job(folder / "job.toml")
    more = ["--oversubscribe"] if launcher == OPEN_MPIRUN else []
    words = [launcher, *more, "-n", ranks, tiny.BIN / "mcattn", "run", job, "-o", "run.h5"]
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("launcher", "environment", "sentence"),
    [
        (OPEN_MPIRUN, ROOT, "Open MPI's mpirun started 2 processes, but .*MPICH.* sees 1; start"),
        (tiny.MPIEXEC, WITH_OPEN_MPI, r"MPICH-like .* started 2 processes, but .*Open MPI.* 1; st"),
    ],
    ids=["mpich-under-openmpi", "openmpi-under-mpich"],
)
def test_a_foreign_launcher_is_refused_in_one_sentence(tmp_path, launcher, environment, sentence):
    done = launch(launcher, 2, tmp_path, environment)
    assert done.returncode == 2
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("mcattn:")]
    assert re.search(sentence, said), said
    assert "Abort" not in done.stderr
    assert not (tmp_path / "run.h5").exists()


def test_one_process_may_have_any_launcher(tmp_path):
    done = launch(OPEN_MPIRUN, 1, tmp_path, ROOT)
    assert done.returncode == 0, done.stderr
    assert "one process (MPICH" in done.stderr


def test_both_libraries_write_the_same_file(tmp_path):
    done = launch(OPEN_MPIRUN, 2, tmp_path, WITH_OPEN_MPI)
    assert done.returncode == 0, done.stderr
    assert "2 ranks (Open MPI" in done.stderr
    tiny.carry_out(tmp_path / "here.h5")
    assert (tmp_path / "run.h5").read_bytes() == (tmp_path / "here.h5").read_bytes()
