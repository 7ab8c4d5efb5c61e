"""The figure of the view `verify`: a column for each model, order parameters and test loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mcattn.analysis.differences import QUANTITIES
from mcattn.analysis.figures import BLACK, BLUE, GREEN, MARKER, PURPLE, STYLE, VERMILION
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.reading import MIXED, MONTE_CARLO, Method
from mcattn.analysis.verify import VerifyResult

_LABELS = {"m": "copy overlap $m$", "q": "$q$", "alpha": r"$\alpha$", "beta": r"$\beta$"}
_ENDS = ((r"$P_\mathrm{lo}$", "P_lo"), (r"$P\!^*$", "P_star"), (r"$P_\mathrm{hi}$", "P_hi"))
_ONSET = ((r"$P_\mathrm{c}$", "P_c"),)
_ARROW = {UP: ", $P$ rising", DOWN: ", $P$ falling", 0: ""}
_MARK: dict[str, Any] = {"ls": "", "ms": 3.2, "mew": 0.7, "mfc": "none"}
_SHADE = "#777777"
_LOOK = {
    ("Adam", UP): {"color": VERMILION, "marker": "^"},
    ("Adam", DOWN): {"color": BLUE, "marker": "v"},
    (MONTE_CARLO, None): {"color": GREEN, "marker": "o"},
    ("SGLD", None): {"color": PURPLE, "marker": "D"},
}


def verify_figure(results: Sequence[VerifyResult]) -> Figure:
    """Means over data sets with bars of their scatter; lines of theory; minima as small crosses."""
    count = len(results)
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(3.6 * count if count > 1 else 4.4, 6.6))
        axes = figure.subplots(3, count, sharex="col", squeeze=False)
        for column, result in zip(axes.T, results, strict=True):
            _column(column, result)
        figure.align_ylabels(axes)
        handles = _legend(results)
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
        figure.supxlabel(_caption(results), fontsize=5.5, color="#555555")
    return figure


def _column(axes: Sequence[Axes], result: VerifyResult) -> None:
    for panel, name in zip(axes, QUANTITIES[result.model.attention], strict=True):
        _lines(panel, result, name)
        _minima(panel, result, name)
        for method in result.methods:
            _points(panel, method, name)
        panel.set_ylabel(_LABELS.get(name, "test loss"))
    names = _ENDS if result.model.attention == "softmax" else _ONSET
    shown = result.lines[math.inf].P
    for label, key in names:
        P = result.theory.get(key)
        if P is not None and shown[0] < P < shown[-1]:
            for panel in axes:
                panel.axvline(P, color=_SHADE, lw=0.6, ls=(0, (1, 1.5)), zorder=0)
            axes[0].annotate(
                label, (P, 1), (0, 2), ("data", "axes fraction"), "offset points", ha="center"
            )
    axes[-1].set_xlabel("training sequences $P$")
    axes[0].set_title(f"{result.model.attention} attention", pad=14)


def _lines(axes: Axes, result: VerifyResult, name: str) -> None:
    for chi, theory in result.lines.items():
        for values in theory.phases.values():
            axes.plot(theory.P, values[name], **_line(chi))


def _line(chi: float) -> dict[str, Any]:
    cold = math.isinf(chi)
    return {"color": BLACK if cold else GREEN, "ls": "-" if cold else (0, (4, 1.5)), "lw": 0.8}


def _minima(axes: Axes, result: VerifyResult, name: str) -> None:
    """A cross for each data set."""
    for own in result.minima:
        for found in own.values():
            kept = [one for one in found.values() if one is not None]
            y = [one.X[1] if name == "q" else getattr(one, name) for one in kept]
            axes.plot([one.P for one in kept], y, ls="", marker="x", ms=3, mew=0.5, color=BLACK)


def _points(axes: Axes, method: Method, name: str) -> None:
    """Means over the data sets of one phase; pale where members are in both."""
    for one in method.readings:
        look = _look(method, one.branch)
        for phase in np.unique(one.phase).tolist():
            x = one.values[name][one.phase == phase]
            bar = x.std(ddof=1) if x.size > 1 else 0.0
            pale = 0.35 if phase == MIXED else 1.0
            axes.errorbar(one.P, x.mean(), bar, alpha=pale, lw=0.6, **_MARK, **look)


def _look(method: Method, branch: int) -> dict[str, Any]:
    """Colour and mark of a method; one that is not foreseen is black, marked by its direction."""
    if method.scratch:
        return {"color": VERMILION, "marker": "s"}
    plain = {"color": BLACK, "marker": MARKER[branch]}
    return _LOOK.get((method.name, branch), _LOOK.get((method.name, None), plain))


def _legend(results: Sequence[VerifyResult]) -> list[Line2D]:
    found: dict[str, Line2D] = {}
    for result in results:
        for chi in result.lines:
            known = r"\infty" if math.isinf(chi) else f"{chi:g}"
            label = rf"theory, $\chi = {known}$"
            found[label] = Line2D([], [], label=label, **_line(chi))
    label = "minima of each data set"
    found[label] = Line2D([], [], ls="", marker="x", ms=3, mew=0.5, color=BLACK, label=label)
    for method in (method for result in results for method in result.methods):
        for branch in dict.fromkeys(one.branch for one in method.readings):
            both = (method.name, branch) not in _LOOK and branch
            way = "" if both else _ARROW[branch]
            best = ", best of each data set" if method.scratch else way
            chi_text = rf", $\chi = {method.chi:g}$" if method.sampled else ""
            label = f"{method.name}{best}{chi_text}"
            look = _look(method, branch)
            found[label] = Line2D([], [], label=label, **_MARK, **look)
    return list(found.values())


def _caption(results: Sequence[VerifyResult]) -> str:
    lines = []
    for result in results:
        model = result.model
        data = result.methods[0].data
        source = data.file or f"{data.sets} data sets from seed {data.seed} on"
        lines.append(
            f"{model.attention}: $L$ = {model.L}, $V$ = {model.V}, "
            rf"$\kappa$ = {model.kappa:g}, $g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}; {source}"
        )
    version = results[0].versions.get("mcattn", "of unknown version")
    lines.append(
        "bars: standard deviation between data sets; pale: members in both phases; "
        f"mcattn {version}"
    )
    return "\n".join(lines)
