"""Views of one run or of several together: their tables, JSON and figures.

`report` tells what a single run is by itself; a view asks a question of the runs it is given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mcattn import terminal
from mcattn.analysis import (
    comparison,
    onset,
    planes,
    points_table,
    precursors,
    routes,
    sizes,
    stages,
    verify,
    verify_table,
)
from mcattn.analysis.onset import OnsetResult
from mcattn.analysis.planes import PlanesResult
from mcattn.analysis.precursors import PrecursorsResult
from mcattn.analysis.routes import RoutesResult
from mcattn.analysis.series import CONSTANT, Estimate, short
from mcattn.analysis.sizes import SizesResult
from mcattn.analysis.stages import StagesResult
from mcattn.analysis.verify import VerifyResult
from mcattn.errors import JobError
from mcattn.runfile import Run, open_run


@dataclass(frozen=True)
class View:
    """How a view reads runs, prints what it found and draws it.

    read : results, one record for each run or for all together, with `to_json` and `warnings`.
    show : titles and tables, and lines of text below them.
    draw : the figure.
    """

    read: Callable[[Sequence[Run]], list[Any]]
    show: Callable[[list[Any]], tuple[list[tuple[str, Table]], list[str]]]
    draw: Callable[[list[Any]], Any]


def read(paths: Sequence[Path], name: str) -> list[Any]:
    """What a view finds in these run files, finished or not.

    Raises
    ------
    RunFileError, TooFewSamplesError : as the view's own analysis.
    """
    return VIEWS[name].read([open_run(path) for path in paths])


def json_text(results: list[Any]) -> str:
    """Strict JSON: the result, or a list of them if the view has one for each run."""
    plain = [result.to_json() for result in results]
    return json.dumps(plain if len(plain) > 1 else plain[0], indent=2, allow_nan=False)


def print_tables(results: list[Any], name: str, console: Console | None = None) -> None:
    """Print the results; 0.0735(2) means 0.0735 +- 0.0002."""
    console = console or terminal.console()
    tables, text = VIEWS[name].show(results)
    for title, table in tables:
        console.print(title, style="bold", markup=False)
        console.print(table)
        console.print()
    for line in text:
        console.print(line, markup=False)
    for result in results:
        for warning in result.warnings:
            console.print(f"! {warning}", markup=False)


def plot(paths: Sequence[Path], name: str, out: str | Path) -> None:
    """Write a view's figure.

    Raises
    ------
    JobError : `out` has an ending that is no figure's, or is one of the run files.
    RunFileError, TooFewSamplesError : as `read`.
    """
    from mcattn.analysis import figures  # matplotlib is slow to import, and tables need none

    figures.check(out)
    if any(Path(out).exists() and path.exists() and path.samefile(out) for path in paths):
        raise JobError(f"{out} is one of the run files; choose another name for the figure")
    figures.save(VIEWS[name].draw(read(paths, name)), out)


def _estimate(estimate: Estimate, scale: float = 1) -> str:
    return short(scale * estimate.value, scale * estimate.error)


def _title(result: Any) -> str:
    model = result.model
    return (
        f"{result.path}: {model.attention} attention, L = {model.L}, V = {model.V}, "
        f"chi = {result.chi:g}"
    )


def _stages(results: list[StagesResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    tables, lines = [], []
    for result in results:
        table = terminal.table("stage", "from P", "theory", "mark", left=("stage", "mark"))
        for stage in result.stages:
            seen = _estimate(stage.P) if stage.P.n else "not reached"
            table.add_row(stage.name, seen, short(stage.exact, 0), stage.mark)
        tables.append((f"Stages in {_title(result)}", table))
        lines += [
            f"At the jump {name} goes from {_estimate(a)} to {_estimate(b)}."
            for name, (a, b) in result.jump.items()
        ]
    return tables, lines


def _precursors(results: list[PrecursorsResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    tables = []
    for result in results:
        name = result.order_parameter
        order, loss = (_power(result, x) for x in ("variance", "loss_variance"))
        heads = (f"1e{order} var({name})", "ratio", "sweeps", "loss", f"1e{loss} var(loss)")
        table = terminal.table("P", "P/P_t", *heads)
        for state in result.states:
            table.add_row(
                f"{state.P:.5g}",
                f"{state.distance:.3f}",
                _estimate(state.variance, 10**order),
                *map(_estimate, (state.growth, state.time, state.loss)),
                _estimate(state.loss_variance, 10**loss),
            )
        at = f"P_t = {result.transition:.5g} ({result.source})"
        tables.append((f"Approach in {_title(result)}; {at}", table))
    note = "sweeps: autocorrelation time of the order parameter; ratio: to the lowest P."
    return tables, [note, *(result.statement for result in results)]


def _power(result: PrecursorsResult, name: str) -> int:
    """The power of ten, a multiple of 3, that brings a column of small values near 1."""
    largest = max(getattr(state, name).value for state in result.states)
    return 3 * math.ceil(-math.log10(largest) / 3)


def _draw_stages(results: list[StagesResult]) -> Any:
    from mcattn.analysis import stages_figure

    theories = []
    for result in results:
        P = [point.P for point in result.points]
        theories.append(comparison.lines(result.model, result.chi, min(P), max(P)))
    return stages_figure.stages_figure(results, theories)


def _draw_precursors(results: list[PrecursorsResult]) -> Any:
    from mcattn.analysis import precursors_figure

    return precursors_figure.precursors_figure(results)


def _routes(results: list[RoutesResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    tables = []
    for result in results:
        table = terminal.table("quantity", "value", "pull", "source", left=("quantity", "source"))
        for line in (*result.lines, *result.barriers, *result.jumps):
            known = line.P.flag == CONSTANT
            value = f"{line.P.value:.6g}" if known else _estimate(line.P)
            pull = f"{line.pull:+.1f}" if math.isfinite(line.pull) else ""
            table.add_row(line.name, value, pull, line.source)
        model = result.model
        tables.append(
            (f"P* of L = {model.L}, V = {model.V}, chi = {result.chi:g} by every route", table)
        )
    note = "pull: distance from finite-chi theory in combined errors."
    return tables, [note, *(result.verdict for result in results)]


def _draw_routes(results: list[RoutesResult]) -> Any:
    from mcattn.analysis import routes_figure

    return routes_figure.routes_figure(results[0])


def _sizes(results: list[SizesResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    return [points_table.sizes(results[0])], [results[0].verdict]


def _draw_sizes(results: list[SizesResult]) -> Any:
    from mcattn.analysis import points_figures

    return points_figures.sizes_figure(results[0])


def _planes(results: list[PlanesResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    return [points_table.planes(results[0])], [results[0].verdict]


def _draw_planes(results: list[PlanesResult]) -> Any:
    from mcattn.analysis import points_figures

    return points_figures.planes_figure(results[0])


def _onset(results: list[OnsetResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    return [points_table.onsets(results[0])], [results[0].verdict]


def _draw_onset(results: list[OnsetResult]) -> Any:
    from mcattn.analysis import onset_figure

    return onset_figure.onset_figure(results[0])


def _verify(results: list[VerifyResult]) -> tuple[list[tuple[str, Table]], list[str]]:
    return [pair for result in results for pair in verify_table.tables(result)], [verify_table.NOTE]


def _draw_verify(results: list[VerifyResult]) -> Any:
    from mcattn.analysis import verify_figure

    return verify_figure.verify_figure(results)


VIEWS = {
    "verify": View(verify.analyze, _verify, _draw_verify),
    "onset": View(lambda runs: [onset.analyze(runs)], _onset, _draw_onset),
    "sizes": View(lambda runs: [sizes.analyze(runs)], _sizes, _draw_sizes),
    "planes": View(lambda runs: [planes.analyze(runs)], _planes, _draw_planes),
    "transition": View(lambda runs: [routes.analyze(runs)], _routes, _draw_routes),
    "stages": View(lambda runs: [stages.analyze(run) for run in runs], _stages, _draw_stages),
    "precursors": View(
        lambda runs: [precursors.analyze(run) for run in runs], _precursors, _draw_precursors
    ),
}
