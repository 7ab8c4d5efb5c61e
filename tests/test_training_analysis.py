"""What analysis says of training runs whose truth is known, and how it shows it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from synthetic_runs import LINEAR, SOFTMAX, linear_sums, run, softmax_sums, states

from mcattn import theory
from mcattn.analysis import comparison, report, series, training, training_figure
from mcattn.errors import RunFileError

STEPS = 100


def trained(P, X, H, job, **changes):
    """A run whose members have these sums X, (k, t, r, 5), and losses H, (k, r), at every P."""
    count, rows, members = X.shape[:3]
    direction = np.sign(np.diff(P, prepend=2 * P[0] - P[1])).astype(int)
    table = states(np.array(P), direction, np.zeros(count), np.full(count, STEPS))
    table |= {"chi": np.full(count, np.inf), "thermalize": np.zeros(count, int)}
    flat = X.reshape(-1, members, 5)
    state = np.repeat(np.arange(count), rows)[:, None] + np.zeros(members, int)
    sweep = np.concatenate([k * STEPS + np.linspace(0, STEPS, rows + 1)[1:] for k in range(count)])
    numbers = {
        "H": np.repeat(H, rows, axis=0),
        "loss": 1 - flat[..., 0],
        "share": np.ones(flat.shape[:2]),
    }
    fields = {"protocol": "train", "job": job, "training": numbers, "sweep": sweep.astype(int)}
    return run(flat, state, table, planned_sweeps=count * STEPS, **(fields | changes))


def up_and_down():
    """Members 0, 1, 2 jump up at P = 410, 420, 420 and down at 280, 270, 270."""
    P = [390, 400, 410, 420, 290, 280, 270, 260]
    jump = np.array([[2, 3, 3], [5, 6, 6]])
    k = np.arange(8)[:, None]
    copies = (k >= jump[0]) & (k < jump[1])
    m = np.where(copies, 0.7, 0.08)[:, None] + np.array([0.0, 0.001, 0.002])
    X = softmax_sums(np.repeat(m, 4, axis=1))
    job = "[protocol]\nkind = 'train'\n"
    return trained(P, X, np.ones((8, 3)), job)


def trapped(sets=1):
    """At P = 60: member 1 and the last are in the minimum with beta < 0; signs are mixed."""
    minima = theory.minima(LINEAR, 60.0)
    deep, other = minima
    alpha = np.array([deep.alpha, other.alpha, deep.alpha, -other.alpha])
    beta = np.array([deep.beta, other.beta, deep.beta + 1e-4, -other.beta])
    H = [deep.F_per_chi, other.F_per_chi, deep.F_per_chi + 1e-3, other.F_per_chi]
    X = np.tile(linear_sums(alpha, beta), (2, 4, 1, 1))
    job = f"[protocol]\nkind = 'train'\npath = 'scratch'\n[data]\nsets = {sets}\n"
    data = trained([60.0, 61.0], X, np.tile(H, (2, 1)), job, model=LINEAR, switch=None)
    data.states["branch"][:] = 0
    return deep, other, data


def test_switching_points_are_the_middle_of_the_step():
    result = training.analyze(up_and_down())
    up, down = result.switches
    assert up.at == (405, 415, 415)
    assert down.at == (285, 275, 275)
    assert up.value == pytest.approx(1235 / 3)
    # Scatter of three members, and a step of 10 that they share.
    assert up.error == pytest.approx(np.sqrt(np.var([405, 415, 415], ddof=1) / 3 + 100 / 12))
    assert up.switched == down.switched == 3
    assert result.theory["P_hi"] == pytest.approx(414.76, abs=0.01)


def test_members_that_stay_are_counted():
    data = up_and_down()
    data.X[:, 1, 0] = 0.08
    up, down = training.analyze(data).switches
    assert (up.switched, down.switched) == (2, 2)
    assert up.note == "2 of 3 members switched"
    assert np.isnan(up.at[1])


def test_values_are_those_at_the_end():
    data = up_and_down()
    data.X[:3, :, 0] = 0.5  # before the last row of the first P
    point = training.analyze(data).points[0]
    assert point.values["m"] == pytest.approx((0.08, 0.081, 0.082))
    assert point.all.m.value == pytest.approx(0.081)
    assert point.all.m.error == pytest.approx(series.independent([0.08, 0.081, 0.082]).error)
    assert point.spread == pytest.approx(0.001)
    assert point.steps == STEPS
    assert point.moving
    assert not training.analyze(up_and_down()).points[0].moving


def test_sgld_is_averaged_over_rows():
    data = up_and_down()
    x = np.random.default_rng(1).standard_normal((4, 3))
    data.X[:4, :, 0] = 0.08 + 0.001 * x
    job = "[protocol]\nkind = 'train'\noptimiser = 'sgld'\n"
    point = training.analyze(replace(data, job=job)).points[0]
    assert point.all.m.value == pytest.approx((0.08 + 0.001 * x).mean())
    assert point.all.m.error == pytest.approx(series.mean(0.08 + 0.001 * x).error)
    assert np.isnan(point.reached)


def test_the_trapped_are_counted_and_the_best_is_marked():
    deep, other, data = trapped()
    point = training.analyze(data).points[0]
    assert point.reached == 0.5
    assert point.trapped == 0.5
    assert point.best_members == (0,)
    assert point.best.beta.value == pytest.approx(deep.beta)
    assert point.best.alpha.value == pytest.approx(deep.alpha)
    assert point.values["beta"] == pytest.approx(
        (deep.beta, other.beta, deep.beta + 1e-4, other.beta)
    )


def test_with_data_sets_the_error_is_over_these():
    deep, other, data = trapped(sets=2)
    point = training.analyze(data).points[0]
    assert point.best_members == (0, 2)
    pair = [(deep.beta + other.beta) / 2, (deep.beta + 1e-4 + other.beta) / 2]
    assert point.all.beta.error == pytest.approx(series.independent(pair).error)
    best = series.independent([deep.beta, deep.beta + 1e-4])
    assert point.best.beta.error == pytest.approx(best.error)


def test_what_is_printed_and_written():
    for data in (up_and_down(), trapped()[2]):
        result = training.analyze(data)
        text = io.StringIO()
        report.print_tables(result, Console(file=text, width=80, highlight=False))
        assert max(map(len, text.getvalue().splitlines())) <= 80
        assert "…" not in text.getvalue()
        plain = json.loads(report.json_text(result))
        assert plain["protocol"] == "train"
        assert len(plain["points"]) == len(result.points)
        assert plain["chi"] is None
    assert "not all members reach" in text.getvalue()
    assert "50%" in text.getvalue()


def test_the_figure_shows_every_member():
    result = training.analyze(up_and_down())
    lines = comparison.lines(SOFTMAX, result.chi, 260, 420)
    axes = training_figure.training_figure(result, lines).axes
    shown = np.concatenate(
        [np.column_stack(line.get_data()) for line in axes[0].lines if line.get_mfc() == "none"]
    )
    expected = [(p.P, m) for p in result.points for m in p.values["m"]]
    np.testing.assert_allclose(np.sort(shown, axis=0), np.sort(expected, axis=0))
    linear = comparison.lines(LINEAR, np.inf, 50, 70)
    assert [curve.kind for curve in linear.curves] == ["stable"]  # no averages at chi = inf
    training_figure.training_figure(training.analyze(trapped()[2]), linear)


def test_other_runs_are_refused():
    data = up_and_down()
    with pytest.raises(RunFileError, match="expected a train run"):
        training.analyze(run(data.X, data.state, data.states))
