"""Records of what different ways say about one model, and the differences between them.

Axes: s data sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mcattn import phases
from mcattn.analysis import series
from mcattn.analysis.expected import Values
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.reading import Method, Reading
from mcattn.analysis.series import NAN
from mcattn.continuation import Jump
from mcattn.minima import Minimum

NEAR = 0.02  # of P: closer to the end of a branch, what differs is where it ends
ROUNDING = 1e-9
TINY = 1e-6  # a reference below it has no relative difference
PHASES = {phases.UNIFORM: "uniform", phases.COPY: "copy"}
QUANTITIES = {"softmax": ("m", "q", "loss"), "linear": ("alpha", "beta", "loss")}
Minima = dict[int, dict[float, Minimum | None]]  # of a data set, by phase and P


class _Place(NamedTuple):
    P: float
    branch: int
    phase: int
    near: bool = False


@dataclass(frozen=True)
class Difference:
    """A number by one way minus that by another, averaged over the data sets in this phase.

    error : half-width of 68 %; of the scatter over data sets, or of sampling where both ways
        use the same ones at a temperature. nan if not known.
    largest : largest difference of a data set as a share of its reference; nan at a temperature.
    near : whether P lies within NEAR of where the phase ends in one of the sets.
    """

    P: float
    branch: int
    phase: str
    quantity: str
    sets: int
    value: float
    reference: float
    difference: float
    error: float
    largest: float
    near: bool

    @property
    def pull(self) -> float:
        """Difference in errors; nan where neither is more than rounding."""
        return self.difference / self.error if self.error > ROUNDING else NAN


@dataclass(frozen=True)
class Comparison:
    """All differences between two ways."""

    name: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Turn:
    """Where training leaves a branch and where the branch ends, on one data set.

    switched : middle of the step of P at which all members have switched; half is half of it.
    """

    method: str
    branch: int
    set: int
    switched: float
    half: float
    end: float

    @property
    def relative(self) -> float:
        return self.switched / self.end - 1


def minima_and_theory(
    names: Sequence[str],
    P: Sequence[float],
    minima: Sequence[Minima],
    theory: dict[int, Values],
    jumps: Sequence[Jump],
) -> Comparison:
    """Minima of the data sets less those of the population; theory by phase, at each P."""
    found = []
    for phase, values in theory.items():
        for i, x in enumerate(P):
            own = [one for sets in minima if (one := sets.get(phase, {}).get(x)) is not None]
            if own and math.isfinite(values["m"][i]):
                place = _Place(x, 0, phase, _near(x, phase, jumps))
                found += _scatter(place, names, _numbers(own), _at(values, i))
    return Comparison("minima of data sets - landscape", tuple(found))


def trained_and_minima(
    method: Method, names: Sequence[str], minima: Sequence[Minima], jumps: Sequence[Jump]
) -> Comparison:
    """Training without temperature less the minima of the same data sets; H is compared too."""
    found = []
    for one in method.readings:
        for phase in PHASES:
            pairs = [
                (s, there)
                for s, own in enumerate(minima)
                if one.phase[s] == phase and (there := own.get(phase, {}).get(one.P)) is not None
            ]
            if pairs:
                place = _Place(one.P, one.branch, phase, _near(one.P, phase, jumps))
                values = _at(one.values, [s for s, _ in pairs])
                found += _scatter(place, (*names, "H"), values, _numbers([m for _, m in pairs]))
    return Comparison(f"{method.name} - minima of the same data sets", tuple(found))


def sampled_and_theory(
    method: Method, names: Sequence[str], theory: dict[int, Values]
) -> Comparison:
    """Averages over data sets less those of the population; theory at the readings' P."""
    found = []
    for i, one in enumerate(method.readings):
        for phase, values in theory.items():
            sets = np.flatnonzero(one.phase == phase)
            if len(sets) and math.isfinite(values["m"][i]):
                place = _Place(one.P, one.branch, phase)
                pairs = _at(one.values, sets), _at(values, i)
                floor = {name: _sampling_error([one], name, sets) for name in names}
                found += _scatter(place, names, *pairs, floor)
    return Comparison(f"{method.name} - theory at chi = {method.chi:g}", tuple(found))


def sampled_and_sampled(method: Method, other: Method, names: Sequence[str]) -> Comparison:
    """Two ways at one temperature, on the same data sets: the error is that of sampling."""
    there = {(one.P, one.branch): one for one in other.readings}
    found = []
    for one in method.readings:
        twin = there.get((one.P, one.branch))
        for phase in PHASES if twin else ():
            assert twin is not None
            sets = np.flatnonzero((one.phase == phase) & (twin.phase == phase))
            if len(sets):
                freedom = len(sets) * (method.members + other.members - 2)
                place = _Place(one.P, one.branch, phase)
                found += [_sampling(place, name, one, twin, sets, freedom) for name in names]
    name = f"{method.name} - {other.name} on the same data sets, chi = {method.chi:g}"
    return Comparison(name, tuple(found))


def turns(method: Method, jumps: Sequence[Jump]) -> list[Turn]:
    """Where a path of training leaves each branch, data set by data set."""
    found = []
    for s, jump in enumerate(jumps):
        for branch, start, target, end in (
            (UP, phases.UNIFORM, phases.COPY, jump.P_hi),
            (DOWN, phases.COPY, phases.UNIFORM, jump.P_lo),
        ):
            before = None
            for one in method.readings:
                if one.phase[s] == start:
                    before = one.P
                elif one.phase[s] == target and before is not None and one.branch == branch:
                    middle, half = (before + one.P) / 2, abs(one.P - before) / 2
                    found.append(Turn(method.name, branch, s, middle, half, end))
                    break
    return found


def _at(values: Values, i: Any) -> Values:
    return {name: x[i] for name, x in values.items()}


def _numbers(minima: Sequence[Minimum]) -> Values:
    found = {
        name: [getattr(one, name) for one in minima] for name in ("m", "alpha", "beta", "loss")
    }
    found |= {"q": [one.X[1] for one in minima], "H": [one.F_per_chi for one in minima]}
    return {name: np.array(x) for name, x in found.items()}


def _scatter(
    place: _Place,
    names: Sequence[str],
    values: Values,
    references: Values,
    floor: dict[str, float] | None = None,
) -> list[Difference]:
    """Differences set by set, and the error of their mean from their scatter.

    Few sets may scatter less than sampling alone would make them, hence the floor.
    """
    found = []
    for name in names:
        d, scale = values[name] - references[name], np.abs(references[name])
        mean = series.independent(d)
        largest = float(np.max(np.abs(d) / scale)) if np.min(scale) > TINY else NAN
        reference = float(np.mean(references[name]))
        error = max(mean.error, floor[name]) if floor else mean.error
        found.append(_difference(place, name, d.size, reference, mean.value, error, largest))
    return found


def _sampling(
    place: _Place, name: str, one: Reading, other: Reading, sets: np.ndarray, freedom: int
) -> Difference:
    value, reference = (float(x.values[name][sets].mean()) for x in (one, other))
    error = series.student(freedom) * _sampling_error([one, other], name, sets)
    return _difference(place, name, len(sets), reference, value - reference, error, NAN)


def _sampling_error(readings: Sequence[Reading], name: str, sets: np.ndarray) -> float:
    """Standard error, by sampling alone, of the difference of means over these sets."""
    variance = sum(float(one.variances[name][sets].sum()) for one in readings)
    return math.sqrt(variance) / len(sets)


def _difference(
    place: _Place,
    name: str,
    sets: int,
    reference: float,
    difference: float,
    error: float,
    largest: float,
) -> Difference:
    return Difference(
        P=place.P,
        branch=place.branch,
        phase=PHASES[place.phase],
        quantity=name,
        sets=sets,
        value=reference + difference,
        reference=reference,
        difference=difference,
        error=error,
        largest=largest,
        near=place.near,
    )


def _near(P: float, phase: int, jumps: Sequence[Jump]) -> bool:
    ends = [jump.P_hi if phase == phases.UNIFORM else jump.P_lo for jump in jumps]
    return any(abs(P / end - 1) < NEAR for end in ends)
