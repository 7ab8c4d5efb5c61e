"""Phase diagrams in the planes (P, L) and (P, V), from umbrella runs of many models and theory.

A plane varies one parameter of the model and keeps the others at those of most runs. Axes: k
point of a theory line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mcattn import coexistence, theory
from mcattn.analysis import points, series
from mcattn.analysis.points import Point
from mcattn.errors import McattnError, RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import Run

LINE = 13  # values along a theory line; a second or so each
BEYOND = 1.15  # factor by which the line goes on beyond the outermost runs


@dataclass(frozen=True)
class Line:
    """Theory along one parameter x: arrays of shape (k,), nan where there is no such number.

    P_star : where both phases have equal weight, by finite-chi theory. P_lo, P_hi : where the
    landscape has two minima. law : what P* tends to for very long sequences.
    """

    x: np.ndarray
    P_star: np.ndarray
    P_lo: np.ndarray
    P_hi: np.ndarray
    law: np.ndarray


@dataclass(frozen=True)
class Plane:
    """Runs that differ in `name`, "L" or "V", alone; the others are at `fixed`."""

    name: str
    fixed: int
    points: tuple[Point, ...]
    line: Line


@dataclass(frozen=True)
class PlanesResult:
    """The planes that the runs span; `points` are those of all runs."""

    model: CopyModel
    chi: float
    points: tuple[Point, ...]
    planes: tuple[Plane, ...]
    verdict: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        planes = [
            {
                "name": plane.name,
                "fixed": plane.fixed,
                "line": {name: series.plain(x.tolist()) for name, x in vars(plane.line).items()},
            }
            for plane in self.planes
        ]
        return {
            "view": "planes",
            "model": series.plain(self.model),
            "chi": self.chi,
            "points": [point.to_json() for point in self.points],
            "planes": planes,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
        }


def analyze(runs: Sequence[Run]) -> PlanesResult:
    """The phase diagrams of umbrella runs of softmax attention that differ in L and V alone.

    Raises
    ------
    RunFileError : the runs differ in something else or have linear attention, or none of them
        shares L or V with another.
    """
    for run in runs:
        if run.model.attention != "softmax":
            raise RunFileError(f"{run.path}: linear attention has no jump to put on these planes")
    found = points.read(runs, ("L", "V"))
    planes = [plane for name in ("L", "V") if (plane := _plane(found, name)) is not None]
    if not planes:
        raise RunFileError(
            "the runs make no plane: give at least two that share V and differ in L, or share L "
            "and differ in V"
        )
    return PlanesResult(
        model=found[0].model,
        chi=found[0].chi,
        points=found,
        planes=tuple(planes),
        verdict=_verdict(found),
        warnings=tuple(text for point in found for text in point.warnings),
    )


def pull(point: Point) -> float:
    """Distance of P* from finite-chi theory in errors; nan without either."""
    return (point.P.value - point.theory.get("P", np.nan)) / point.P.error


def law(model: CopyModel) -> float:
    """What P* tends to for astronomically long sequences. Source: theory.md, point 2."""
    L, V = model.L, model.V
    return V / (V - 1) / 4 * model.kappa / model.g_s * L * float(np.log(L)) ** 2


def _plane(found: Sequence[Point], name: str) -> Plane | None:
    other = "V" if name == "L" else "L"
    fixed, count = Counter(getattr(point.model, other) for point in found).most_common(1)[0]
    if count < 2:
        return None
    mine = [point for point in found if getattr(point.model, other) == fixed]
    mine.sort(key=lambda point: getattr(point.model, name))
    values = [getattr(point.model, name) for point in mine]
    ends = max(2, values[0] / BEYOND), values[-1] * BEYOND
    x = np.unique(np.round(np.geomspace(*ends, LINE)).astype(int))
    base = mine[0].model
    models = [
        replace(base, L=int(value)) if name == "L" else replace(base, V=int(value)) for value in x
    ]
    return Plane(name, fixed, tuple(mine), _line(x, models, mine[0].chi))


def _line(x: np.ndarray, models: Sequence[CopyModel], chi: float) -> Line:
    jumps = [theory.boundary(model, chi) for model in models]
    ends = [(jump.P_lo, jump.P_hi) if jump else (np.nan, np.nan) for jump in jumps]
    P_lo, P_hi = np.array(ends).T
    P_star = np.array([_balance(model, chi) for model in models])
    return Line(x.astype(float), P_star, P_lo, P_hi, np.array([law(model) for model in models]))


@lru_cache  # a second or so each
def _balance(model: CopyModel, chi: float) -> float:
    """P of equal weights; nan where there is one phase, or finite-chi theory has no answer."""
    try:
        P, curve = coexistence.sketch(model, chi)
    except McattnError:
        return np.nan
    return P if coexistence.phases(curve) else np.nan


def _verdict(found: Sequence[Point]) -> str:
    two = [point for point in found if point.phases == 2]
    known = [point for point in two if np.isfinite(pull(point))]
    said = f"{len(two)} of {len(found)} runs show two phases"
    for phases, text in ((1, "one phase"), (0, "no answer")):
        names = [_name(point.model) for point in found if point.phases == phases]
        said += f"; {text} at {', '.join(names)}" if names else ""
    if known:
        worst = max(known, key=lambda point: abs(pull(point)))
        off = max(abs(p.P.value / p.theory["P"] - 1) for p in known)
        said += (
            f". P* differs from finite-chi theory by {100 * off:.2g} % at most; the largest pull "
            f"is {pull(worst):+.1f}, at {_name(worst.model)}"
        )
    return f"{said}."


def _name(model: CopyModel) -> str:
    return f"L = {model.L}, V = {model.V}"
