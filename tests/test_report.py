"""From run files to tables, JSON and figures, without a display and without harm to the file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace

import h5py
import numpy as np
import pytest
from rich.console import Console
from synthetic_runs import fixed_run, known_run, linear_run, write

from mcattn.analysis import fixed, hysteresis, report
from mcattn.errors import JobError, RunFileError


def printed(result):
    text = io.StringIO()
    report.print_tables(result, Console(file=text, width=80, highlight=False))
    return text.getvalue()


def test_tables():
    softmax = hysteresis.analyze(known_run(sweeps=(1200, 300), rows=8)[0])
    text = printed(softmax)
    up = softmax.slowest.P_up
    assert report.short(up.value, up.error) in text
    assert "32/32" in text
    assert "1500 sweeps per point" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    linear = linear_run(np.random.default_rng(4), rows=10)
    assert "P up" not in printed(hysteresis.analyze(linear))
    averages = fixed.analyze(fixed_run(np.random.default_rng(1)))
    value = averages.states[0].m
    assert report.short(value.value, value.error) in printed(averages)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.07351, 0.0002, "0.0735(2)"),
        (0.07351, 0.00014, "0.07351(14)"),
        (0.07351, 0.000196, "0.0735(2)"),
        (320.513, 1.42, "320.5(14)"),
        (320.513, 3.3, "321(3)"),
        (3205.13, 42.0, "3205(42)"),
        (0.5, 0.0996, "0.50(10)"),
        (-0.25, 0.96, "-0.2(10)"),
        (-0.00001, 0.0005, "0.0000(5)"),
        (1.0, 0.0, "1"),
        (0.25, float("nan"), "0.25(?)"),
        (float("nan"), 1.0, "-"),
    ],
)
def test_short(value, error, text):
    assert report.short(value, error) == text


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_plot_leaves_the_run_alone(tmp_path, kind, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    source = write(known_run(rows=3)[0], tmp_path / "run.h5")
    before = source.read_bytes()
    out = tmp_path / f"loop.{kind}"
    out.write_text("an older figure")
    report.plot_file(source, out)
    assert source.read_bytes() == before
    assert out.stat().st_size > 5000
    assert {entry.name for entry in tmp_path.iterdir()} == {"run.h5", out.name}
    with h5py.File(source, "r+"):  # nobody holds it
        pass


def test_plot_of_a_fixed_run(tmp_path):
    source = write(fixed_run(np.random.default_rng(1), rows=40), tmp_path / "run.h5")
    report.plot_file(source, tmp_path / "fixed.png")
    assert (tmp_path / "fixed.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_names_are_refused_before_the_work(tmp_path):
    with pytest.raises(JobError, match=r"ends in '.jpg'; figures are written as .png, .pdf, .svg"):
        report.plot_file("no-such-run.h5", tmp_path / "a.jpg")
    with pytest.raises(JobError, match="is not a folder"):
        report.plot_file("no-such-run.h5", tmp_path / "no" / "a.png")
    with pytest.raises(RunFileError, match="does not exist"):
        report.plot_file("no-such-run.h5", tmp_path / "a.png")
    other = replace(known_run(rows=1)[0], protocol="ladder")
    said = "ladder run; hysteresis, fixed, tempering, umbrella and train"
    with pytest.raises(RunFileError, match=said):
        report.analyze_file(write(other, tmp_path / "run.h5"))


def test_no_display_is_needed(tmp_path):
    """A display that does not answer, and a backend that would open a window there."""
    source = write(known_run(rows=1, replicas=8)[0], tmp_path / "run.h5")
    code = f"from mcattn.analysis import report; report.plot_file({str(source)!r}, 'loop.png')"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"DISPLAY": "nowhere:99", "MPLBACKEND": "tkagg"},
        cwd=tmp_path,
        check=True,
    )
    assert (tmp_path / "loop.png").stat().st_size > 5000


def test_file_and_record_give_the_same_result(tmp_path):
    data, _, _ = known_run(rows=2)
    source = write(data, tmp_path / "run.h5")
    assert report.json_text(report.analyze_file(source)) == report.json_text(
        hysteresis.analyze(data)
    )


def test_tables_show_what_varies():
    data = known_run()[0]
    table = data.states | {"chi": data.states["P"], "P": np.full_like(data.states["P"], 350.0)}
    text = printed(hysteresis.analyze(replace(data, states=table)))
    assert "chi up" in text
    assert "P up" not in text
