"""Figures of results, for print: records in, matplotlib figures out, no numbers computed.

Figures are drawn and saved without pyplot, by the backend of the file type, so that no display
is needed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from mcattn.analysis.comparison import NOTHING, Theory
from mcattn.analysis.facts import RunFacts
from mcattn.analysis.fixed import FixedResult, StateSummary
from mcattn.analysis.loop import DOWN, NAMES, UP, BranchPoint, HysteresisResult, Loop
from mcattn.analysis.tempering import TemperingResult
from mcattn.errors import JobError

STYLE = Path(__file__).with_name("mcattn.mplstyle")
FORMATS = (".png", ".pdf", ".svg")
# Okabe and Ito's colours and one of Tol's: told apart by every kind of colour vision.
VERMILION, BLUE, GREEN, PURPLE, BLACK = "#D55E00", "#0072B2", "#009E73", "#AA4499", "#222222"
COLORS, MARKERS = (BLUE, VERMILION, GREEN, PURPLE, BLACK), "osD^v"
BRANCH_COLOR = {UP: VERMILION, DOWN: BLUE, 0: BLACK}
QUANTITY_COLOR = {"alpha": GREEN, "beta": PURPLE}
MARKER = {UP: "^", DOWN: "v", 0: "s"}
DIRECTION = {UP: "rising", DOWN: "falling", 0: "as listed"}
SYMBOL = {"P": "$P$", "chi": r"$\chi$"}
AXIS = {
    "P": "training sequences $P$",
    "chi": r"inverse temperature $\chi$",
    "bias_center": "centre of the bias in $m$",
}
DASHES: dict[str, Any] = {"stable": "-", "unstable": (0, (3, 1.6)), "exact": (0, (6, 1.2, 1, 1.2))}
LINE = 0.9  # width in points
NOTE: dict[str, Any] = {"fontsize": 6, "ha": "center", "va": "center", "backgroundcolor": "white"}
Result = HysteresisResult | FixedResult


@dataclass(frozen=True)
class _Group:
    """Points drawn alike: a branch at one rate, or the states of one chi."""

    points: Sequence[BranchPoint] | Sequence[StateSummary]
    marker: str
    color: str
    strength: float  # 1 is the full colour, less is paler
    filled: bool
    line: float = 0.0  # width of the line that joins the points


def hysteresis_figure(result: HysteresisResult, theory: Theory = NOTHING) -> Figure:
    """Loop of the order parameter, switching points and test loss against P.

    Softmax: m, under a strip that counts at each P the replicas that switch there and marks
    their mean for the slowest rate. Linear: alpha and beta. Faster rates are paler.
    """
    softmax, strengths = result.model.attention == "softmax", _strengths(result)
    # Slower last, to lie on top. Colour tells branches apart, or else alpha from beta.
    groups = [
        _Group(
            loop.branch(b),
            MARKER[b],
            BRANCH_COLOR[b] if softmax else BLACK,
            strength,
            b != DOWN,
            0.5 if result.switch else 0.0,
        )
        for loop, strength in reversed(strengths)
        for b in (UP, DOWN, 0)
        if loop.branch(b)
    ]
    strip = result if result.switch else None
    shown = {group.marker: group for group in groups}
    legend: list[tuple[Any, str]] = [
        (_handle(shown[MARKER[b]]), f"{SYMBOL[result.control]} {DIRECTION[b]}")
        for b in (UP, DOWN, 0)
        if MARKER[b] in shown
    ]
    if len(strengths) > 1:
        legend += [
            (_swatch(strength, softmax), f"{loop.sweeps_per_point} sweeps per point")
            for loop, strength in strengths
        ]
    return _figure(result, groups, theory, legend, strip)


def fixed_figure(result: FixedResult, theory: Theory = NOTHING) -> Figure:
    """Averages of the order parameters and of the test loss against P, one colour for each chi."""
    chis = sorted({state.chi for state in result.states})
    groups = [
        _Group(
            [state for state in result.states if state.chi == chi],
            MARKERS[i % len(MARKERS)],
            COLORS[i % len(COLORS)],
            1.0,
            True,
        )
        for i, chi in enumerate(chis)
    ]
    labels = [rf"$\chi$ = {chi:g}" for chi in chis]
    legend = [(_handle(group), label) for group, label in zip(groups, labels, strict=True)]
    return _figure(result, groups, theory, legend, None)


def check(out: str | Path) -> None:
    """Refuse a name that no figure can be written to, before the work is done.

    Raises
    ------
    JobError : the ending is not .png, .pdf or .svg, or the folder does not exist.
    """
    out = Path(out)
    if out.suffix.lower() not in FORMATS:
        raise JobError(f"{out} ends in {out.suffix!r}; figures are written as {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise JobError(f"{out.parent} is not a folder; the figure cannot be written there")


def save(figure: Figure, out: str | Path) -> None:
    """Write the figure under a temporary name beside `out`, then rename it.

    Raises
    ------
    JobError : as `check`, or the file cannot be written.
    """
    check(out)
    out = Path(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with matplotlib.rc_context(fname=STYLE):
            figure.savefig(part, format=out.suffix.lower()[1:])
        os.replace(part, out)
    except OSError as err:
        raise JobError(f"cannot write {out}: {err}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def caption(result: Result | TemperingResult) -> str:
    """Two lines that say which run this is."""
    model, chi = result.model, ""
    if isinstance(result, HysteresisResult):
        rates = ", ".join(str(loop.sweeps_per_point) for loop in result.loops)
        size = f"{result.replicas} replicas, {rates} sweeps per point"
        chi = rf", $\chi$ = {result.chi:g}" if math.isfinite(result.chi) else ""
    else:
        replicas = sum(state.replicas for state in result.states)
        size = f"{replicas} replicas in {len(result.states)} states"
    tokens = "" if model.tokens is None else ", unequal tokens"
    stopped = "" if result.complete else ", unfinished"
    return (
        f"{model.attention} attention, $L$ = {model.L}, $V$ = {model.V}, "
        rf"$\kappa$ = {model.kappa:g}, $g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}{chi}{tokens}"
        f"\n{size}{stopped}, seed {result.seed}, "
        f"mcattn {result.versions.get('mcattn', 'of unknown version')}"
    )


def view_caption(result: RunFacts) -> str:
    """One line that says which run a part of a view comes from."""
    model = result.model
    return (
        f"{model.attention}: $L$ = {model.L}, $V$ = {model.V}, $\\kappa$ = {model.kappa:g}, "
        f"$g_s$ = {model.g_s:g}, $g_w$ = {model.g_w:g}, $\\chi$ = {result.chi:g}; "
        f"{result.replicas} replicas, seed {result.seed}"
        f"{'' if result.complete else ', unfinished'}, "
        f"mcattn {result.versions.get('mcattn', 'of unknown version')}"
    )


def _figure(
    result: Result,
    groups: list[_Group],
    theory: Theory,
    legend: list[tuple[Any, str]],
    strip: HysteresisResult | None,
) -> Figure:
    names = ("m",) if result.model.attention == "softmax" else ("alpha", "beta")
    legend = legend + _quantities(names) + _lines(theory)
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure()
        figure.set_figheight(figure.get_figheight() + 0.14 * math.ceil(len(legend) / 2))
        heights = [0.35, 1.7, 1.0] if strip else [1.7, 1.0]
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        main, bottom = axes[-2:]
        for name in names:
            _quantity(main, result.control, groups, theory, name)
        _quantity(bottom, result.control, groups, theory, "loss")
        main.set_ylabel("copy overlap $m$" if len(names) == 1 else r"$\alpha$, $\beta$")
        bottom.set(ylabel="test loss", xlabel=AXIS[result.control])
        for panel in (main, bottom) if len(names) == 1 else ():
            panel.set_ylim(0, 1.08 * panel.dataLim.y1)
        if strip:
            _switches(axes[0], strip)
        _marks(axes, theory.marks)
        figure.align_ylabels(axes)
        figure.legend(
            [handle for handle, _ in legend],
            [label for _, label in legend],
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.2)},
            loc="outside upper center",
            ncols=2,
        )
        figure.supxlabel(caption(result), fontsize=5.5, color="#555555")
    return figure


def _quantity(axes: Axes, control: str, groups: list[_Group], theory: Theory, name: str) -> None:
    """Points with error bars, and the theory lines over them."""
    for group in groups:
        color = _pale(QUANTITY_COLOR.get(name, group.color), group.strength)
        axes.errorbar(
            [getattr(point, control) for point in group.points],
            [getattr(point, name).value for point in group.points],
            [np.nan_to_num(getattr(point, name).error) for point in group.points],
            color=color,
            lw=group.line,
            elinewidth=0.6,
            **_marker(group, color),
        )
    for curve in theory.curves:
        look = {"color": QUANTITY_COLOR.get(name, BLACK), "ls": DASHES[curve.kind]}
        axes.plot(curve.P, getattr(curve, name), lw=LINE, zorder=3, **look)


def _switches(axes: Axes, result: HysteresisResult) -> None:
    """How many replicas switch at each point, and above them the mean of the slowest rate."""
    tallest = 1
    for loop, strength in reversed(_strengths(result)):
        for switching in (loop.P_up, loop.P_down):
            at, count = np.unique([x for x in switching.at if math.isfinite(x)], return_counts=True)
            color = _pale(BRANCH_COLOR[switching.branch], strength)
            # Faster rates are wider as well as paler, so that both show at one P.
            axes.vlines(at, 0, count, color=color, lw=1 + 2.5 * (1 - strength))
            tallest = max([tallest, *count.tolist()])
    mean = {UP: result.slowest.P_up, DOWN: result.slowest.P_down}
    for switching in mean.values():
        mid, error, b = switching.value, np.nan_to_num(switching.error), switching.branch
        axes.errorbar(mid, 1.3 * tallest, xerr=error, color=BRANCH_COLOR[b], marker=MARKER[b])
    silent = [NAMES[b] for b in (UP, DOWN) if result.slowest.branch(b) and not mean[b].switched]
    if silent:
        text = f"no switch seen on the way {' or '.join(silent)}"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, **NOTE)
    axes.set_ylim(0, 1.6 * tallest)
    axes.set_yticks([0, tallest])
    axes.tick_params(axis="y", which="minor", left=False, right=False)
    axes.set_ylabel("switched", fontsize=6)


def _marks(axes: Sequence[Axes], marks: tuple[tuple[str, float], ...]) -> None:
    """Vertical lines through all panels, labelled above the uppermost, away from each other."""
    low, high = axes[0].get_xlim()
    seen = [(label, P) for label, P in marks if low < P < high]
    crowded = bool(np.any(np.diff([P for _, P in seen]) < 0.05 * (high - low)))
    for i, (label, P) in enumerate(seen):
        for panel in axes:
            panel.axvline(P, color="#777777", lw=0.6, ls=(0, (1, 1.5)), zorder=0)
        inner = len(seen) == 1 or 0 < i < len(seen) - 1
        axes[0].annotate(
            label,
            (P, 1),
            (0, 14 if inner and crowded else 2),
            ("data", "axes fraction"),
            "offset points",
            ha="center" if inner else ("left" if i else "right"),
            va="bottom",
        )


def _strengths(result: HysteresisResult) -> list[tuple[Loop, float]]:
    """The loops, slowest first, with the strength of their colours."""
    order = sorted(result.loops, key=lambda loop: -loop.sweeps_per_point)
    step = 0.6 / max(len(order) - 1, 1)
    return [(loop, 1 - step * i) for i, loop in enumerate(order)]


def _swatch(strength: float, softmax: bool) -> tuple[Line2D, ...]:
    colors = [BRANCH_COLOR[b] for b in (UP, DOWN)] if softmax else QUANTITY_COLOR.values()
    return tuple(Line2D([], [], color=_pale(color, strength), lw=3) for color in colors)


def _handle(group: _Group) -> Line2D:
    color = to_rgb(group.color)
    return Line2D([], [], color=color, lw=group.line, **_marker(group, color))


def _quantities(names: tuple[str, ...]) -> list[tuple[Any, str]]:
    """Legend of the colours of alpha and beta; m needs none, it is on the axis."""
    colored = [name for name in names if name in QUANTITY_COLOR]
    return [(Line2D([], [], color=QUANTITY_COLOR[n], lw=3), rf"$\{n}$") for n in colored]


def _lines(theory: Theory) -> list[tuple[Any, str]]:
    labels = {curve.label: curve.kind for curve in theory.curves}
    return [
        (Line2D([], [], color=BLACK, ls=DASHES[kind], lw=LINE), label)
        for label, kind in labels.items()
    ]


def _marker(group: _Group, color: Any) -> dict[str, Any]:
    size = min(3.4, max(1.6, 130 / max(len(group.points), 1)))
    face = color if group.filled else "white"
    return {"marker": group.marker, "ms": size, "mfc": face, "mec": color, "mew": 0.6}


def _pale(color: str, strength: float) -> tuple[float, float, float]:
    """The colour mixed with white."""
    r, g, b = (1 - strength * (1 - part) for part in to_rgb(color))
    return r, g, b
