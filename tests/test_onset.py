"""The onset of linear attention from short runs at two chi, against exact averages."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
from rich.console import Console

from mcattn import linear_stages, theory
from mcattn.analysis import onset, views
from mcattn.errors import RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import open_run

MODEL = {"L": 5, "V": 3, "attention": "linear", "kappa": 1.0, "g_s": 1.0, "g_w": 0.3}
P_C = theory.critical_P(CopyModel(**MODEL))
PROTOCOL = {
    "kind": "tempering",
    "P": [0.85 * P_C, 1.6 * P_C],
    "states": 8,
    "ladders": 4,
    "exchange_every": 10,
    "every": 10,
    "tune_rounds": 1,
    "thermalize": 500,
    "sweeps": 6000,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onset")
    found = {}
    for chi in (100.0, 400.0):
        found[chi] = folder / f"chi{chi:g}.h5"
        table = {"model": MODEL, "protocol": PROTOCOL | {"chi": chi}, "run": {"seed": 2}}
        checked, text = tiny.of_table(table)
        tiny.run.start(checked, text, found[chi], tiny.Serial(), tiny.run.Watch())
    return found


@pytest.fixture(scope="module")
def result(files):
    return onset.analyze([open_run(path) for path in files.values()])


def marks(found):
    return (found.half, found.peak, found.var, found.exponent)


def test_the_marks_meet_the_exact_ones(result):
    """Eight numbers and a crossing at a fixed seed: |z| < 4."""
    pulls = [mark.pull for found in result.onsets for mark in marks(found)]
    pulls += [mark.pull for mark in result.crossings]
    assert len(pulls) == 9
    assert np.abs(pulls).max() < 4, pulls
    assert result.onsets[1].half.found.error < 0.02 * P_C


def test_a_wrong_model_is_seen(files):
    """Control: kappa taken to be 3 % larger than that of the run."""
    run = open_run(files[400.0])
    data = onset._pool(replace(run, model=replace(run.model, kappa=1.03)))[0]
    exact = linear_stages.onset(data.pool.model, 400.0)
    found = onset._root(data, data.half, lambda P, whole: data.read(P, whole)[:, 0] - onset.HALF)
    assert abs(found.value - exact) > 5 * found.error


def test_the_crossing_is_nearer_to_P_c_than_the_marks(result):
    (mark,) = result.crossings
    assert abs(mark.exact - result.P_c) < 0.8 * abs(result.onsets[1].half.exact - result.P_c)
    assert [found.maxima for found in result.onsets] == [1, 1]
    assert result.verdict.startswith("Continuous: p(|tau|) has a single maximum")
    assert result.P_c == pytest.approx(P_C)
    assert result.onsets[0].critical > result.onsets[1].critical > P_C


def test_the_power_of_a_root_is_one_half():
    P = np.linspace(1.03, 1.3, 8)
    for b in (0.5, 1.0):
        assert onset.power(P, 2.3 * (P - 0.97) ** b, 0.97) == pytest.approx(b, rel=1e-9)


def test_tables_json_and_figure(result, tmp_path):
    told = json.loads(views.json_text([result]), parse_constant=lambda text: pytest.fail(text))
    assert told["onsets"][1]["half"]["found"]["error"] > 0
    assert "P" not in told["onsets"][0]
    text = io.StringIO()
    tables, lines = views.VIEWS["onset"].show([result])
    Console(file=text, width=200).print(tables[0][1])
    assert "cumulants cross" in text.getvalue()
    assert lines == [result.verdict]
    views.VIEWS["onset"].draw([result]).savefig(tmp_path / "onset.png")
    assert (tmp_path / "onset.png").stat().st_size > 10_000


def test_what_has_no_onset_is_refused(files):
    run = open_run(files[100.0])
    softmax = replace(run, model=replace(run.model, attention="softmax"))
    with pytest.raises(
        RunFileError, match="softmax attention jumps; see mcattn analyze --view sizes"
    ):
        onset.analyze([softmax])
    with pytest.raises(RunFileError, match="has another model than"):
        onset.analyze([run, replace(run, model=replace(run.model, kappa=2.0))])
    with pytest.raises(RunFileError, match="are both at chi = 100; give one"):
        onset.analyze([run, run])
    early = replace(run, states=run.states | {"P": run.states["P"] / 8})
    with pytest.raises(TooFewSamplesError, match=r"sample nearer to the onset"):
        onset.analyze([early])
    short = replace(run, sweep=run.sweep[:5], state=run.state[:5], X=run.X[:5])
    with pytest.raises(TooFewSamplesError, match="too few samples: 5 rows"):
        onset.analyze([short])
