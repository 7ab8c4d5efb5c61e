"""The umbrella protocol: where its windows lie, how replicas begin, what is said of its runs."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from toys import Toy

from mcattn import jobtext, theory, windows
from mcattn.analysis import profile_figure, report, umbrella
from mcattn.errors import JobError, RunFileError
from mcattn.model import CopyModel
from mcattn.ranks import Serial
from mcattn.runfile import open_run
from mcattn.sampler import Sampler

MODEL = CopyModel()
SMALL = {
    "kind": "umbrella",
    "chi": 10,
    "ladders": 1,
    "tune_rounds": 1,
    "tune_sweeps": 100,
    "thermalize": 100,
    "sweeps": 400,
}


def job(model=None, **protocol):
    return jobtext.parse({"model": model or {}, "protocol": SMALL | protocol}, "job")


def printed(result):
    text = io.StringIO()
    report.print_tables(result, Console(file=text, width=160, highlight=False))
    json.loads(report.json_text(result))
    FigureCanvasAgg(profile_figure.profile_figure(result)).draw()
    return text.getvalue()


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("L", [8, 12, 16, 32, 64])
def test_windows_span_both_phases_and_outbend_the_landscape(L):
    model = CopyModel(L=L)
    jump, path = theory.boundary(model, 10), windows.place(model, 10, None, None)
    assert jump.P_star == path.P
    assert path.m[0] < jump.m_minus < path.middle < jump.m_plus < path.m[-1]
    assert np.all(np.diff(path.m) > 0)
    assert np.all(np.diff(path.center) > 0)
    # Each window is stationary where it is meant to be, and stable: F'' > -strength.
    slope, curvature = windows._slopes(model, 10, path.P, path.m)
    assert slope + path.strength * (path.m - path.center) == pytest.approx(
        0, abs=1e-6 * path.strength
    )
    assert curvature.min() > -path.strength


def test_more_windows_where_the_barrier_is_higher():
    counts = [windows.place(CopyModel(L=L), 10, None, None).count for L in (12, 16, 24, 32)]
    assert counts == sorted(counts)
    assert counts[1] == pytest.approx(30, abs=5)


def test_replicas_begin_in_the_phase_of_their_window():
    plan = job(ladders=2).plan()
    sampler = Sampler(plan, MODEL, 1, Serial(), 0, plan.replicas, None)
    sampler._enter(plan.stages[0])
    m = sampler.replicas.sums()[:, 0].reshape(2, -1)
    K = m.shape[1]
    assert (m[:, : K // 3] < 0.2).all()
    assert (m[:, -K // 4 :] > 0.6).all()
    assert set(plan.start) == {"uniform", "copy"}


def test_settings_of_the_job_decide():
    states = job(P=340, windows=9, m_range=[0.1, 0.6], ladders=3).plan().states
    assert len(states) == 9
    assert states.P.tolist() == [340] * 9
    assert states.chi.tolist() == [10] * 9
    assert job(ladders=3, windows=9).plan().replicas == 27


@pytest.mark.parametrize(
    ("model", "protocol", "said"),
    [
        ({"attention": "linear"}, {}, "umbrella windows are for softmax attention"),
        ({"L": 4}, {}, "has one phase at every P, so that windows cannot be placed; give P and"),
        ({"L": 4}, {"P": 90}, "windows cannot be placed; give m_range"),
        ({}, {"m_range": [0.6, 0.1]}, r"must be \[low, high\] with 0 < low < high < 1"),
        ({}, {"m_range": 3}, "m_range is 3"),
        ({}, {"P": -1}, "P is -1"),
        ({}, {"windows": 2}, "windows is 2"),
        ({}, {"tune_sweeps": 10}, "must hold at least 20 exchanges, that is 100 sweeps"),
        ({}, {"every": 500}, "must be at least every = 500"),
        ({}, {"P_star": 3}, "unknown key protocol.P_star"),
    ],
)
def test_wrong_jobs_are_refused_in_a_sentence(model, protocol, said):
    with pytest.raises(JobError, match=said):
        job(model, **protocol)


def test_one_phase_with_everything_given_is_sampled():
    assert len(job({"L": 4}, P=90, m_range=[0.3, 0.6]).plan().states) >= 4


# ---------------------------------------------------------------- runs


def test_a_run_does_not_depend_on_ranks_and_stops(tmp_path):
    """One process, two ranks, and a stop in the pilot with a resume: the same file."""
    table = {"model": {"L": 12}, "protocol": SMALL, "run": {"seed": 4, "commit_seconds": 0.05}}
    checked, text = tiny.of_table(table)
    path = tmp_path / "job.toml"
    path.write_text(text)
    whole = tmp_path / "whole.h5"
    assert tiny.run.start(checked, text, whole, Serial(), tiny.run.Watch()).complete
    stopped = tmp_path / "stopped.h5"
    tiny.run.start(checked, text, stopped, Serial(), tiny.stop_after(70))
    tiny.continued(stopped)
    assert tiny.same(whole, stopped)
    two = tmp_path / "two.h5"
    assert tiny.command("run", path, "-o", two, ranks=2).returncode == 0
    assert tiny.same(whole, two)
    run = open_run(whole)
    assert run.protocol == "umbrella"
    assert np.ptp(run.X[..., 0]) > 0.4


# ---------------------------------------------------------------- what is said


@pytest.fixture(scope="module")
def result():
    return umbrella.analyze(Toy(chi=3.0, P=350.0).run(2))


def test_the_tables_say_it_all(result):
    text = printed(result)
    assert "Transition at L = 16, V = 16, chi = 3" in text
    assert "P*, equal weight" in text
    assert "P*, landscape, without score fluctuations" in text
    assert "Round trips of replicas across the barrier: 0, of one replica 0 to 0." in text
    assert "! 0 round trips of replicas across the barrier, fewer than 20" in text
    assert "Two phases at chi = 3: equal weight at P = 352" in text
    assert "weakest overlap" in text


def test_json_has_the_keys(result):
    found = json.loads(report.json_text(result))
    for key in ("P_equal_weight", "P_equal_height", "barrier", "dm", "m_minus", "m_plus"):
        assert found[key]["error"] > 0
    assert found["routes"][0]["key"] == "P_equal_weight"
    assert found["round_trips"] == 0
    assert found["phases"] == 2


def test_an_unfinished_run_says_so():
    run = Toy(chi=3.0, P=350.0).run(2, rows=60, complete=False, planned_sweeps=2000)
    text = printed(umbrella.analyze(run))
    assert "! unfinished: 600 of 2000 sweeps; the rows so far are used" in text


def test_one_phase_has_a_table_and_a_figure():
    text = printed(umbrella.analyze(Toy(chi=0.5, P=550.0).run(1, rows=100)))
    assert "One phase at chi = 0.5" in text
    assert "no errors" in text


def test_other_runs_are_refused():
    with pytest.raises(RunFileError, match="is a fixed run; expected an umbrella run"):
        umbrella.analyze(replace(Toy().run(1, rows=30), protocol="fixed"))
