"""The page of a tempering run: swaps of neighbours, paths of replicas, who was where."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcattn.analysis.figures import BLACK, BLUE, COLORS, STYLE, VERMILION, caption
from mcattn.analysis.tempering import TemperingResult

_PATHS = 3  # replicas whose way is drawn: more would hide one another


def ladder_figure(result: TemperingResult) -> Figure:
    """Four panels: the ladder in (P, chi), acceptance and upward share, paths, occupancy."""
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, 2)
        _ladder(axes[0, 0], result)
        _swaps(axes[0, 1], result)
        draw_paths(axes[1, 0], result)
        _occupancy(figure, axes[1, 1], result)
        figure.suptitle(_headline(result), fontsize=8)
        figure.supxlabel(caption(result), fontsize=5.5, color="#555555")
    return figure


def _headline(result: TemperingResult) -> str:
    barrier = f", barrier $\\Lambda$ = {result.barrier:.1f}" if np.isfinite(result.barrier) else ""
    trips = f"{sum(result.round_trips)} round trips"
    works = "the ladder works" if result.works else "the ladder does not work"
    return f"{works}: {trips} in {result.ladders} ladders of {len(result.states)} states{barrier}"


def _ladder(axes: Axes, result: TemperingResult) -> None:
    """The states in the plane, coloured by their copy overlap."""
    P, chi = [s.P for s in result.states], [s.chi for s in result.states]
    order = np.array([[pair.low, pair.high] for pair in result.pairs])
    for low, high in order:
        axes.plot(np.take(P, [low, high]), np.take(chi, [low, high]), lw=0.5, color=BLACK)
    m = [s.m.value for s in result.states]
    dots = axes.scatter(P, chi, c=m, s=14, cmap="cividis", vmin=0, zorder=3)
    axes.set(xlabel="training sequences $P$", ylabel=r"$\chi$")
    axes.margins(0.08)
    for k in (0, len(P) - 1):
        axes.annotate(str(k), (P[k], chi[k]), (4, -2), textcoords="offset points", fontsize=6)
    assert axes.figure is not None
    axes.figure.colorbar(dots, ax=axes, label="copy overlap $m$")


def _swaps(axes: Axes, result: TemperingResult) -> None:
    """Acceptance of every pair, and the share of upward replicas in every state."""
    between = [(pair.low + pair.high) / 2 for pair in result.pairs]
    acceptance = [pair.acceptance for pair in result.pairs]
    axes.plot(between, acceptance, "o", ms=2.6, color=BLUE, label="acceptance of pairs")
    untried = [x for x, pair in zip(between, result.pairs, strict=True) if not pair.attempted]
    if untried:
        axes.plot(untried, np.zeros(len(untried)), "x", color=BLUE, label="never tried")
    axes.plot(result.upward, "-s", ms=2.2, lw=0.6, color=VERMILION, label="upward replicas")
    axes.set(xlabel="state", ylabel="share", ylim=(-0.04, 1.3))
    axes.legend(loc="upper center", ncols=2)


def draw_paths(axes: Axes, result: TemperingResult) -> None:
    """State against sweeps of a few replicas of the first ladder, the busiest one first."""
    own = np.array(result.round_trips[: len(result.states)])
    chosen = np.argsort(-own, kind="stable")[:_PATHS]
    for color, replica in zip(COLORS, chosen, strict=False):
        label = f"replica {replica}: {own[replica]}"
        axes.step(result.sweeps, result.paths[:, replica], lw=0.5, color=color, label=label)
    top = len(result.states) - 1
    axes.set(xlabel="sweeps", ylabel="state", ylim=(-0.03 * top, 1.16 * top))
    axes.legend(loc="upper center", ncols=_PATHS, fontsize=6, title_fontsize=6, handlelength=1.0)


def _occupancy(figure: Figure, axes: Axes, result: TemperingResult) -> None:
    """Rows that every replica spent in every state, as multiples of an equal share."""
    count = len(result.states)
    share = result.occupancy * count
    image = axes.imshow(share, aspect="auto", origin="lower", cmap="cividis", vmin=0, vmax=3)
    for ladder in range(1, result.ladders):
        axes.axhline(ladder * count - 0.5, color="white", lw=0.6)
    axes.set(xlabel="state", ylabel="replica")
    axes.tick_params(which="both", top=False, right=False)
    figure.colorbar(image, ax=axes, label="occupancy / equal share", extend="max")
