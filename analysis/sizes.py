"""The order of the transition from umbrella runs of several L at one chi: a finite-size table.

At a first-order transition the barrier between the phases grows with L, the jump of the order
parameter stays, and so does its variance where it is largest. Where order sets in continuously
p(u) has one maximum at every size, yet the variance at its peak does not shrink like that of a
sum of L rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcattn.analysis import points, series
from mcattn.analysis.points import UNKNOWN, Point
from mcattn.analysis.series import NAN, Estimate, short
from mcattn.analysis.transition import NAME
from mcattn.model import CopyModel
from mcattn.runfile import Run

SIGMAS = 3.0  # by which the barrier must grow
SHRINKING = -0.5  # exponent of the largest variance in L: -1 is that of independent rows
FIRST, CONTINUOUS, NONE, OPEN = "first order", "continuous", "no transition seen", "undecided"


@dataclass(frozen=True)
class SizesResult:
    """A point for each L, and what they say together.

    kind : "first order", "continuous", "no transition seen" or "undecided".
    growth : barrier per unit of L between the smallest and the largest L with two phases, kT.
    exponent : of the largest variance in L, between the smallest and the largest L.
    Both are nan where there are no two such L.
    """

    model: CopyModel
    chi: float
    along: str
    points: tuple[Point, ...]
    kind: str
    verdict: str
    growth: Estimate
    exponent: Estimate
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        out = {"view": "sizes"} | series.plain(self)
        return out | {"points": [point.to_json() for point in self.points]}


def analyze(runs: Sequence[Run]) -> SizesResult:
    """The finite-size table of umbrella runs that differ in L alone.

    Raises
    ------
    RunFileError : the runs differ in something else, or are no umbrella runs.
    """
    found = points.read(runs, ("L",))
    along = runs[0].bias_along
    kind, verdict, growth, exponent = judged(found, NAME[along])
    return SizesResult(
        model=found[0].model,
        chi=found[0].chi,
        along=along,
        points=found,
        kind=kind,
        verdict=verdict,
        growth=growth,
        exponent=exponent,
        warnings=tuple(text for point in found for text in point.warnings),
    )


def judged(found: Sequence[Point], name: str) -> tuple[str, str, Estimate, Estimate]:
    """Kind, sentence, growth of the barrier, exponent of the variance; points in order of L."""
    two = [point for point in found if point.phases == 2]
    one = [point for point in found if point.phases == 1 and math.isfinite(point.var.value)]
    seen = sorted(two + one, key=lambda point: point.model.L)
    exponent = _exponent(seen[0], seen[-1]) if len(seen) > 1 else UNKNOWN
    if len(two) > 1:
        return *_first(two, one), exponent
    if len(one) > 1 and not two:
        return *_single(one, exponent, name), exponent
    return OPEN, f"Undecided: {_undecided(two, one)}.", UNKNOWN, exponent


def _first(two: Sequence[Point], one: Sequence[Point]) -> tuple[str, str, Estimate]:
    low, high = two[0], two[-1]
    growth = _slope(low, high)
    barriers = f"{_said(low.barrier)} kT at L = {low.model.L} to {_said(high.barrier)} kT at L = "
    barriers += str(high.model.L)
    rests = (
        f"the barrier goes from {barriers} ({_said(growth)} kT per position), the jump from "
        f"{_said(low.dm)} to {_said(high.dm)}; B is {_said(high.binder)} at L = "
        f"{high.model.L}, 2/3 for two phases"
    )
    few = "".join(f"; one phase at L = {point.model.L}" for point in one)
    if growth.value > SIGMAS * growth.error:
        return FIRST, f"First order: {rests}{few}.", growth
    return OPEN, f"Undecided, the barrier does not grow beyond errors: {rests}{few}.", growth


def _single(one: Sequence[Point], exponent: Estimate, name: str) -> tuple[str, str, Estimate]:
    sizes = f"L = {one[0].model.L} to {one[-1].model.L}"
    rests = (
        f"p({name}) has one maximum at every P for {sizes}, and the largest var {name} goes like L "
        f"to the power {_said(exponent)} (-1: independent rows)"
    )
    if exponent.value - SIGMAS * exponent.error > SHRINKING:
        return CONTINUOUS, f"Continuous: {rests}.", UNKNOWN
    return NONE, f"No transition seen: {rests}.", UNKNOWN


def _undecided(two: Sequence[Point], one: Sequence[Point]) -> str:
    parts = [f"two phases at L = {point.model.L}" for point in two]
    parts += [f"one phase at L = {point.model.L}" for point in one]
    return (
        ", ".join(parts or ["no run tells"]) + "; runs of two phases at two L at least are needed"
    )


def _slope(low: Point, high: Point) -> Estimate:
    steps = high.model.L - low.model.L
    error = math.hypot(low.barrier.error, high.barrier.error) / steps
    return Estimate((high.barrier.value - low.barrier.value) / steps, error, NAN, NAN)


def _exponent(low: Point, high: Point) -> Estimate:
    span = math.log(high.model.L / low.model.L)
    ends = low.var, high.var
    error = math.hypot(*(end.error / end.value for end in ends)) / span
    return Estimate(math.log(ends[1].value / ends[0].value) / span, error, NAN, NAN)


def _said(value: Estimate) -> str:
    return short(value.value, value.error)
