"""A plan as text for people: one kind of attention, or both side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from mcattn import terminal
from mcattn.plan import PHASES, Outlook

_ORDERS = {
    "first": "first order: a jump, and nothing measurable before it",
    "second": "second order onset, then a smooth crossover",
    "none": "no transition",
}


def show(
    outlooks: Sequence[Outlook], console: Console, recipe: dict[str, float] | None = None
) -> None:
    """Print phase, thresholds and minima of each kind of attention.

    recipe : what it was translated from, for a first line.
    """
    if recipe is not None:
        _translation(console, outlooks[0], recipe)
    for one in outlooks:
        _show(console, one, recipe is not None)
    if len(outlooks) > 1:
        _compare(console, outlooks)


def _translation(console: Console, one: Outlook, recipe: dict[str, float]) -> None:
    model = one.model
    given = ", ".join(f"{name} = {value:g}" for name, value in recipe.items())
    console.print(
        f"{given}: kappa = {model.kappa:g}, g_s = {model.g_s:.4g}, g_w = {model.g_w:.4g}, "
        f"chi = {one.chi:.4g}"
    )
    console.print(
        "At fixed weight decay of a mean loss, more sequences change no minimum: decay does.\n"
    )


def _show(console: Console, one: Outlook, recipe: bool) -> None:
    model = one.model
    console.print(
        f"{model.attention} attention, L = {model.L}, V = {model.V}, P = {one.P:g}", style="bold"
    )
    console.print(f"Phase: {PHASES[one.phase]}.")
    if one.thresholds:
        console.print(_thresholds(one, recipe))
    console.print(_branches(one))
    console.print()


def _thresholds(one: Outlook, recipe: bool) -> Table:
    table = terminal.table("threshold", "P", "P/threshold - 1", "more", left=("threshold",))
    table.add_column("decay x" if recipe else "", justify="right")
    table.add_column("what changes there")
    for at in one.thresholds:
        decay = f"{at.decay:.4g}" if recipe and math.isfinite(at.decay) else ""
        away = f"{one.P / at.P - 1:+.1%}"
        more = str(at.more) if at.more else "passed"
        table.add_row(at.name, f"{at.P:.5g}", away, more, decay, at.meaning)
    return table


def _branches(one: Outlook) -> Table:
    table = terminal.table("minimum", "m", "alpha", "beta", "test loss", left=("minimum",))
    table.add_column("")
    for branch in one.branches:
        values = (branch.m, branch.alpha, branch.beta, branch.loss)
        table.add_row(
            branch.name, *(f"{x:z.4f}" for x in values), "deepest" if branch.deepest else ""
        )
    return table


def _compare(console: Console, outlooks: Sequence[Outlook]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("", *(one.model.attention for one in outlooks)):
        table.add_column(name)
    table.add_row("order", *(_ORDERS[one.order] for one in outlooks))
    table.add_row("first threshold", *(_first(one) for one in outlooks))
    table.add_row("jump of m", *(f"{one.jump:.3f}" for one in outlooks))
    warned = ("none can exist", "fluctuations grow before it")
    table.add_row("warning", *(warned[one.warning] for one in outlooks))
    console.print(table)


def _first(one: Outlook) -> str:
    if not one.thresholds:
        return "-"
    names = ("P_star",) if one.order == "first" else ("P_c",)
    at = next(at for at in one.thresholds if at.name in names)
    return f"{at.name} = {at.P:.5g}"
