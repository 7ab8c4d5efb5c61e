"""What is said of several runs side by side in a terminal: a row for each, then the verdict."""

from __future__ import annotations

import math
from itertools import pairwise

from rich.table import Table

from mcattn.analysis.onset import OnsetResult
from mcattn.analysis.planes import PlanesResult, pull
from mcattn.analysis.points import Point
from mcattn.analysis.series import Estimate, short
from mcattn.analysis.sizes import SizesResult
from mcattn.analysis.transition import NAME

_PHASES = {0: "?", 1: "1", 2: "2"}


def sizes(result: SizesResult) -> tuple[str, Table]:
    """Title and table of a finite-size table."""
    u = NAME[result.along]
    heads = ("barrier / kT", "theory", "equal rows", f"jump of {u}", "theory", f"var {u}", "B")
    table = _table("L", "phases", *heads, "round trips", "run")
    for point in result.points:
        table.add_row(
            str(point.model.L),
            _PHASES[point.phases],
            _said(point.barrier),
            _number(point.theory.get("barrier")),
            _number(point.landscape.get("barrier")),
            _said(point.dm),
            _number(point.theory.get("dm")),
            *map(_said, (point.var, point.binder)),
            str(point.round_trips),
            _run(point),
        )
    model = result.model
    title = f"Finite sizes of {model.attention} attention, V = {model.V}, chi = {result.chi:g}"
    return title, table


def planes(result: PlanesResult) -> tuple[str, Table]:
    """Title and table of the points of phase diagrams."""
    table = _table(
        "L", "V", "phases", "P*", "theory", "pull", "landscape", "largest var m at", "trips", "run"
    )
    for point in result.points:
        off = pull(point)
        table.add_row(
            str(point.model.L),
            str(point.model.V),
            _PHASES[point.phases],
            _said(point.P),
            _number(point.theory.get("P"), 7),
            f"{off:+.1f}" if math.isfinite(off) else "-",
            _number(point.landscape.get("P_star"), 6),
            _said(point.P_peak),
            str(point.round_trips),
            _run(point),
        )
    return f"P* at chi = {result.chi:g}, against finite-chi theory", table


def onsets(result: OnsetResult) -> tuple[str, Table]:
    """Title and table of the onset at each chi, then of the crossings of cumulants."""
    heads = (
        "P at B = 1/3",
        "exact",
        "P of largest var |tau|",
        "exact",
        "var",
        "exact",
        "b",
        "exact",
    )
    table = _table("chi", *heads, "P_c of landscape", "run")
    for onset in result.onsets:
        marks = (onset.half, onset.peak, onset.var, onset.exponent)
        cells = [text for m in marks for text in (_said(m.found), _number(m.exact, 6))]
        name = onset.path.name if onset.complete else f"{onset.path.name} (unfinished)"
        table.add_row(f"{onset.chi:g}", *cells, _number(onset.critical, 7), name)
    for (one, other), mark in zip(pairwise(result.onsets), result.crossings, strict=True):
        cells = [_said(mark.found), _number(mark.exact, 6), *[""] * 7]
        table.add_row(f"{one.chi:g} x {other.chi:g}", *cells, "cumulants cross")
    model = result.model
    return f"Onset of linear attention, L = {model.L}, V = {model.V}", table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        last = name == "run"
        table.add_column(
            name, justify="left" if last else "right", no_wrap=not last, overflow="fold"
        )
    return table


def _run(point: Point) -> str:
    return point.path.name if point.complete else f"{point.path.name} (unfinished)"


def _said(value: Estimate) -> str:
    return short(value.value, value.error)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"
