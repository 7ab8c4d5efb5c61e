"""The printed tables of a training run."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from mcattn.analysis.loop import NAMES
from mcattn.analysis.series import Estimate
from mcattn.analysis.training import TrainedPoint, TrainingResult


def show(result: TrainingResult, console: Console) -> None:
    """Print the ensemble at every P, the switching points, and what to know of them."""
    model = result.model
    sets = f", {result.sets} data sets" if result.sets > 1 else ""
    console.print(
        f"{result.optimiser}, {result.network} network, {result.replicas} members{sets}, "
        f"start {result.start}: {model.attention} attention, L = {model.L}, V = {model.V}",
        style="bold",
        markup=False,
    )
    console.print(_points(result))
    console.print(
        "loss: test loss; spread: of m over members; reached: members within 0.1 % of the lowest "
        "H of their data set; best: mean over data sets of the member with that H. Errors: over "
        f"{'data sets' if result.sets > 1 else 'members'}.",
        markup=False,
    )
    for switching in result.switches:
        where = (
            f"P = {_with_error(switching.value, switching.error)}, spread {switching.spread:.2g}"
        )
        text = where if switching.switched else "none"
        console.print(
            f"Members switching on the way {NAMES[switching.branch]}: {text} "
            f"({switching.switched}/{switching.replicas}).",
            markup=False,
        )
    known = {k: v for k, v in result.theory.items() if k in ("P_lo", "P_star", "P_hi", "P_c") and v}
    if known:
        text = ", ".join(f"{name} = {value:.5g}" for name, value in known.items())
        console.print(f"Population landscape: {text}.", markup=False)
    for text in result.warnings:
        console.print(f"! {text}", markup=False)


def _points(result: TrainingResult) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in _cells(result.points[0], result):
        table.add_column(name, justify="left" if name == "branch" else "right", no_wrap=True)
    for point in result.points:
        table.add_row(*_cells(point, result).values())
    return table


def _cells(point: TrainedPoint, result: TrainingResult) -> dict[str, str]:
    """A row, by column; linear attention shows the best members beside the mean."""
    softmax, sgld = result.model.attention == "softmax", result.optimiser == "sgld"
    both = softmax or sgld
    cells = {"P": f"{point.P:g}"}
    if result.path == "continue":
        cells["branch"] = NAMES[point.branch]
    for name in ("m", "q", "loss") if softmax else ("alpha", "beta", "loss") if both else ("beta",):
        cells[name] = _value(getattr(point.all, name))
    spread = point.spread if point.spread > 1e-6 else 0.0  # less is rounding; nan stays nan
    cells["spread"] = f"{spread:.1g}" if math.isfinite(point.spread) else "-"
    if sgld:
        return cells | {"acc.": f"{point.acceptance:.2f}"}
    cells["reached"] = f"{point.reached:.0%}"
    for name in () if both else ("alpha", "beta", "loss"):
        cells[f"best {name}"] = _value(getattr(point.best, name))
    if result.network == "full":
        cells["share"] = f"{point.all.share.value:.4f}"
    return cells


def _value(estimate: Estimate) -> str:
    """A value with its error, or to five decimals where that is smaller or not known."""
    error = estimate.error
    if math.isfinite(error) and error > 2e-5:
        return _with_error(estimate.value, error)
    return f"{estimate.value:z.5f}"


def _with_error(value: float, error: float) -> str:
    from mcattn.analysis.report import short

    return short(value, error)
