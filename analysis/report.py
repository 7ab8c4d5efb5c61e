"""From a run file to results, tables, JSON and figures; the one place here that opens files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mcattn import terminal
from mcattn.analysis import (
    comparison,
    fixed,
    hysteresis,
    series,
    tempering,
    training,
    transition_table,
    umbrella,
)
from mcattn.analysis.fixed import FixedResult, StateSummary
from mcattn.analysis.loop import NAMES, BranchPoint, HysteresisResult, Loop, Switching
from mcattn.analysis.series import Estimate, short
from mcattn.analysis.tempering import TemperingResult
from mcattn.analysis.training import TrainedPoint, TrainingResult
from mcattn.analysis.umbrella import UmbrellaResult
from mcattn.errors import JobError, ModelError, RunFileError
from mcattn.runfile import open_run

Result = HysteresisResult | FixedResult | TemperingResult | UmbrellaResult | TrainingResult


def analyze_file(path: str | Path) -> Result:
    """The result of a run file, finished or not; the file is closed again on return.

    Raises
    ------
    RunFileError : not a run file, or of a protocol that has no analysis.
    TooFewSamplesError : the run has no rows yet.
    """
    run = open_run(path)
    if run.protocol == "hysteresis":
        return hysteresis.analyze(run)
    if run.protocol == "fixed":
        return fixed.analyze(run)
    if run.protocol == "tempering":
        return tempering.analyze(run)
    if run.protocol == "umbrella":
        return umbrella.analyze(run)
    if run.protocol == "train":
        return training.analyze(run)
    raise RunFileError(
        f"{path} is a {run.protocol} run; hysteresis, fixed, tempering, umbrella and train runs "
        "can be analysed"
    )


def plot_file(path: str | Path, out: str | Path) -> None:
    """Analyse a run file and write its figure, by the ending .png, .pdf or .svg.

    Raises
    ------
    JobError : `out` has another ending, or its folder does not exist.
    RunFileError, TooFewSamplesError : as `analyze_file`.
    """
    from mcattn.analysis import figures  # matplotlib is slow to import, and tables need none

    figures.check(out)
    if Path(out).exists() and Path(out).samefile(path):
        raise JobError(f"{out} is the run file itself; choose another name for the figure")
    result = analyze_file(path)
    if isinstance(result, TemperingResult):
        from mcattn.analysis import ladder_figure

        figure = ladder_figure.ladder_figure(result)
    elif isinstance(result, UmbrellaResult):
        from mcattn.analysis import profile_figure

        figure = profile_figure.profile_figure(result)
    elif isinstance(result, TrainingResult):
        from mcattn.analysis import training_figure

        figure = training_figure.training_figure(result, _lines(result, result.points))
    elif isinstance(result, HysteresisResult):
        points = [point for loop in result.loops for point in loop.points]
        figure = figures.hysteresis_figure(result, _lines(result, points))
    else:
        figure = figures.fixed_figure(result, _lines(result, result.states))
    figures.save(figure, out)


def _lines(
    result: HysteresisResult | FixedResult | TrainingResult,
    points: Sequence[BranchPoint | StateSummary | TrainedPoint],
) -> comparison.Theory:
    """Theory over the points' range of P; nothing where they differ in something else."""
    P, chi = [point.P for point in points], {point.chi for point in points}
    if result.control != "P" or len(chi) > 1:
        return comparison.NOTHING
    try:
        return comparison.lines(result.model, chi.pop(), min(P), max(P))
    except ModelError:  # beyond what the theory can resolve; the data are shown all the same
        return comparison.NOTHING


def json_text(result: Result) -> str:
    """The result as strict JSON: what is not a number is null."""
    return json.dumps(result.to_json(), indent=2, allow_nan=False)


def print_tables(result: Result, console: Console | None = None) -> None:
    """Print the result; 0.0735(2) means 0.0735 +- 0.0002."""
    console = console or terminal.console()
    if isinstance(result, UmbrellaResult):
        _print_umbrella(result, console)
        return
    if isinstance(result, TrainingResult):
        from mcattn.analysis import training_table

        training_table.show(result, console)
        return
    if isinstance(result, HysteresisResult):
        tables = [*(_points(result, loop) for loop in result.loops), _loops(result)]
        estimates = [point.m for loop in result.loops for point in loop.points]
    else:
        tables, estimates = [_states(result)], [state.m for state in result.states]
        if isinstance(result, TemperingResult):
            tables += [_swaps(result)]
        elif result.disorder:
            tables += [_disorder(result)]
    for title, table in tables:
        console.print(title, style="bold", markup=False)
        console.print(table)
        console.print()
    if isinstance(result, HysteresisResult) and result.theory:
        console.print(_theory(result), markup=False)
    missing = max((estimate.more or 0 for estimate in estimates), default=0)
    for text in _legend(result, missing):
        console.print(text, markup=False)
    if isinstance(result, TemperingResult):
        console.print(_travel(result), markup=False)
    for text in result.warnings:
        console.print(f"! {text}", markup=False)


def _print_umbrella(result: UmbrellaResult, console: Console) -> None:
    """The windows, their swaps, and the transition."""
    ladder = result.ladder
    for title, table in _states(ladder), _swaps(ladder), transition_table.table(result):
        console.print(title, style="bold", markup=False)
        console.print(table)
        console.print()
    for text in transition_table.lines(result):
        console.print(text, markup=False)
    for text in result.warnings:
        console.print(f"! {text}", markup=False)


def _legend(result: Result, missing: int) -> list[str]:
    """What the columns mean; `missing` rows would resolve the longest autocorrelation time."""
    lines = ["acc.: share of updates accepted; autocorr.: autocorrelation time of m in rows."]
    if isinstance(result, HysteresisResult):
        lines.append("sweeps/point: with those before rows are taken; area: of m(down) - m(up).")
        if result.switch:
            low, high = result.switch
            lines.append(
                "copy: share of rows in the copy phase, which a replica enters as m rises above "
                f"{high:.3f} and leaves as it falls below {low:.3f}."
            )
    if missing:
        lines.append(
            "(autocorr.) in parentheses is a lower bound, as where replicas switch; "
            f"to resolve it would take up to {missing} more rows a replica."
        )
    return lines


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.flag == series.CONSTANT:
        return f"{estimate.value:.6g}"
    return short(estimate.value, estimate.error)


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _tau(estimate: Estimate) -> str:
    return f"({_number(estimate.tau)})" if estimate.more else _number(estimate.tau)


def _note(estimate: Estimate, replicas: int) -> str:
    """The flag; an unresolved tau harms the error only where few replicas leave it no other."""
    if estimate.flag == series.TOO_SHORT and replicas >= series.REPLICAS:
        return ""
    return estimate.flag or ""


def _loops(result: HysteresisResult) -> tuple[str, Table]:
    """One row for each rate: switching points, where the run has a rule for them, and area."""
    title = f"Hysteresis of {_model(result)}, {result.replicas} replicas"
    x = result.control
    switches = (f"{x} up", "switched", f"{x} down", "switched") if result.switch else ()
    table = _table(("sweeps/point", *switches, "area"))
    for loop in result.loops:
        cells = [f(s) for s in (loop.P_up, loop.P_down) for f in (_switch, _switched)]
        cells = cells if result.switch else []
        table.add_row(str(loop.sweeps_per_point), *cells, _estimate(loop.area))
    return title, table


def _theory(result: HysteresisResult) -> str:
    """Where the landscape has its transition, in one line."""
    names = {"P_lo": "P_lo", "P_star": "P*", "P_hi": "P_hi", "P_c": "P_c"}
    known = [f"{names[k]} = {v:.5g}" for k, v in result.theory.items() if k in names and v]
    if not known:
        return "Landscape: a single minimum at every P, so no transition."
    return f"Landscape at this chi, without score fluctuations: {', '.join(known)}."


def _switch(switching: Switching) -> str:
    return short(switching.value, switching.error) if switching.switched else "none seen"


def _switched(switching: Switching) -> str:
    return f"{switching.switched}/{switching.replicas}"


def _points(result: HysteresisResult, loop: Loop) -> tuple[str, Table]:
    """One row for each point of the path."""
    names = ("m",) if result.model.attention == "softmax" else ("alpha", "beta")
    in_copy = ("copy",) if result.switch else ()
    other = ("chi",) if result.control == "chi" or not math.isfinite(result.chi) else ()
    columns = ("branch", "P", *other, *names, "loss", *in_copy, "acc.", "autocorr.", "note on m")
    table = _table(columns)
    for point in loop.points:
        table.add_row(
            NAMES[point.branch],
            f"{point.P:.5g}",
            *(f"{point.chi:g}" for _ in other),
            *(_estimate(getattr(point, name)) for name in (*names, "loss")),
            *(_number(point.copy_fraction) for _ in in_copy),
            _number(point.acceptance),
            _tau(point.m),
            _note(point.m, result.replicas),
        )
    return f"Loop {loop.index}: {loop.sweeps_per_point} sweeps per point", table


def _states(result: FixedResult | TemperingResult) -> tuple[str, Table]:
    """One row for each state."""
    names = ("m",) if result.model.attention == "softmax" else ("alpha", "beta")
    biased = any(state.bias_strength > 0 for state in result.states)
    bias = ("bias centre", "strength") if biased else ()
    columns = ("P", "chi", *bias, "replicas", *names, "loss", "acc.", "autocorr.", "note on m")
    table = _table(columns)
    for state in result.states:
        table.add_row(
            f"{state.P:.5g}",
            f"{state.chi:g}",
            *(f"{x:g}" for x in (state.bias_center, state.bias_strength) for _ in bias[:1]),
            str(state.replicas),
            *(_estimate(getattr(state, name)) for name in (*names, "loss")),
            _number(state.acceptance),
            _tau(state.m),
            _note(state.m, state.replicas),
        )
    return f"Averages of {_model(result)}", table


def _disorder(result: FixedResult) -> tuple[str, Table]:
    """One row for each observable of each state: error of the mean over data sets, its parts."""
    table = _table(("", "P", "chi", "sets", "mean", "error", "sampling", "between sets"))
    for split in result.disorder:
        numbers = (split.value, split.error, split.sampling, split.disorder)
        at = (split.name, f"{split.P:.5g}", f"{split.chi:g}", str(split.sets))
        table.add_row(*at, *(_number(x) for x in numbers))
    return "Averages over data sets: sampling and disorder", table


def _swaps(result: TemperingResult) -> tuple[str, Table]:
    """One row for each pair of neighbours."""
    table = _table(("pair", "tried", "accepted", "acceptance", "upward", "copy"))
    for pair in result.pairs:
        table.add_row(
            f"{pair.low} - {pair.high}",
            str(pair.attempted),
            str(pair.accepted),
            f"{pair.acceptance:.3f}" if pair.attempted else "n/a",
            _number(result.upward[pair.low]),
            _number(result.states[pair.low].copy_fraction),
        )
    return "Swaps, and in the lower state the shares of upward and of copy replicas", table


def _travel(result: TemperingResult) -> str:
    """Barrier, round trips and the verdict, one line each."""
    trips = result.round_trips
    lines = [f"Round trips: {sum(trips)}, of one replica {min(trips)} to {max(trips)}."]
    if result.recommended:
        lines.append(
            f"Communication barrier Lambda = {result.barrier:.2f}: about {result.recommended} "
            f"states suit this path; it has {len(result.states)}."
        )
    return "\n".join([*lines, result.verdict])


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        text = name in ("branch", "note on m")
        table.add_column(name, justify="left" if text else "right", no_wrap=not text)
    return table


def _model(result: Result) -> str:
    model = result.model
    chi = result.chi if isinstance(result, HysteresisResult) else series.NAN
    at = f", chi = {chi:g}" if math.isfinite(chi) else ""
    return f"{model.attention} attention, L = {model.L}, V = {model.V}{at}"
