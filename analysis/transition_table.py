"""What is said of a transition in a terminal: one table, then sentences."""

from __future__ import annotations

from rich.table import Table

from mcattn.analysis import mbar
from mcattn.analysis.series import CONSTANT, Estimate, short
from mcattn.analysis.transition import NAME
from mcattn.analysis.umbrella import UmbrellaResult

_NAMES = {
    "barrier": "barrier at equal height / kT",
    "m_minus": "m of the uniform phase",
    "m_plus": "m of the copy phase",
    "dm": "jump of m",
}


def table(result: UmbrellaResult) -> tuple[str, Table]:
    """Title and table: the transition point by every route, then what changes there."""
    found = result.transition
    out = Table(box=None, pad_edge=False)
    out.add_column("quantity")
    out.add_column("value", justify="right")
    for route in result.routes:
        out.add_row(f"P*, {route.name}", _shown(route.P))
    for key, name in _NAMES.items():
        value = getattr(found, key)
        if value is not None:
            out.add_row(name, _shown(value))
    if found.peak is not None:
        u = NAME[found.along]
        out.add_row(f"P of the largest var {u}", _shown(found.peak.P))
        out.add_row(f"var {u} there", _shown(found.peak.var))
        out.add_row("moment ratio B there", _shown(found.peak.binder))
    model = result.model
    return f"Transition at L = {model.L}, V = {model.V}, chi = {found.chi:g}", out


def lines(result: UmbrellaResult) -> list[str]:
    """What the numbers rest on, and the verdict."""
    found, trips = result.transition, result.ladder.round_trips
    low, high, overlap = found.weakest
    thinned = f", one row of {found.stride}: more would not fit in memory" * (found.stride > 1)
    blocks = f"errors from {found.blocks} blocks of rows" if found.blocks else "no errors"
    return [
        f"Round trips of replicas across the barrier: {sum(trips)}, of one replica {min(trips)} "
        f"to {max(trips)}.",
        f"MBAR of {found.samples} samples{thinned}; {blocks}; weakest overlap {overlap:.2g}, of "
        f"windows {low} and {high} (trusted from {mbar.THIN:g} on).",
        found.verdict,
    ]


def _shown(value: Estimate) -> str:
    return f"{value.value:.6g}" if value.flag == CONSTANT else short(value.value, value.error)
