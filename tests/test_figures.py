"""Figures: they show the records' numbers, legibly."""

from __future__ import annotations

import functools
import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from rich.console import Console
from synthetic_runs import (
    GRID,
    SOFTMAX,
    first_rows,
    fixed_run,
    known_run,
    linear_run,
    one_way,
    path,
    run,
    softmax_sums,
    states,
    switching_run,
)

from mcattn.analysis import comparison, figures, fixed, hysteresis, report, series
from mcattn.analysis.loop import UP
from mcattn.errors import JobError


def theory_of(result):
    P = [point.P for loop in result.loops for point in loop.points]
    return comparison.lines(result.model, result.chi, min(P), max(P))


@pytest.fixture(scope="module")
def softmax():
    return hysteresis.analyze(known_run(sweeps=(1200, 300), rows=8)[0])


@pytest.fixture(scope="module")
def linear():
    data = linear_run(np.random.default_rng(4), rows=10)
    return hysteresis.analyze(replace(data, states=data.states | {"chi": np.full(16, 200.0)}))


@pytest.fixture(scope="module")
def linear_theory(linear):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "EXACT_POINTS", 6)
        return theory_of(linear)


def drawn(axes, color, marker):
    """x and y of the points of this look, shape (2, n)."""
    lines = [
        line
        for line in axes.lines
        if line.get_marker() == marker and np.allclose(line.get_color(), color)
    ]
    assert len(lines) == 1
    return np.asarray(lines[0].get_data())


def test_softmax_figure_shows_the_records(softmax):
    figure = figures.hysteresis_figure(softmax, theory_of(softmax))
    strip, main, bottom = figure.axes
    points = softmax.slowest.branch(UP)
    color = np.array(figures.to_rgb(figures.VERMILION))
    x, y = drawn(main, color, "^")
    np.testing.assert_array_equal(x, [point.P for point in points])
    np.testing.assert_array_equal(y, [point.m.value for point in points])
    np.testing.assert_array_equal(
        drawn(bottom, color, "^")[1], [point.loss.value for point in points]
    )
    x, _ = next(line.get_data() for line in strip.lines if line.get_marker() == "^")
    assert x == [softmax.slowest.P_up.value]
    sticks = sum(len(c.get_segments()) for c in strip.collections if len(c.get_segments()) > 1)
    switches = [s.at for loop in softmax.loops for s in (loop.P_up, loop.P_down)]
    assert sticks == sum(len(set(P)) for P in switches)
    labels = [text.get_text() for text in strip.texts]
    assert labels == [r"$P_\mathrm{lo}$", r"$P\!^*$", r"$P_\mathrm{hi}$"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:4] == [
        "$P$ rising",
        "$P$ falling",
        "1500 sweeps per point",
        "375 sweeps per point",
    ]


def test_linear_figure_shows_the_records(linear, linear_theory):
    figure = figures.hysteresis_figure(linear, linear_theory)
    main, bottom = figure.axes
    points = linear.slowest.branch(UP)
    for name, color in figures.QUANTITY_COLOR.items():
        _, y = drawn(main, np.array(figures.to_rgb(color)), "^")
        np.testing.assert_array_equal(y, [getattr(point, name).value for point in points])
    assert [text.get_text() for text in main.texts] == [r"$P_\mathrm{c}$"]
    assert bottom.get_ylabel() == "test loss"


def test_theory_lines_join_at_the_spinodals():
    theory = comparison.lines(SOFTMAX, 10.0, 270.0, 450.0)
    (_, low), (_, middle), (_, high) = theory.marks
    assert (low, middle, high) == pytest.approx((294.53, 320.513, 420.84), abs=0.01)
    uniform, copy, unstable = theory.curves
    for stable, P in ((uniform, high), (copy, low)):
        at = stable.P == P
        np.testing.assert_allclose(stable.m[at], unstable.m[at], atol=0.01)
    assert np.nanmin(np.where(np.isnan(copy.m), np.nan, copy.P)) == low
    assert np.nanmax(np.where(np.isnan(uniform.m), np.nan, uniform.P)) == high
    assert (np.nan_to_num(uniform.m) < 0.2).all()


def test_exact_linear_line_is_near_the_landscape_far_from_the_onset(linear_theory):
    minimum, exact = linear_theory.curves
    far = (exact.P > 20) & (exact.P < 32)
    at = np.interp(exact.P[far], minimum.P, minimum.alpha)
    np.testing.assert_allclose(exact.alpha[far], at, rtol=0.02)
    assert exact.alpha[0] > 0.1 > minimum.alpha[0]


def test_no_theory_for_mixed_chi(softmax):
    assert theory_of(replace(softmax, chi=series.NAN)) == comparison.NOTHING


def drawn_texts(figure, monkeypatch):
    """Every text that reaches the page, with its box in pixels."""
    texts, draw = set(), Text.draw

    def record(self, renderer):
        if self.get_visible() and self.get_text().strip():
            texts.add(self)
        draw(self, renderer)

    canvas = FigureCanvasAgg(figure)
    with monkeypatch.context() as patch, figures.matplotlib.rc_context(fname=figures.STYLE):
        patch.setattr(Text, "draw", record)
        canvas.draw()
    return {text: text.get_window_extent(canvas.get_renderer()) for text in texts}


def overlapping(figure, monkeypatch):
    """Pairs of texts that overlap, and texts that leave the figure."""
    boxes, page = drawn_texts(figure, monkeypatch), figure.bbox
    outside = [text.get_text() for text, b in boxes.items() if b.x0 < page.x0 or b.x1 > page.x1]
    pairs = [
        (a.get_text(), b.get_text())
        for a, b in itertools.combinations(boxes, 2)
        if boxes[a].overlaps(boxes[b])
    ]
    return pairs + outside


def crowded(*P):
    marks = tuple(zip((r"$P_\mathrm{lo}$", r"$P\!^*$", r"$P_\mathrm{hi}$"), P, strict=True))
    return comparison.Theory((), marks)


@pytest.mark.parametrize(
    "theory",
    [None, crowded(300, 301, 302), crowded(300, 308, 480)],
)
def test_no_label_overlaps_softmax(softmax, theory, monkeypatch):
    theory = theory_of(softmax) if theory is None else theory
    assert overlapping(figures.hysteresis_figure(softmax, theory), monkeypatch) == []


def test_overlap_is_noticed(softmax, monkeypatch):
    """The control: labels put on one spot."""
    figure = figures.hysteresis_figure(softmax)
    for word in ("one", "two"):
        figure.axes[1].text(300, 0.5, word)
    assert [set(pair) for pair in overlapping(figure, monkeypatch)] == [{"one", "two"}]


def test_no_label_overlaps_linear_and_fixed(linear, linear_theory, monkeypatch):
    assert overlapping(figures.hysteresis_figure(linear, linear_theory), monkeypatch) == []
    result = fixed.analyze(fixed_run(np.random.default_rng(1), rows=40))
    lines = comparison.lines(result.model, 10.0, 250.0, 450.0)
    assert overlapping(figures.fixed_figure(result, lines), monkeypatch) == []


def test_many_rates_do_not_overlap(monkeypatch):
    data, _, _ = known_run(sweeps=(100, 300, 1000, 3000, 10000), rows=1, replicas=8)
    result = hysteresis.analyze(data)
    assert overlapping(figures.hysteresis_figure(result, theory_of(result)), monkeypatch) == []


@functools.cache
def awkward_runs():
    rng = np.random.default_rng(2)
    never = np.full((1, 8), 1e9)
    whole = switching_run(np.full((1, 8), 400.0), np.full((1, 8), 300.0), path(GRID), 3, rng)
    one_point = states(np.array([300.0]), np.zeros(1, int), np.zeros(1, int), np.full(1, 10))
    return {
        "no transition": switching_run(never, -never, path(GRID), 3, rng),
        "one row": first_rows(whole, 1),
        "up branch only": first_rows(whole, 60),
        "one replica": known_run(replicas=1, rows=3)[0],
        "one point": run(softmax_sums(np.full((2, 3), 0.1)), np.zeros((2, 3), int), one_point),
        "one way": switching_run(np.full((1, 8), 400.0), never, one_way(GRID, UP), 3, rng),
    }


@pytest.mark.parametrize("name", awkward_runs())
def test_awkward_runs_are_drawn_and_printed(name):
    result = hysteresis.analyze(awkward_runs()[name])
    FigureCanvasAgg(figures.hysteresis_figure(result)).draw()
    json.loads(report.json_text(result))
    report.print_tables(result, Console(file=io.StringIO(), width=80))


def test_a_failed_drawing_leaves_the_old_figure(tmp_path, monkeypatch, softmax):
    out = tmp_path / "loop.png"
    out.write_text("an older figure")
    figure = figures.hysteresis_figure(softmax)

    def fail(part, **_):
        part.write_text("half a figure")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(JobError, match=r"cannot write .*disk full"):
        figures.save(figure, out)
    assert out.read_text() == "an older figure"
    assert list(tmp_path.iterdir()) == [out]
