"""The printed tables of the view `verify`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.table import Table

from mcattn import terminal
from mcattn.analysis.differences import ROUNDING, Comparison, Difference
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.series import short
from mcattn.analysis.verify import VerifyResult

NOTE = (
    "pull: difference in errors. Errors: of the scatter over data sets; of sampling between two "
    "ways at one temperature. relative: largest of a data set. Largest differences leave out P "
    "within 2 % of the end of a branch."
)
_WAY = {UP: "up", DOWN: "down", 0: ""}
_END = {UP: "P_hi", DOWN: "P_lo"}


def tables(result: VerifyResult) -> list[tuple[str, Table]]:
    """One table for each comparison, those of the ends of branches, and the summary."""
    phases = result.model.attention == "softmax"
    found = [(_title(result, one.name), _states(one, phases)) for one in result.comparisons]
    if result.turns:
        found.append(
            (_title(result, "where training leaves a branch, and where it ends"), _turns(result))
        )
    found.append((_title(result, "largest differences"), _summary(result.comparisons, phases)))
    return found


def _title(result: VerifyResult, text: str) -> str:
    model = result.model
    return f"{model.attention} attention, L = {model.L}, V = {model.V}: {text}"


def _states(comparison: Comparison, phases: bool) -> Table:
    """A row for each P and phase: reference, difference and its pull for every quantity."""
    rows: dict[tuple[float, int, str], list[Difference]] = {}
    for one in comparison.differences:
        rows.setdefault((one.P, one.branch, one.phase), []).append(one)
    quantities = list(dict.fromkeys(one.quantity for one in comparison.differences))
    heads = [head for name in quantities for head in (name, "difference", "pull")]
    table = terminal.table("P", "way", *["phase"] * phases, "sets", *heads, left=("way", "phase"))
    for (P, branch, phase), found in rows.items():
        cells = [f"{P:g}", _WAY[branch], *[phase] * phases, str(found[0].sets)]
        for one in found:
            cells += [f"{one.reference:.5g}", _signed(one), _pull(one.pull)]
        table.add_row(*cells)
    return table


def _signed(one: Difference) -> str:
    if abs(one.difference) < ROUNDING and not one.error > ROUNDING:
        return "0"
    if not one.error > ROUNDING:
        return f"{one.difference:+.1e}"
    return short(one.difference, one.error)


def _pull(pull: float) -> str:
    return f"{pull:+.1f}" if math.isfinite(pull) else "-"


def _turns(result: VerifyResult) -> Table:
    heads = ("method", "way", "set", "switched at", "end", "of the set", "population", "relative")
    table = terminal.table(*heads, left=("method", "way", "end"))
    for turn in result.turns:
        population = result.theory[_END[turn.branch]]
        table.add_row(
            turn.method,
            _WAY[turn.branch],
            str(turn.set),
            f"{turn.switched:g} +- {turn.half:g}",
            _END[turn.branch],
            f"{turn.end:.1f}",
            "-" if population is None else f"{population:.2f}",
            f"{turn.relative:+.2%}",
        )
    return table


def _summary(comparisons: Iterable[Comparison], phases: bool) -> Table:
    """The largest difference and pull of every comparison, phase and quantity.

    States near the end of a branch are left out.
    """
    first = ("comparison", *["phase"] * phases, "quantity")
    rest = ("states", "largest difference", "relative", "largest pull", "rms pull")
    table = terminal.table(*first, *rest, left=first)
    for comparison in comparisons:
        groups: dict[tuple[str, str], list[Difference]] = {}
        for one in comparison.differences:
            if not one.near:
                groups.setdefault((one.phase, one.quantity), []).append(one)
        for (phase, quantity), own in groups.items():
            worst = max(own, key=lambda one: abs(one.difference))
            seen = abs(worst.difference) > ROUNDING
            relative = [one.largest for one in own if math.isfinite(one.largest)]
            pulls = [one.pull for one in own if math.isfinite(one.pull)]
            rms = math.sqrt(sum(x * x for x in pulls) / len(pulls)) if pulls else math.nan
            table.add_row(
                comparison.name,
                *[phase] * phases,
                quantity,
                str(len(own)),
                f"{worst.difference:+.2g} at {worst.P:g}" if seen else "below 1e-9",
                f"{max(relative):.2%}" if relative and seen else "-",
                _pull(max(pulls, key=abs)) if pulls else "-",
                f"{rms:.1f}" if pulls else "-",
            )
    return table
