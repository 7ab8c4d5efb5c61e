"""Umbrella runs of several models side by side, each one point of a table over L and V."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from mcattn import coexistence, theory
from mcattn.analysis import fixed, series, umbrella
from mcattn.analysis.series import NAN, Estimate
from mcattn.errors import McattnError, RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import Run

UNKNOWN = Estimate(NAN, NAN, NAN, 0.0, "no answer")


@dataclass(frozen=True)
class Point:
    """What one run says of the transition of its model, and what theory says of it.

    phases : 2, 1, or 0 where the run cannot tell; said : why, or the verdict.
    P, barrier (kT), dm : at equal weight, at equal height, at equal weight; nan but for 2 phases.
    P_peak, var, binder : where the order parameter fluctuates most, see `mcattn.analysis.peak`.
    theory : P, barrier and dm of finite-chi theory, where it knows two phases.
    landscape : P_lo, P_star, P_hi, and the barrier of equal rows in kT, where it has two minima.
    """

    path: Path
    model: CopyModel
    chi: float
    complete: bool
    phases: int
    said: str
    P: Estimate
    barrier: Estimate
    dm: Estimate
    P_peak: Estimate
    var: Estimate
    binder: Estimate
    round_trips: int
    theory: dict[str, float]
    landscape: dict[str, float]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return series.plain(self) | {"path": str(self.path)}


def read(runs: Sequence[Run], free: tuple[str, ...]) -> tuple[Point, ...]:
    """A point for every run, in the order of the free parameters; none is left out.

    Parameters
    ----------
    free : parameters of the model in which the runs may differ.

    Raises
    ------
    RunFileError : another protocol, another chi, models that differ in something else, or the
        same model twice.
    """
    _comparable(runs, free)
    if sys.stderr.isatty():
        shown = track(runs, "runs", console=Console(stderr=True), transient=True)
        points = [_point(run) for run in shown]
    else:
        points = [_point(run) for run in runs]
    return tuple(sorted(points, key=lambda p: tuple(getattr(p.model, name) for name in free)))


def _comparable(runs: Sequence[Run], free: tuple[str, ...]) -> None:
    first, seen = runs[0], dict[tuple[Any, ...], Path]()
    for run in runs:
        fixed.expect(run, "umbrella")
        for name in (field.name for field in fields(CopyModel) if field.name not in free):
            mine, other = getattr(run.model, name), getattr(first.model, name)
            if mine != other:
                raise RunFileError(
                    f"{run.path} has {name} = {mine}, {first.path} has {other}; runs side by side "
                    f"may differ in {' and '.join(free)} only"
                )
        if run.states["chi"][0] != first.states["chi"][0]:
            raise RunFileError(
                f"{run.path} is at chi = {run.states['chi'][0]:g}, {first.path} at "
                f"{first.states['chi'][0]:g}; runs side by side must share chi"
            )
        key = tuple(getattr(run.model, name) for name in free)
        if key in seen:
            twice = ", ".join(f"{n} = {v}" for n, v in zip(free, key, strict=True))
            raise RunFileError(f"{run.path} and {seen[key]} both have {twice}; give one of them")
        seen[key] = run.path


def _point(run: Run) -> Point:
    """What the run says, or why it says nothing."""
    chi = float(run.states["chi"][0])
    known = dict.fromkeys(("P", "barrier", "dm", "P_peak", "var", "binder"), UNKNOWN)
    phases, trips, warnings = 0, 0, tuple[str, ...]()
    try:
        result = umbrella.analyze(run)
    except McattnError as err:
        said = str(err)
        warnings = (said,)
    else:
        found = result.transition
        given = {"P": found.P_equal_weight, "barrier": found.barrier, "dm": found.dm}
        if found.peak is not None:
            given |= {"P_peak": found.peak.P, "var": found.peak.var, "binder": found.peak.binder}
        known |= {name: value for name, value in given.items() if value is not None}
        phases, said, trips = found.phases, found.verdict, result.round_trips
        warnings = tuple(f"{run.path}: {text}" for text in result.warnings)
        if phases == 0:
            warnings += (f"{run.path}: {said}",)
    return Point(
        path=run.path,
        model=run.model,
        chi=chi,
        complete=run.complete,
        phases=phases,
        said=said,
        **known,
        round_trips=trips,
        theory=_theory(run.model, chi),
        landscape=_landscape(run.model, chi),
        warnings=warnings,
    )


@lru_cache  # seconds each
def _theory(model: CopyModel, chi: float) -> dict[str, float]:
    try:
        found = coexistence.coexistence(model, chi)
    except McattnError:  # linear attention, or beyond what this theory can sum
        return {}
    if found is None:
        return {}
    values = {"P": found.P_equal_weight, "barrier": found.barrier, "dm": found.dm}
    return {name: value.value for name, value in values.items()}


def _landscape(model: CopyModel, chi: float) -> dict[str, float]:
    jump = theory.boundary(model, chi) if model.attention == "softmax" else None
    if jump is None:
        return {}
    ends = {"P_lo": jump.P_lo, "P_star": jump.P_star, "P_hi": jump.P_hi}
    return ends | {"barrier": chi * jump.barrier}
