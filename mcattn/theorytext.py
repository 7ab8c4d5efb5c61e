"""The theory's predictions as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from mcattn.model import CopyModel

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


def show(model: CopyModel, chi: float, values: dict[str, float | None]) -> None:
    """Print the values that apply, with their meanings."""
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for name, value in values.items():
        if value is not None and not (name == "asymptotic_P" and values["P_star"] is None):
            table.add_row(name, f"{value:.6g}", _MEANINGS[name])
    console = Console(highlight=False)
    sizes = f"L = {model.L}, V = {model.V}, kappa = {model.kappa:g}"
    priors = f"g_s = {model.g_s:g}, g_w = {model.g_w:g}, chi = {chi:g}"
    console.print(f"{model.attention} attention, {sizes}, {priors}", style="bold")
    console.print(table)
    if model.attention == "softmax" and values["P_star"] is None:
        console.print("One minimum at every P: no transition.")
    if chi != float("inf"):
        console.print("Of the landscape at this chi; fluctuations of the scores are left out.")
