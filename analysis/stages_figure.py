"""The figure of the stages: a column for each run, weights above, test loss below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mcattn.analysis.comparison import Theory
from mcattn.analysis.figures import BLACK, DASHES, LINE, QUANTITY_COLOR, STYLE, view_caption
from mcattn.analysis.series import short
from mcattn.analysis.stages import Stage, StagesResult

_SHADE = {
    "uniform attention": "#DDF0EA",
    "copying": "#EFE0F0",
}  # pale forms of the weights' colours
_WORDS = {"stable": "minima", "unstable": "maximum", "exact": r"exact at this $\chi$"}


def stages_figure(results: Sequence[StagesResult], theories: Sequence[Theory]) -> Figure:
    """alpha, beta and test loss on the way up, with the stages shaded and their begin marked."""
    count = len(results)
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(0.6 + 2.9 * count, 3.9))
        axes = figure.subplots(
            2, count, sharex="col", sharey="row", squeeze=False, height_ratios=[1.5, 1]
        )
        for column, result, theory in zip(axes.T, results, theories, strict=True):
            _column(column, result, theory)
        axes[0, 0].set_ylabel(r"weights $\alpha$, $\beta$")
        axes[1, 0].set_ylabel("test loss")
        axes[0, 0].set_ylim(-0.1, 1.1 * max(axes[0, i].dataLim.y1 for i in range(count)))
        axes[1, 0].set_ylim(0, 1.08)
        kinds = list(dict.fromkeys(c.kind for theory in theories for c in theory.curves))
        handles = [_swatch(name) for name in ("alpha", "beta")]
        handles += [Line2D([], [], color=BLACK, ls=DASHES[kind], lw=LINE) for kind in kinds]
        labels = [r"uniform weight $\alpha$", r"copy weight $\beta$"]
        labels += [_WORDS[kind] for kind in kinds]
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        figure.supxlabel("\n".join(map(view_caption, results)), fontsize=5.5, color="#555555")
    return figure


def _column(column: np.ndarray, result: StagesResult, theory: Theory) -> None:
    upper, lower = column
    P = np.array([point.P for point in result.points])
    for axes, names in ((upper, ("alpha", "beta")), (lower, ("loss",))):
        for name in names:
            color = QUANTITY_COLOR.get(name, BLACK)
            values = [getattr(point, name) for point in result.points]
            errors = np.nan_to_num([v.error for v in values])
            axes.errorbar(P, [v.value for v in values], errors, fmt="o", ms=2.2, color=color)
            for curve in theory.curves:
                look = {"color": color, "ls": DASHES[curve.kind], "lw": LINE}
                axes.plot(curve.P, getattr(curve, name), **look)
    if P[-1] > 6 * P[0]:
        upper.set_xscale("log")
    lower.set_xlabel("training sequences $P$")
    upper.set_title(f"{result.model.attention} attention", fontsize=8)
    _shade(column, result, P)


def _shade(column: np.ndarray, result: StagesResult, P: np.ndarray) -> None:
    begins = [s for s in result.stages if np.isfinite(s.P.value)]
    ends = [*(s.P.value for s in begins[1:]), P[-1]]
    for axes in column:
        axes.set_xlim(P[0], P[-1])
        for s, end in zip(begins, ends, strict=True):
            axes.axvspan(s.P.value, end, color=_SHADE[s.name], lw=0, zorder=-2)
            low, high = s.P.value - s.P.error, s.P.value + s.P.error
            axes.axvspan(low, high, color=BLACK, alpha=0.35, lw=0)
            axes.axvline(s.P.value, color=BLACK, lw=0.6)
            if np.isfinite(s.exact):
                axes.axvline(s.exact, color="#777777", lw=0.6, ls=(0, (1, 1.5)))
    for s in begins:
        _label(column[0], s)


def _label(axes: Axes, stage: Stage) -> None:
    """Name and date of a stage, written along the line where it begins."""
    text = f"{stage.name}\nfrom {short(stage.P.value, stage.P.error)}"
    at, where = (stage.P.value, 0.97), ("data", "axes fraction")
    look: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 6}
    axes.annotate(text, at, (-2, 0), where, "offset points", **look)


def _swatch(name: str) -> Line2D:
    return Line2D([], [], color=QUANTITY_COLOR[name], lw=3)
