"""The figure of a training run: order parameters and test loss against P and against steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mcattn.analysis.comparison import Theory
from mcattn.analysis.figures import (
    BLACK,
    BRANCH_COLOR,
    DASHES,
    DIRECTION,
    LINE,
    MARKER,
    QUANTITY_COLOR,
    STYLE,
)
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.training import Course, TrainedPoint, TrainingResult

_ARROWS = {UP: r"$\,\uparrow$", DOWN: r"$\,\downarrow$", 0: ""}
_COURSES = 6  # against steps: more would hide one another


def training_figure(result: TrainingResult, theory: Theory) -> Figure:
    """Every member against P, the best filled, and the mean course of some values of P."""
    softmax = result.model.attention == "softmax"
    names = ("m",) if softmax else ("alpha", "beta")
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.0, 4.1))
        axes = figure.subplots(2, 2, sharex="col", width_ratios=[1.15, 1])
        for name in names:
            _members(axes[0, 0], result, name)
            _curves(axes[0, 0], theory, name)
        _members(axes[1, 0], result, "loss")
        _curves(axes[1, 0], theory, "loss")
        _marks(axes[:, 0], theory)
        _courses(axes[:, 1], result)
        axes[0, 0].set_ylabel("copy overlap $m$" if softmax else r"$\alpha$, $\beta$")
        axes[0, 1].set_ylabel("mean $m$")
        axes[1, 0].set(ylabel="test loss", xlabel="training sequences $P$")
        axes[1, 1].set(ylabel="mean test loss", xlabel="steps since $P$ was set")
        figure.align_ylabels(axes)
        handles = _legend(result, names, theory)
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
        figure.supxlabel(_caption(result), fontsize=5.5, color="#555555")
    return figure


def _color(point: TrainedPoint, name: str) -> str:
    return QUANTITY_COLOR.get(name, BRANCH_COLOR[point.branch])


def _members(axes: Axes, result: TrainingResult, name: str) -> None:
    """All members as small open marks; the best of each data set filled, over them."""
    for point in result.points:
        color, marker = _color(point, name), MARKER[point.branch]
        every = np.array(point.values[name])
        best = every[list(point.best_members)]
        look: dict[str, Any] = {"color": color, "marker": marker, "ls": "none", "mew": 0.5}
        axes.plot(np.full(every.size, point.P), every, ms=2.6, mfc="none", alpha=0.6, **look)
        axes.plot(np.full(best.size, point.P), best, ms=3.0, zorder=3, **look)


def _curves(axes: Axes, theory: Theory, name: str) -> None:
    for curve in theory.curves:
        color = QUANTITY_COLOR.get(name, BLACK)
        axes.plot(curve.P, getattr(curve, name), color=color, ls=DASHES[curve.kind], lw=LINE)


def _marks(axes: Sequence[Axes], theory: Theory) -> None:
    low, high = axes[0].get_xlim()
    for label, P in theory.marks:
        if low < P < high:
            for panel in axes:
                panel.axvline(P, color="#777777", lw=0.6, ls=(0, (1, 1.5)), zorder=0)
            axes[0].annotate(
                label, (P, 1), (0, 2), ("data", "axes fraction"), "offset points", ha="center"
            )


def _courses(axes: Sequence[Axes], result: TrainingResult) -> None:
    """m and loss against steps, dark at the first P shown, light at the last."""
    shown = _chosen(result.courses)
    shades = matplotlib.colormaps["cividis"](np.linspace(0, 0.92, len(shown)))
    for color, course in zip(shades, shown, strict=True):
        label = f"$P$ = {course.P:g}{_ARROWS[course.branch]}"
        axes[0].plot(course.steps, course.m, color=color, label=label)
        axes[1].plot(course.steps, course.loss, color=color)
    axes[0].set_xscale("log")
    axes[0].legend(fontsize=6, ncols=3)
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low, high + 0.3 * (high - low))


def _chosen(courses: Sequence[Course]) -> list[Course]:
    """A few values of P: those of the largest changes, and otherwise evenly spread."""
    order = sorted(range(len(courses)), key=lambda k: -float(np.ptp(courses[k].m)))
    spread = np.linspace(0, len(courses) - 1, min(_COURSES // 2, len(courses))).astype(int)
    kept = dict.fromkeys([*order[: _COURSES // 2], *spread.tolist()])
    return [courses[k] for k in sorted(kept)]


def _legend(result: TrainingResult, names: Sequence[str], theory: Theory) -> list[Line2D]:
    branches = dict.fromkeys(point.branch for point in result.points)
    single = len(names) == 1
    handles = [
        Line2D(
            [], [], ls="none", marker=MARKER[b], color=BRANCH_COLOR[b] if single else BLACK,
            label=f"$P$ {DIRECTION[b]}" if b else f"from scratch, {result.start} start",
        )
        for b in branches
    ]  # fmt: skip
    if not single:
        handles += [Line2D([], [], lw=3, color=QUANTITY_COLOR[n], label=rf"$\{n}$") for n in names]
    kinds = {curve.label: curve.kind for curve in theory.curves}
    return handles + [
        Line2D([], [], color=BLACK, ls=DASHES[kind], lw=LINE, label=label)
        for label, kind in kinds.items()
    ]


def _caption(result: TrainingResult) -> str:
    model = result.model
    stopped = "" if result.complete else ", unfinished"
    return (
        f"{model.attention} attention, $L$ = {model.L}, $V$ = {model.V}, "
        rf"$\kappa$ = {model.kappa:g}, $g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}"
        f"\n{result.network} network, {result.optimiser}, {result.replicas} members, "
        f"{result.sets} data set(s){stopped}, seed {result.seed}, "
        f"mcattn {result.versions.get('mcattn', 'of unknown version')}"
    )
