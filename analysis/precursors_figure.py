"""The figure of precursors: what grows before the transition, both attentions side by side."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from mcattn.analysis.figures import BLUE, COLORS, MARKERS, STYLE, VERMILION, view_caption
from mcattn.analysis.precursors import PrecursorsResult

_COLOR = {"softmax": BLUE, "linear": VERMILION}
_PANELS = (
    ("growth", "variance,\nrelative"),
    ("slowing", "autocorr. time,\nrelative"),
    ("loss", "test loss"),
)


def precursors_figure(results: Sequence[PrecursorsResult]) -> Figure:
    """Variance and autocorrelation time of the order parameter, and loss, against P / P_t."""
    single = len({result.model.attention for result in results}) == len(results)
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(3.4, 4.6))
        axes = figure.subplots(len(_PANELS), 1, sharex=True)
        for i, result in enumerate(results):
            color = _COLOR[result.model.attention] if single else COLORS[i % len(COLORS)]
            distance = [state.distance for state in result.states]
            label = f"{result.model.attention}, var({_symbol(result)})"
            label += "" if single else f", $L$ = {result.model.L}, $\\chi$ = {result.chi:g}"
            for panel, (name, _) in zip(axes, _PANELS, strict=True):
                values = [getattr(state, name) for state in result.states]
                panel.errorbar(
                    distance,
                    [v.value for v in values],
                    np.nan_to_num([v.error for v in values]),
                    fmt=MARKERS[i % len(MARKERS)] + "-",
                    lw=0.6,
                    color=color,
                    label=label,
                )
        for panel, (name, text) in zip(axes, _PANELS, strict=True):
            panel.axvline(1, color="#777777", lw=0.6, ls=(0, (1, 1.5)), zorder=0)
            panel.set_ylabel(text)
            if name != "loss":
                panel.set_yscale("log")
        axes[-1].set_xlabel(r"distance to the transition $P / P_\mathrm{t}$")
        figure.align_ylabels(axes)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        figure.supxlabel(
            "\n".join(_caption(result) for result in results), fontsize=5.5, color="#555555"
        )
    return figure


def _symbol(result: PrecursorsResult) -> str:
    return "$m$" if result.order_parameter == "m" else r"$\tau$"


def _caption(result: PrecursorsResult) -> str:
    return f"{view_caption(result)}, $P_\\mathrm{{t}}$ = {result.transition:.4g}"
