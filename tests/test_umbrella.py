"""The umbrella protocol: where its windows lie, how replicas begin, what is said of its runs."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import tiny
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from scipy.interpolate import CubicSpline
from toys import Toy

from mcattn import action, coexistence, jobtext, linear_exact, linear_stages, windows
from mcattn.analysis import mbar, profile_figure, report, resample, umbrella
from mcattn.errors import JobError, RunFileError
from mcattn.jobfile import Umbrella
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


@pytest.mark.parametrize("L", [16, 64])
def test_windows_span_both_phases_and_outbend_the_barrier(L):
    model = CopyModel(L=L)
    path, exact = windows.place(model, 10, None, None, None), coexistence.coexistence(model, 10)
    assert abs(path.P / exact.P_equal_weight.value - 1) < 1e-3
    assert path.u[0] < exact.m_minus.value < path.middle < exact.m_plus.value < path.u[-1]
    assert np.all(np.diff(path.u) > 0)
    assert np.all(np.diff(path.center) > 0)
    # Each window is stationary where it is meant to be, and stable: Phi'' > -strength.
    curve = coexistence.sketch(model, 10, path.P)[1]
    phi = CubicSpline(curve.m, -curve.ln_p)
    force = phi(path.u, 1) + path.strength * (path.u - path.center)
    assert force == pytest.approx(0, abs=2e-3 * path.strength * np.ptp(path.u))
    assert phi(path.u, 2).min() > -0.6 * path.strength


def test_windows_of_one_phase_hold_three_standard_deviations():
    """L = 8 has one phase at chi = 10; the ends have 1 % of the highest density."""
    model = CopyModel(L=8)
    path, (_, curve) = windows.place(model, 10, None, None, None), coexistence.sketch(model, 10)
    ends = np.interp(path.u[[0, -1]], curve.m, curve.ln_p)
    assert curve.ln_p.max() - ends == pytest.approx(4.5, abs=0.1)


LINEAR = CopyModel(8, 4, "linear", 1.0, 1.0, 0.1)


@pytest.mark.parametrize("along", ["tau", "beta"])
def test_windows_of_linear_attention_lie_where_order_sets_in(along):
    mark = linear_stages.onset if along == "tau" else linear_stages.crossover
    path = windows.place(LINEAR, 400.0, None, along, None)
    assert abs(path.P / mark(LINEAR, 400.0) - 1) < 1e-4
    assert path.middle == np.inf
    exact = linear_exact.averages(LINEAR, path.P, 400.0, 1e-4)
    typical = math.sqrt(exact.tau2) if along == "tau" else abs(exact.signed_beta)
    assert path.u[0] < typical < path.u[-1]
    assert (path.u[0] == 0) == (along == "tau")


@pytest.mark.parametrize("along", ["tau", "beta"])
def test_windows_of_linear_attention_give_the_exact_averages(along):
    """Without the bias, at P of the windows: four numbers from one fixed seed, |z| < 4."""
    model = CopyModel(4, 3, "linear", 1.0, 1.0, 0.5)
    protocol = {"kind": "umbrella", "chi": 20.0, "along": along, "P": 6.0, "range": [0.0, 0.9]}
    more = {"ladders": 4, "tune_rounds": 1, "thermalize": 500, "sweeps": 8000, "every": 10}
    plan = Umbrella(**protocol, **more).plan(model)
    assert plan.along == along
    sampler = Sampler(plan, model, 3, Serial(), 0, plan.replicas, None)
    X, state = sampled(sampler)
    names = ("P", "chi", "bias_center", "bias_strength")
    states = mbar.States(*(getattr(sampler.states, name) for name in names), along)
    row, column = np.indices(state.shape) // np.array([1, len(plan.states)])[:, None, None]
    parts = (X.reshape(-1, 5), state.ravel(), row.ravel(), column.ravel())
    pool = mbar.solve(model, states, *parts)
    draws = resample.draw(pool, resample.of_ends(pool))
    exact = linear_exact.averages(model, 6.0, 20.0, 1e-6)
    truth = np.array([exact.tau2, exact.m2, exact.q, exact.loss])

    def averages(weights):
        loss = action.test_loss(pool.X, model, 6.0)
        values = np.stack([pool.X[:, 2] ** 2, pool.X[:, 0] ** 2, pool.X[:, 1], loss], axis=1)
        return weights @ values / weights.sum(axis=1, keepdims=True)

    base = pool.weights(6.0, 20.0)
    drawn = np.concatenate([averages(draws.weights(base, part)) for part in draws.chunks()])
    error = draws.widened(drawn.std(axis=0, ddof=1))
    z = (averages(base[None])[0] - truth) / error
    assert np.abs(z).max() < 4, z
    # Control: taking the bias to act on the other order parameter is seen.
    other = replace(states, along="beta" if along == "tau" else "tau")
    pool = mbar.solve(model, other, *parts)
    z = (averages(pool.weights(6.0, 20.0)[None])[0] - truth) / error
    assert np.abs(z).max() > 8, z


def sampled(sampler):
    """X, shape (t, r, 5), and states, shape (t, r), of a whole plan."""
    X, state = [], []
    while not sampler.finished:
        block = sampler.advance()
        X.append(block.X)
        state.append(np.broadcast_to(block.state, block.X.shape[:2]))
    return np.concatenate(X), np.concatenate(state)


def test_more_windows_where_the_barrier_is_higher():
    counts = [windows.place(CopyModel(L=L), 10, None, None, None).count for L in (12, 16, 24, 32)]
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
    states = job(P=340, windows=9, range=[0.1, 0.6], ladders=3).plan().states
    assert len(states) == 9
    assert states.P.tolist() == [340] * 9
    assert states.chi.tolist() == [10] * 9
    assert job(ladders=3, windows=9).plan().replicas == 27


@pytest.mark.parametrize(
    ("model", "protocol", "said"),
    [
        ({"attention": "linear"}, {"along": "m"}, "for linear attention it is .tau. or .beta."),
        ({}, {"along": "tau"}, "along is 'tau'; for softmax attention it is .m."),
        ({}, {"along": "q"}, "along is 'q'; it must be 'm', 'tau' or 'beta'"),
        ({}, {"range": [0.6, 0.1]}, r"must be \[low, high\] with 0 <= low < high"),
        ({}, {"range": [0.1, 1.5]}, r"range is \[0.1, 1.5\]; in m it must lie between 0 and 1"),
        ({}, {"range": 3}, "range is 3"),
        ({}, {"chi": 1e9}, "windows cannot be placed: "),
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


def test_one_phase_is_sampled():
    assert len(job({"L": 4}).plan().states) >= 4
    assert len(job({"L": 4}, P=90, range=[0.3, 0.6]).plan().states) >= 4


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
    assert "Two phases at chi = 3: equal weight at P = 35" in text
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
    assert "var m is largest at P = " in text


def test_other_runs_are_refused():
    with pytest.raises(RunFileError, match="is a fixed run; expected an umbrella run"):
        umbrella.analyze(replace(Toy().run(1, rows=30), protocol="fixed"))
