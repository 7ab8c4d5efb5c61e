"""The theory's predictions as a table for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

from mcattn import terminal
from mcattn.model import CopyModel

if TYPE_CHECKING:
    from mcattn.coexistence import Coexistence

_MEANINGS = {
    "P_lo": "spinodal: below it the copy branch is gone",
    "P_star": "transition point: both minima equally deep",
    "P_hi": "spinodal: above it the uniform branch is gone",
    "m_minus": "copy overlap of the uniform minimum at P_star",
    "m_plus": "copy overlap of the copy minimum at P_star",
    "barrier": "(F_top - F_min)/chi at P_star",
    "gap_minus": "score gap of the uniform minimum at P_star",
    "gap_plus": "score gap of the copy minimum at P_star",
    "loss_minus": "test loss of the uniform minimum at P_star",
    "loss_plus": "test loss of the copy minimum at P_star",
    "P_c": "onset of attention (second order)",
    "asymptotic_P": "law for P_star at astronomically large L",
}


_FLUCTUATIONS = {
    "P_equal_weight": "transition point: both phases equally likely",
    "P_equal_height": "both peaks of p(m) equally high",
    "P_saddle": "P_equal_weight by saddle point and Gaussian correction",
    "m_minus": "<m> in the uniform phase at P_equal_weight",
    "m_plus": "<m> in the copy phase at P_equal_weight",
    "dm": "m_plus - m_minus: the jump",
    "peak_minus": "m of the uniform peak at P_equal_height",
    "peak_plus": "m of the copy peak at P_equal_height",
    "barrier": "height of -ln p(m) between the peaks at P_equal_height, in kT",
    "loss_minus": "<test loss> in the uniform phase at P_equal_weight",
    "loss_plus": "<test loss> in the copy phase at P_equal_weight",
}
VISIBLE = 0.5  # kT


def show(model: CopyModel, chi: float, values: dict[str, float | None]) -> None:
    """Print the values that apply, with their meanings."""
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for name, value in values.items():
        if value is not None and not (name == "asymptotic_P" and values["P_star"] is None):
            table.add_row(name, f"{value:.6g}", _MEANINGS[name])
    console = terminal.console()
    sizes = f"L = {model.L}, V = {model.V}, kappa = {model.kappa:g}"
    priors = f"g_s = {model.g_s:g}, g_w = {model.g_w:g}, chi = {chi:g}"
    console.print(f"{model.attention} attention, {sizes}, {priors}", style="bold")
    console.print(table)
    if model.attention == "softmax" and values["P_star"] is None:
        console.print("One minimum at every P: no transition.")
    if chi != float("inf"):
        console.print("Of the landscape at this chi; fluctuations of the scores are left out.")


def show_fluctuations(found: Coexistence | None) -> None:
    """Print the transition with the fluctuations of the scores, each number with its error."""
    console = terminal.console()
    console.print("\nWith the fluctuations of the scores", style="bold")
    if found is None:
        console.print("p(m) has a single peak at every P: one phase.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for name, value in vars(found).items():
        table.add_row(name, _short(*value), _FLUCTUATIONS[name])
    console.print(table)
    console.print("In brackets: the numerical error of the last digits.")
    if found.barrier.value < VISIBLE:
        console.print(
            f"A barrier below {VISIBLE:g} kT keeps no phases apart: no chain can see two."
        )


def _short(value: float, error: float) -> str:
    """A value with its error in brackets, in units of the last digit."""
    if not error > 0:
        return f"{value:.6g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f}({error * 10**digits:.0f})"
