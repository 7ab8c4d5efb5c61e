"""Runs side by side: finite-size tables and their verdicts, phase planes, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from synthetic_runs import known_run
from toys import Toy

from mcattn import theory
from mcattn.analysis import planes, points, sizes, views
from mcattn.analysis.points import UNKNOWN, Point
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import open_run

PROTOCOL = {
    "kind": "umbrella",
    "chi": 10.0,
    "ladders": 2,
    "tune_rounds": 1,
    "tune_sweeps": 300,
    "thermalize": 500,
    "sweeps": 4000,
    "every": 10,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Short runs of the standard parameters at (L, V) = (8, 16), (12, 16), (12, 8)."""
    folder = tmp_path_factory.mktemp("points")
    found = {}
    for L, V in ((8, 16), (12, 16), (12, 8)):
        found[L, V] = folder / f"L{L}V{V}.h5"
        table = {"model": {"L": L, "V": V}, "protocol": PROTOCOL, "run": {"seed": 5}}
        checked, text = tiny.of_table(table)
        tiny.run.start(checked, text, found[L, V], tiny.Serial(), tiny.run.Watch())
    return found


def test_a_plane_meets_the_theory(files, monkeypatch, tmp_path):
    """P* of the two runs with two phases within 4 errors of finite-chi theory."""
    monkeypatch.setattr(planes, "LINE", 2)
    found = planes.analyze([open_run(path) for path in files.values()])
    assert [(p.model.L, p.model.V, p.phases) for p in found.points] == [
        (8, 16, 1), (12, 8, 2), (12, 16, 2),
    ]  # fmt: skip
    assert [(plane.name, plane.fixed) for plane in found.planes] == [("L", 16), ("V", 12)]
    for point in found.points[1:]:
        assert abs(planes.pull(point)) < 4
        assert point.P.error < 0.002 * point.P.value
        # Control: the landscape's P*, which lacks the scores' fluctuations, is far off.
        assert abs(point.P.value - point.landscape["P_star"]) > 10 * point.P.error
    assert np.isnan(planes.pull(found.points[0]))
    line = found.planes[0].line
    assert np.all(np.diff(line.x) > 0)
    assert line.P_star[-1] == pytest.approx(found.points[-1].theory["P"], rel=0.2)
    assert "2 of 3 runs show two phases; one phase at L = 8, V = 16" in found.verdict
    assert views.VIEWS["planes"].show([found])[0][0][1].row_count == 3
    views.VIEWS["planes"].draw([found]).savefig(tmp_path / "planes.png")
    assert (tmp_path / "planes.png").stat().st_size > 10_000


def test_a_finite_size_table(files, tmp_path):
    result = sizes.analyze([open_run(files[key]) for key in ((12, 16), (8, 16))])
    told = json.loads(views.json_text([result]), parse_constant=lambda text: pytest.fail(text))
    assert told["kind"] == "undecided"
    assert [point["phases"] for point in told["points"]] == [1, 2]
    L8, L12 = told["points"]
    assert L12["barrier"]["value"] == pytest.approx(
        L12["theory"]["barrier"], abs=4 * L12["barrier"]["error"]
    )
    assert L8["P"]["value"] is None
    assert 0 < L8["binder"]["value"] < L12["binder"]["value"] < 2 / 3
    tables, lines = views.VIEWS["sizes"].show([result])
    assert tables[0][1].row_count == 2
    assert "runs of two phases at two L" in lines[0]
    views.VIEWS["sizes"].draw([result]).savefig(tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").stat().st_size > 10_000


def test_unfinished_and_empty_members_are_shown(files):
    """One without the rows for an answer, and one stopped halfway: both have a line."""
    runs = [open_run(path) for path in files.values()]
    cut = replace(
        runs[1], complete=False, sweep=runs[1].sweep[:4], state=runs[1].state[:4], X=runs[1].X[:4]
    )
    half = replace(runs[2], complete=False)
    found = points.read([runs[0], cut, half], ("L", "V"))
    assert [point.phases for point in found] == [1, 2, 0]
    assert "too few samples: 4 rows" in found[2].said
    assert found[2].warnings == (found[2].said,)
    assert any("unfinished" in text for text in found[1].warnings)


def test_what_cannot_stand_side_by_side_is_refused():
    run = Toy(chi=3.0, P=350.0).run(1, rows=30)
    longer = replace(run, model=replace(run.model, L=24), path=Path("longer.h5"))
    kappa = replace(longer, model=replace(longer.model, kappa=2.0))
    with pytest.raises(RunFileError, match=r"longer.h5 has kappa = 2.0, .* has 1.0; .* L only"):
        sizes.analyze([run, kappa])
    with pytest.raises(RunFileError, match="both have L = 16; give one of them"):
        sizes.analyze([run, run])
    hotter = replace(longer, states=run.states | {"chi": 2 * run.states["chi"]})
    with pytest.raises(RunFileError, match=r"longer.h5 is at chi = 6, .* at 3; .* must share chi"):
        sizes.analyze([run, hotter])
    with pytest.raises(RunFileError, match="is a hysteresis run; expected an umbrella run"):
        sizes.analyze([known_run()[0]])
    with pytest.raises(RunFileError, match="linear attention has no jump"):
        planes.analyze([replace(run, model=replace(run.model, attention="linear"))])


def test_runs_that_make_no_plane():
    run = Toy(chi=3.0, P=350.0).run(1, rows=30)
    with pytest.raises(RunFileError, match="the runs make no plane: give at least two"):
        planes.analyze([run])


def point(L, barrier=None, var=0.07, **changes):
    """A point of a finite-size table, of two phases if it has a barrier."""
    two = barrier is not None
    return replace(
        Point(
            path=Path(f"L{L}.h5"),
            model=CopyModel(L=L),
            chi=10.0,
            complete=True,
            phases=2 if two else 1,
            said="",
            P=Estimate(300.0, 0.1, NAN, NAN) if two else UNKNOWN,
            barrier=Estimate(barrier, 0.1, NAN, NAN) if two else UNKNOWN,
            dm=Estimate(0.5, 0.01, NAN, NAN) if two else UNKNOWN,
            P_peak=Estimate(300.0, 0.1, NAN, NAN),
            var=Estimate(var, var / 100, NAN, NAN),
            binder=Estimate(0.6, 0.01, NAN, NAN),
            round_trips=30,
            theory={},
            landscape={},
            warnings=(),
        ),
        **changes,
    )


@pytest.mark.parametrize(
    ("found", "kind", "said"),
    [
        ([point(12, 6.0), point(16, 18.0)], "first order", "3.00(4) kT per position"),
        ([point(8), point(12, 6.0), point(16, 18.0)], "first order", "; one phase at L = 8"),
        ([point(12, 6.0), point(16, 6.1)], "undecided", "the barrier does not grow"),
        ([point(12, 6.0), point(16, 5.0)], "undecided", "the barrier does not grow"),
        ([point(12, 6.0)], "undecided", "two phases at L = 12; runs of two phases"),
        ([point(8), point(16)], "continuous", "has one maximum at every P for L = 8 to 16"),
        ([point(8, var=0.08), point(16, var=0.04)], "no transition seen", "power -1.00(2)"),
        ([point(8, phases=0)], "undecided", "no run tells"),
    ],
)
def test_verdicts(found, kind, said):
    kinds, verdict, _, _ = sizes.judged(found, "m")
    assert kinds == kind
    assert said in verdict


def test_the_law_is_the_limit_of_the_landscape():
    """P*/law comes down towards 1 as L grows; theory.md has 7.5/3.0 times 4 at L = 16 and 64."""
    ratio = []
    for L in (16, 64, 1024):
        model = CopyModel(L=L)
        ratio.append(theory.boundary(model, np.inf).P_star / planes.law(model))
    four = 4 * 15 / 16
    assert ratio[:2] == pytest.approx([7.5 * four, 3.0 * four], rel=0.02)
    assert 1 < ratio[2] < ratio[1] / 2
