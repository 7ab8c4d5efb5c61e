"""Figures of many runs side by side: finite-size table, planes (P, L) and (P, V)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, ScalarFormatter

from mcattn.analysis.figures import BLUE, GREEN, STYLE, VERMILION
from mcattn.analysis.planes import Plane, PlanesResult
from mcattn.analysis.points import Point
from mcattn.analysis.profile_figure import SYMBOLS
from mcattn.analysis.series import NAN, Estimate
from mcattn.analysis.sizes import SizesResult

_MEAN = {"L": "sequence length $L$", "V": "vocabulary $V$"}
_RESIDUAL = 1e3


def sizes_figure(result: SizesResult) -> Figure:
    """Barrier, jump, largest variance and moment ratio against L; theory beside them."""
    u = SYMBOLS[result.along]
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(6.6, 4.8))
        axes = figure.subplots(2, 2)
        panels: tuple[tuple[str, Callable[[Point], Estimate]], ...] = (
            ("barrier / kT", lambda p: p.barrier),
            (f"jump of ${u}$", lambda p: p.dm),
            (f"largest var ${u}$", lambda p: p.var),
            ("moment ratio $B$ there", lambda p: p.binder),
        )
        for panel, (label, read) in zip(axes.flat, panels, strict=True):
            _against_L(panel, result.points, read)
            panel.set_ylabel(label)
        for panel, name in zip(axes.flat, ("barrier", "dm"), strict=False):
            _theory(panel, result.points, name)
        _lines(axes[0, 0], axes[1, 1], result.points)
        figure.suptitle(_headline(result), fontsize=8)
        open_ = Line2D(
            [], [], marker="o", ms=4, color=VERMILION, mfc="white", ls="", label="one phase"
        )
        full = Line2D([], [], marker="o", ms=4, color=BLUE, ls="", label="two phases")
        axes[1, 0].legend(handles=[full, open_], fontsize=6)
    return figure


def _headline(result: SizesResult) -> str:
    model = result.model
    return (
        f"{result.kind}: {model.attention} attention, $V$ = {model.V}, "
        f"$\\kappa$ = {model.kappa:g}, $g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}, "
        f"$\\chi$ = {result.chi:g}"
    )


def _against_L(axes: Axes, points: Sequence[Point], read: Callable[[Point], Estimate]) -> None:
    """Points with their errors; open ones have one phase."""
    for point in points:
        value = read(point)
        color = BLUE if point.phases == 2 else VERMILION
        face = color if point.phases == 2 else "white"
        axes.errorbar(
            point.model.L, value.value, np.nan_to_num(value.error), fmt="o", ms=4, color=color,
            mfc=face, capsize=2,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks([p.model.L for p in points], [str(p.model.L) for p in points])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", bottom=False, top=False)
    axes.set_xlabel(_MEAN["L"])


def _theory(axes: Axes, points: Sequence[Point], name: str) -> None:
    values = [point.theory.get(name, NAN) for point in points]
    L = [point.model.L for point in points]
    axes.plot(L, values, "-", color=GREEN, lw=0.9, zorder=0, label="finite-chi theory")


def _lines(barrier: Axes, ratio: Axes, points: Sequence[Point]) -> None:
    L = [point.model.L for point in points]
    values = [point.landscape.get("barrier", NAN) for point in points]
    if np.isfinite(values).any():
        barrier.plot(L, values, ":", color="#555555", lw=0.9, zorder=0, label="equal rows")
        barrier.set_yscale("log")
        barrier.legend(fontsize=6)
    ratio.axhline(2 / 3, color="#555555", lw=0.7, ls=":", zorder=0)
    ratio.annotate(
        "two narrow phases", (0.98, 2 / 3), (0, -5), ("axes fraction", "data"), "offset points",
        fontsize=6, ha="right", va="top", color="#555555",
    )  # fmt: skip
    ratio.set_ylim(top=0.72)


def planes_figure(result: PlanesResult) -> Figure:
    """For each plane P* with the band of two phases, and below it the distance from theory."""
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(3.5 * len(result.planes), 4.4))
        axes = figure.subplots(
            2, len(result.planes), squeeze=False, sharex="col", height_ratios=(3, 1)
        )
        for i, plane in enumerate(result.planes):
            _phases(axes[0, i], plane)
            _residuals(axes[1, i], plane)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=6)
        model = result.model
        figure.suptitle(
            f"$\\kappa$ = {model.kappa:g}, $g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}, "
            f"$\\chi$ = {result.chi:g}; {len(result.points)} runs",
            fontsize=8,
        )
    return figure


def _phases(axes: Axes, plane: Plane) -> None:
    line, other = plane.line, "V" if plane.name == "L" else "L"
    axes.fill_between(
        line.x, line.P_lo, line.P_hi, color=BLUE, alpha=0.12, lw=0,
        label="landscape: two minima, $P_\\mathrm{lo}$ to $P_\\mathrm{hi}$",
    )  # fmt: skip
    axes.plot(line.x, line.P_star, color=GREEN, lw=1.0, label="$P^*$, finite-chi theory")
    if plane.name == "L":
        axes.plot(
            line.x, line.law, ":", color="#555555", lw=0.9,
            label=r"$\frac{V}{4(V-1)}\frac{\kappa}{g_s}L\,\ln^2 L$, the limit of huge $L$",
        )  # fmt: skip
    two = [p for p in plane.points if p.phases == 2]
    axes.errorbar(
        [getattr(p.model, plane.name) for p in two], [p.P.value for p in two],
        [p.P.error for p in two], fmt="o", ms=3.5, color=VERMILION, label="$P^*$, Monte Carlo",
    )  # fmt: skip
    one = [p for p in plane.points if p.phases == 1]
    axes.errorbar(
        [getattr(p.model, plane.name) for p in one], [p.P_peak.value for p in one],
        [p.P_peak.error for p in one], fmt="o", ms=3.5, color=VERMILION, mfc="white",
        label="one phase: largest var $m$",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", ylabel="training sequences $P$")
    axes.set_title(f"${other}$ = {plane.fixed}", fontsize=7)
    axes.text(0.97, 0.05, "uniform", transform=axes.transAxes, ha="right", fontsize=7)
    axes.text(0.03, 0.93, "copy", transform=axes.transAxes, fontsize=7)


def _residuals(axes: Axes, plane: Plane) -> None:
    """Relative distance of P* from finite-chi theory, in parts per thousand."""
    two = [p for p in plane.points if p.phases == 2 and "P" in p.theory]
    x = [getattr(p.model, plane.name) for p in two]
    exact = np.array([p.theory["P"] for p in two])
    off = _RESIDUAL * (np.array([p.P.value for p in two]) / exact - 1)
    error = _RESIDUAL * np.array([p.P.error for p in two]) / exact
    axes.axhline(0, color=GREEN, lw=0.8, zorder=0)
    axes.errorbar(x, off, error, fmt="o", ms=3, color=VERMILION, capsize=2)
    ticks = [getattr(p.model, plane.name) for p in plane.points]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", bottom=False, top=False)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set(xlabel=_MEAN[plane.name], ylabel=r"off theory / ‰")
