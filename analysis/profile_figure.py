"""The page of an umbrella run: profile, weights against P, overlap and travel of windows."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcattn.analysis.figures import BLACK, BLUE, COLORS, STYLE, VERMILION, caption
from mcattn.analysis.ladder_figure import draw_paths
from mcattn.analysis.series import short
from mcattn.analysis.transition import Transition
from mcattn.analysis.umbrella import UmbrellaResult

_SHOWN = ("equal height", BLUE), ("equal weight", VERMILION)
_HEADROOM = 1.25
SYMBOLS = {"m": "m", "tau": r"|\tau|", "beta": r"|\beta|"}


def profile_figure(result: UmbrellaResult) -> Figure:
    """Four panels: Phi(m) with both phases, weights against P, overlap, paths of replicas."""
    found = result.transition
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, 2)
        _profile(axes[0, 0], found)
        _weights(axes[0, 1], found)
        _overlap(figure, axes[1, 0], found)
        draw_paths(axes[1, 1], result.ladder)
        axes[1, 1].set_ylabel("window")
        figure.suptitle(_headline(result), fontsize=8)
        figure.supxlabel(caption(result.ladder), fontsize=5.5, color="#555555")
    return figure


def _headline(result: UmbrellaResult) -> str:
    found = result.transition
    trips = f"{result.round_trips} round trips across the barrier"
    if found.P_equal_weight is None:
        phases = "one phase" if found.phases == 1 else "no transition told"
        return f"{phases} at $\\chi$ = {found.chi:g}; {trips}"
    P = short(found.P_equal_weight.value, found.P_equal_weight.error)
    return f"equal weight at $P$ = {P}, $\\chi$ = {found.chi:g}; {trips}"


def _profile(axes: Axes, found: Transition) -> None:
    """Phi at both transition points, from the deepest well up, with bands and phases."""
    symbol = SYMBOLS[found.along]
    axes.set(xlabel=f"order parameter ${symbol}$", ylabel=rf"$\Phi = -\ln\, p({symbol})$ / kT")
    if not found.profiles:
        _say(axes, found)
        return
    shown = _SHOWN if found.phases == 2 else (("largest fluctuations", BLUE),)
    for (name, color), profile in zip(shown, found.profiles, strict=True):
        known = np.isfinite(profile.phi) & np.isfinite(profile.error)
        m, phi = profile.m[known], profile.phi[known] - profile.phi[known].min()
        error = profile.error[known]
        axes.fill_between(m, phi - error, phi + error, color=color, alpha=0.3, lw=0)
        axes.plot(m, phi, color=color, lw=0.9, label=f"{name}, $P$ = {profile.P:.5g}")
    if found.barrier is None or found.m_minus is None or found.m_plus is None:
        axes.legend(loc="upper center", fontsize=6)
        return
    for value, name in ((found.m_minus, "uniform"), (found.m_plus, "copy")):
        axes.axvline(value.value, color="#777777", lw=0.6, ls=(0, (1, 1.5)), zorder=0)
        axes.annotate(
            name, (value.value, 0.97), (3, 0), ("data", "axes fraction"), "offset points",
            fontsize=6, va="top", color="#555555",
        )  # fmt: skip
    top = found.barrier.value
    axes.set_ylim(-0.04 * top, 1.45 * top)
    barrier = short(top, found.barrier.error)
    axes.annotate(
        f"barrier {barrier} kT", (found.split, top), (0, 4), textcoords="offset points",
        ha="center", va="bottom", fontsize=6,
    )  # fmt: skip
    axes.legend(loc="upper center", fontsize=6, bbox_to_anchor=(0.5, 0.92))


def _weights(axes: Axes, found: Transition) -> None:
    """Weight of either phase against P; equal weight and equal height marked."""
    axes.set(xlabel="training sequences $P$", ylabel="weight of a phase", ylim=(0, _HEADROOM))
    if found.P_equal_weight is None or found.P_equal_height is None:
        _say(axes, found)
        return
    for weight, color, name in (
        (1 - found.weight, BLACK, "uniform"),
        (found.weight, VERMILION, "copy"),
    ):
        low, high = weight - found.weight_error, weight + found.weight_error
        axes.fill_between(found.P, low, high, color=color, alpha=0.25, lw=0)
        axes.plot(found.P, weight, lw=0.9, color=color, label=name)
    marks = (found.P_equal_weight, "equal weight", "-"), (found.P_equal_height, "equal height", ":")
    for value, name, style in marks:
        low, high = value.value - value.error, value.value + value.error
        axes.axvspan(low, high, color=BLUE, alpha=0.2, lw=0)
        axes.axvline(value.value, color=BLUE, lw=0.7, ls=style, label=name)
    axes.legend(loc="upper center", ncols=2, fontsize=6)


def _overlap(figure: Figure, axes: Axes, found: Transition) -> None:
    """The overlap matrix; the weakest link between windows is ringed."""
    image = axes.imshow(found.overlap, origin="lower", cmap="cividis", vmin=0)
    low, high, value = found.weakest
    axes.plot([high], [low], "o", ms=5, mfc="none", mec=COLORS[1], mew=0.8)
    axes.set(xlabel="window", ylabel="window", title=f"weakest link {value:.2g}")
    axes.title.set_fontsize(7)
    axes.tick_params(which="both", top=False, right=False)
    figure.colorbar(image, ax=axes, label="overlap")


def _say(axes: Axes, found: Transition) -> None:
    said = "one phase" if found.phases == 1 else "no transition told"
    axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", fontsize=7)
