"""The figure of all routes to the transition point: one line each, with its error."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from mcattn.analysis.figures import BLUE, GREEN, STYLE, VERMILION
from mcattn.analysis.routes import REFERENCE, Line, RoutesResult

_COLOR = {"P_branch_crossing": VERMILION, "P_finite_chi": GREEN, "P_saddle": GREEN}


def routes_figure(result: RoutesResult) -> Figure:
    """P* by every route; the band is finite-chi theory. The landscape's is told in words."""
    shown = [line for line in result.lines if line.key != "P_landscape"]
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(5.2, 1.3 + 0.26 * len(shown)))
        axes = figure.subplots()
        for i, line in enumerate(reversed(shown)):
            error = float(np.nan_to_num(line.P.error))
            color = _COLOR.get(line.key, BLUE)
            marker = "s" if line.key == "P_equal_height" else "o"
            axes.errorbar(line.P.value, i, xerr=error, fmt=marker, color=color, capsize=2)
        for line in shown:
            if line.key == REFERENCE:
                low, high = line.P.value - line.P.error, line.P.value + line.P.error
                axes.axvspan(low, high, color=GREEN, alpha=0.3, lw=0, zorder=0)
        axes.set_yticks(range(len(shown)), [_label(line) for line in reversed(shown)], fontsize=6)
        axes.tick_params(axis="y", which="minor", left=False, right=False)
        axes.set_xlabel("transition point $P^*$")
        axes.set_title(_title(result), fontsize=7)
    return figure


def _label(line: Line) -> str:
    return line.name if line.source == "theory" else f"{line.name}\n{line.source}"


def _title(result: RoutesResult) -> str:
    model = result.model
    landscape = [line.P.value for line in result.lines if line.key == "P_landscape"]
    text = f"$L$ = {model.L}, $V$ = {model.V}, $\\chi$ = {result.chi:g}"
    return text + (f"; landscape alone: {landscape[0]:.4g}" if landscape else "")
