"""The command line as users call it: outputs, files, exit codes, signals."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
from typer.testing import CliRunner

from mcattn import cli, coexistence
from mcattn.cli import app

REFERENCE = {  # theory.md, standard case
    float("inf"): (279.67, 306.716, 414.76, 0.0722, 0.6296, 2.061),
    10.0: (294.53, 320.513, 420.84, 0.0733, 0.6164, 1.895),
}
STANDARD = ("--L=16", "--V=16", "--kappa=1", "--g-s=3", "--g-w=0.03")
LINEAR = ("--attention=linear", "--L=32", "--V=4", "--kappa=1", "--g-s=1", "--g-w=0.1")
KEYS = ("P_lo", "P_star", "P_hi", "m_minus", "m_plus", "barrier")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    job = tiny.write_job(folder / "tiny.toml")
    done = tiny.command("run", job, "-o", "run.h5", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run.h5"


@pytest.mark.parametrize("chi", REFERENCE)
def test_theory_prints_the_reference_values(chi):
    words = [
        "theory",
        "--L",
        "16",
        "--V",
        "16",
        "--kappa",
        "1",
        "--g-s",
        "3",
        "--g-w",
        "0.03",
        "--json",
    ]
    extra = [] if chi == float("inf") else ["--chi", str(chi)]
    values = json.loads(tiny.command(*words, *extra).stdout)
    for key, expected in zip(KEYS, REFERENCE[chi], strict=True):
        digits = len(str(expected).split(".")[1])
        assert values[key] == pytest.approx(expected, abs=0.51 * 10**-digits)
    assert values["P_c"] is None


def test_theory_of_linear_attention():
    words = [
        "theory",
        "--attention",
        "linear",
        "--L",
        "32",
        "--V",
        "4",
        "--kappa",
        "1",
        "--g-s",
        "1",
        "--g-w",
        "0.1",
    ]
    values = json.loads(tiny.command(*words, "--json").stdout)
    assert values["P_c"] == pytest.approx(12.6288, abs=6e-5)
    assert values["P_star"] is None
    text = tiny.command(*words).stdout
    assert "P_c" in text
    assert "P_star" not in text


def test_theory_with_fluctuations(monkeypatch):
    once = functools.cache(coexistence.coexistence)  # seconds for each L
    monkeypatch.setattr(coexistence, "coexistence", once)

    def told(L, *more):
        words = ["theory", "--L", str(L), "--chi", "10", "--fluctuations", *more]
        return CliRunner().invoke(app, words, catch_exceptions=False).stdout

    values = json.loads(told(12, "--json"))
    found = values["fluctuations"]
    assert found["P_equal_weight"]["value"] == pytest.approx(259.41, abs=0.05)
    assert values["P_saddle"] == found["P_saddle"]
    assert values["P_star"] < 250  # the landscape's stays
    text = told(12)
    assert "259.4" in text
    assert "In brackets: the numerical error" in text
    assert "no chain can see two" in told(8)
    assert "one phase" in told(6)


def test_theory_without_a_transition_says_so():
    done = tiny.command("theory", "--L", "6", "--chi", "3")
    assert "One minimum at every P: no transition." in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--L", "1"], "L is 1; it must be at least 2"),
        (["--g-s", "-3"], "g_s is -3.0; it must be finite and > 0"),
        (["--fluctuations"], "chi is inf: no fluctuations are left; see theory.boundary"),
        (["--chi", "0"], "chi is 0.0; it must be > 0, or inf"),
    ],
)
def test_theory_refuses_in_a_sentence(words, sentence):
    done = tiny.command("theory", *words)
    assert done.returncode == 2
    assert done.stderr.strip() == f"mcattn: error: {sentence}"


def test_analyze_and_plot(finished):
    values = json.loads(tiny.command("analyze", finished, "--json").stdout)
    assert {"P_up", "P_down", "area", "branches", "theory"} <= values.keys()
    for key in ("P_up", "P_down", "area"):
        assert {"value", "error"} <= values[key].keys()
    text = tiny.command("analyze", finished).stdout
    assert "Hysteresis of softmax attention" in text
    assert "P_lo =" in text
    before = finished.read_bytes()
    hidden = {"DISPLAY": ":99", "MPLBACKEND": ""}
    done = tiny.command("plot", finished, "-o", finished.with_name("f.pdf"), environment=hidden)
    assert done.returncode == 0, done.stderr
    assert finished.with_name("f.pdf").read_bytes().startswith(b"%PDF")
    assert finished.read_bytes() == before


def test_the_default_names_follow_the_job_and_the_run(tmp_path):
    tiny.write_job(tmp_path / "mine.toml", sweeps=5, thermalize=0, every=5)
    assert tiny.command("run", "mine.toml", cwd=tmp_path).returncode == 0
    assert tiny.command("plot", "mine.h5", cwd=tmp_path).stdout.strip() == "mine.png"
    assert {p.name for p in tmp_path.iterdir()} == {"mine.toml", "mine.h5", "mine.png"}


def test_running_a_finished_job_again_does_nothing(finished):
    before = finished.stat().st_mtime_ns
    job = finished.with_name("tiny.toml")
    done = tiny.command("run", job, "-o", finished)
    assert done.returncode == 0
    assert finished.stat().st_mtime_ns == before
    done = tiny.command("run", job, "-o", finished, "--set", "run.seed=8")
    assert done.returncode == 2
    assert "holds another job; choose another output or remove it" in done.stderr


def test_settings_can_be_overridden(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml", sweeps=5, thermalize=0)
    done = tiny.command("run", job, "-o", "x.h5", "--set", "model.L=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(tiny.content(tmp_path / "x.h5")["@model"])["L"] == 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "none.toml"], "cannot read job file none.toml: No such file or directory"),
        (["run", "job.toml", "--set", "model.Q=1"], "unknown key model.Q; known: L, V"),
        (["resume", "none.h5"], "none.h5 does not exist; expected a run file"),
        (["analyze", "none.h5"], "none.h5 does not exist; expected a run file"),
        (["plot", "job.toml"], "job.toml is not a readable HDF5 file"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, words, sentence):
    tiny.write_job(tmp_path / "job.toml")
    done = tiny.command(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["job.toml"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_stops_the_run_which_can_be_resumed(tmp_path, number):
    job = tiny.write_job(tmp_path / "job.toml", sweeps=[20_000, 10])
    words = [str(tiny.MPIEXEC), "-n", "2", str(tiny.BIN / "mcattn"), "run", str(job), "-o", "r.h5"]
    child = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "r.h5").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(child.pid, number)
    said = child.communicate(timeout=60)[1]
    assert child.returncode == 75, said
    assert "go on with: mcattn resume r.h5" in said


def test_one_thread_unless_more_are_asked_for():
    alone, asked = {}, {"OMP_NUM_THREADS": "3"}
    cli._one_thread(alone)
    cli._one_thread(asked)
    assert alone == {"OPENBLAS_NUM_THREADS": "1"}
    assert asked == {"OMP_NUM_THREADS": "3"}
    code = "import mcattn.cli, sys; print('numpy' in sys.modules)"  # then it would be too late
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_versions_and_help():
    out = tiny.command("--version").stdout
    assert all(name in out for name in ("mcattn 0.", "numba", "h5py", "mpi4py"))
    out = tiny.command("run", "--help").stdout
    assert "Exit codes" in out
