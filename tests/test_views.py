"""Views of run files from the command line: tables, JSON, figures, and what is refused."""

import json
import typing

import pytest
import synthetic_runs as synthetic
import test_precursors
import test_stages
from typer.testing import CliRunner

from mcattn import cli_options
from mcattn.analysis import comparison, views
from mcattn.cli import app
from mcattn.errors import JobError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = {
        "softmax": synthetic.known_run()[0],
        "linear": test_stages.linear_run(1),
        "approach": test_precursors.approach(1),
    }
    return {name: synthetic.write(run, folder / f"{name}.h5") for name, run in runs.items()}


# The view "transition" has its own runs in test_crossing.py and test_transition.py.
QUESTIONS = {"stages": ("softmax", "linear"), "precursors": ("approach",)}


@pytest.mark.parametrize("view", QUESTIONS)
def test_every_view_prints_tells_json_and_draws(view, files, monkeypatch):
    monkeypatch.setattr(comparison, "EXACT_POINTS", 5)  # of a line that takes 0.1 s a point
    names = [str(files[name]) for name in QUESTIONS[view]]
    printed = CliRunner().invoke(app, ["analyze", "--view", view, *names])
    assert printed.exit_code == 0, printed.output
    told = CliRunner().invoke(app, ["analyze", "--json", "--view", view, *names])
    told = json.loads(told.stdout, parse_constant=lambda text: pytest.fail(text))
    assert len(told) == 2 if len(names) == 2 else told["view"] == view
    out = files["softmax"].with_name(f"{view}.png")
    drawn = CliRunner().invoke(app, ["plot", "--view", view, *names])
    assert drawn.exit_code == 0, drawn.output
    assert out.stat().st_size > 10_000
    assert set(views.VIEWS) >= set(QUESTIONS)


def test_the_command_line_offers_every_view():
    """Written out there, so that asking for help loads no analysis."""
    kinds, option = typing.get_args(cli_options.ViewName)
    assert set(typing.get_args(typing.get_args(kinds)[0])) == set(views.VIEWS)
    assert all(f"{name} (" in option.help for name in views.VIEWS)


def test_several_runs_need_a_view(files):
    result = CliRunner().invoke(app, ["analyze", str(files["softmax"]), str(files["linear"])])
    assert isinstance(result.exception, JobError)
    assert "--view" in str(result.exception)


def test_a_figure_never_replaces_a_run(files, tmp_path):
    run = files["linear"].rename(tmp_path / "linear.png")
    before = run.read_bytes()
    with pytest.raises(JobError, match="is one of the run files"):
        views.plot([run], "stages", run)
    assert run.read_bytes() == before
    run.rename(files["linear"])
