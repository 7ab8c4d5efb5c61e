"""Every known bad combination gets its sentence."""

import json
import os
import stat
import sys

import pytest
import tiny

from mcattn import doctor, run
from mcattn.doctor import Report
from mcattn.kernels import jit


def test_a_sound_installation_alone_and_under_mpiexec(tmp_path):
    path = {"PATH": f"{tiny.BIN}{os.pathsep}{os.environ['PATH']}"}
    alone = tiny.command("doctor", cwd=tmp_path, environment=path)
    assert alone.returncode == 0, alone.stdout
    assert "MPICH" in alone.stdout
    assert "file locks" in alone.stdout
    assert "FAULT" not in alone.stdout
    both = tiny.command("doctor", "--json", ranks=2, cwd=tmp_path, environment=path)
    report = json.loads(both.stdout)  # rank 0 alone speaks
    assert report["facts"]["ranks seen"] == 2
    assert report["facts"]["mcattn"].startswith("0.")
    assert report["faults"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI's mpirun started 2 processes"),
        (
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"},
            "sees 1; tell srun how that library is started, such as --mpi=pmi2",
        ),
    ],
)
def test_processes_that_do_not_see_one_another(tmp_path, environment, sentence):
    done = tiny.command("doctor", cwd=tmp_path, environment=environment)
    assert done.returncode == 2
    assert sentence in done.stdout


def test_only_one_of_the_crossed_processes_speaks(tmp_path):
    environment = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    done = tiny.command("doctor", cwd=tmp_path, environment=environment)
    assert done.stdout == ""


def test_no_mpi_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    report = doctor.examine(tmp_path, {})
    assert any(w.startswith("No MPI library: runs use one process") for w in report.warnings)
    assert report.faults == []
    report = doctor.examine(tmp_path, {"PMI_SIZE": "3"})
    assert "started 3 processes, but no MPI library" in report.faults[0]


def launcher(folder, text):
    folder.mkdir()
    path = folder / "mpiexec"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": str(folder)}


def test_a_foreign_launcher_on_the_path(tmp_path):
    hydra = launcher(tmp_path / "a", "HYDRA build details:")
    openmpi = launcher(tmp_path / "b", "mpiexec (OpenRTE) 4.1.4 Open MPI")
    mine, other = "one process (MPICH Version: 5.0.2)", "one process (Open MPI v5.0.11)"
    assert list(doctor.crossed_path(mine, hydra)) == []
    assert list(doctor.crossed_path(other, openmpi)) == []
    (sentence,) = doctor.crossed_path(mine, openmpi)
    assert "is the launcher of Open MPI, but mpi4py loads MPICH" in sentence
    (sentence,) = doctor.crossed_path(other, hydra)
    assert "is the launcher of MPICH, but mpi4py loads Open MPI" in sentence
    assert list(doctor.crossed_path(mine, {"PATH": str(tmp_path)})) == []


@pytest.mark.parametrize(
    ("note", "environment", "part"),
    [
        ("2 ranks (MPICH Version: 4.2.3)", {}, "use MPICH 4.3 or newer"),
        ("2 ranks (MPICH Version: 5.0.2)", {"MPI4PY_MPIABI": "openmpi"}, "unset it unless"),
    ],
)
def test_settings_that_mislead(note, environment, part):
    assert [part in sentence for sentence in doctor._bad_settings(note, environment)] == [True]
    assert list(doctor._bad_settings("2 ranks (MPICH Version: 4.3.0)", {})) == []


@pytest.mark.parametrize(
    ("ranks", "environment", "part"),
    [
        (2, {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "1"}, "2 ranks with 2 threads each"),
        (5, {}, "5 ranks share 3 cores on n1"),
        (3, {"OMP_NUM_THREADS": "1"}, None),
    ],
)
def test_cores_are_counted_on_each_host(ranks, environment, part):
    report = Report()
    places = [("n1", [0, 1, 2])] * ranks + [("n2", [0, 1, 2, 3])]
    doctor._look_at_cores(report, places, environment)
    assert [part in sentence for sentence in report.warnings] == ([True] if part else [])
    assert report.facts["cores on n2"] == 4


def test_a_cache_that_cannot_be_written(monkeypatch):
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    monkeypatch.setattr(run, "compile_kernels", lambda model: None)
    report = Report()
    doctor._look_at_kernels(report)
    assert report.facts["kernel cache"] == "none"
    assert report.facts["kernels"].startswith("compiled in ")
    assert any("set NUMBA_CACHE_DIR to a folder" in w for w in report.warnings)


def test_a_folder_that_cannot_be_written():
    report = Report()
    doctor._look_at_files(report, doctor.Path("/proc"))
    assert report.faults[0].startswith("No run can be written in /proc: ")
