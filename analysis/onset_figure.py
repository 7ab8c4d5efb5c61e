"""The figure of linear attention's onset: cumulants that cross, and how alpha grows above P_c."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcattn.analysis.figures import BLACK, COLORS, STYLE
from mcattn.analysis.onset import OnsetResult

_GREY = "#555555"


def onset_figure(result: OnsetResult) -> Figure:
    """B against P at each chi with the exact marks, and alpha against P - P_c on logarithms."""
    model = result.model
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(6.8, 3.0))
        cumulants, growth = figure.subplots(1, 2)
        _cumulants(cumulants, result)
        _growth(growth, result)
        figure.suptitle(
            f"linear attention: $L$ = {model.L}, $V$ = {model.V}, $\\kappa$ = {model.kappa:g}, "
            f"$g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}",
            fontsize=8,
        )
    return figure


def _cumulants(axes: Axes, result: OnsetResult) -> None:
    for i, onset in enumerate(result.onsets):
        color, (B, error) = COLORS[i % len(COLORS)], onset.B.T
        axes.fill_between(onset.P, B - error, B + error, color=color, alpha=0.3, lw=0)
        axes.plot(onset.P, B, color=color, lw=0.9, label=rf"$\chi$ = {onset.chi:g}")
        axes.plot(onset.half.exact, 1 / 3, "x", color=color, ms=5)
    for mark in result.crossings:
        if np.isfinite(mark.exact):
            axes.axvline(mark.exact, color=_GREY, lw=0.6, ls=(0, (1, 1.5)), zorder=0)
    axes.axvline(result.P_c, color=BLACK, lw=0.7, zorder=0)
    axes.annotate(
        r"$P_c$", (result.P_c, 0.97), (-3, 0), ("data", "axes fraction"), "offset points",
        ha="right", va="top", fontsize=7,
    )  # fmt: skip
    axes.axhline(1 / 3, color=_GREY, lw=0.5, ls=":", zorder=0)
    axes.set(xlabel="training sequences $P$", ylabel=r"cumulant $B$ of $\tau$")
    axes.legend(fontsize=6, loc="lower right", title="crosses: exact", title_fontsize=6)


def _growth(axes: Axes, result: OnsetResult) -> None:
    """alpha above P_c; a root is a line of slope 1/2."""
    farthest = 0.0
    for i, onset in enumerate(result.onsets):
        above = 1.002 * result.P_c < onset.P
        x, (alpha, error) = onset.P[above] / result.P_c - 1, onset.alpha[above].T
        color = COLORS[i % len(COLORS)]
        axes.fill_between(x, alpha - error, alpha + error, color=color, alpha=0.3, lw=0)
        axes.plot(x, alpha, color=color, lw=0.9)
        if len(x) and x[-1] > farthest:
            farthest, top = float(x[-1]), float(alpha[-1])
    if farthest:
        x = np.geomspace(farthest / 60, farthest, 20)
        axes.plot(x, top * np.sqrt(x / farthest), ":", color=_GREY, lw=0.9, label="slope 1/2")
        axes.legend(fontsize=6, loc="lower right")
    axes.set(xscale="log", yscale="log", xlabel="$P/P_c - 1$", ylabel=r"$\langle\alpha\rangle$")
