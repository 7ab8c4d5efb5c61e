"""All routes to the transition point, side by side: runs of overlapping states, branches, theory.

Umbrella, tempering and fixed runs give equal weight and equal height; the first of them also
anchors the branches of hysteresis runs; theory needs no run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcattn import coexistence, theory
from mcattn.analysis import crossing, fixed, mbar, resample, series, transition, twophase
from mcattn.analysis.crossing import Anchor
from mcattn.analysis.mbar import Pool
from mcattn.analysis.series import NAN, Estimate
from mcattn.analysis.transition import Route, Transition
from mcattn.errors import McattnError, RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import Run

BESIDE = 0.03  # relative distance in P of the anchor from the transition
REFERENCE = "P_finite_chi"


@dataclass(frozen=True)
class Line:
    """One answer: its key, route, source, and distance from finite-chi theory in errors."""

    key: str
    name: str
    source: str
    P: Estimate
    pull: float


@dataclass(frozen=True)
class RoutesResult:
    """Every route to P* of one model at one chi; barrier and dm come with their routes."""

    model: CopyModel
    chi: float
    lines: tuple[Line, ...]
    barriers: tuple[Line, ...]
    jumps: tuple[Line, ...]
    verdict: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; of several runs by one route the first is at the top."""
        out: dict[str, Any] = {"view": "transition"} | series.plain(self)
        for line in (*self.lines, *self.barriers, *self.jumps):
            out.setdefault(line.key, {"value": line.P.value, "error": line.P.error})
        return series.plain(out)


def analyze(runs: Sequence[Run]) -> RoutesResult:
    """The transition of softmax attention by every route that these runs and theory offer.

    Raises
    ------
    RunFileError : linear attention, runs of different models or chi, or hysteresis runs alone.
    SamplingError, TooFewSamplesError : as `transition.estimate`.
    """
    model = _common_model(runs)
    equilibrium = [run for run in runs if run.protocol != "hysteresis"]
    if not equilibrium:
        raise RunFileError(
            f"{runs[0].path}: branches alone do not say where they cross; give an umbrella or "
            "tempering run of the same model as well"
        )
    warnings, routes, barriers, jumps, anchor, verdict = [], [], [], [], None, ""
    chi = float(equilibrium[0].states["chi"].max())
    for run in runs:
        if not np.isclose(run.states["chi"], chi).any():
            raise RunFileError(f"{run.path} has no state at chi = {chi:g}, that of the first run")
        warnings += [f"{run.path}: {text}" for text in fixed.general_warnings(run)]
    for run in equilibrium:
        fixed.expect(run, run.protocol)
        pool = mbar.pool(run)
        found = transition.estimate(pool, chi)
        name = str(run.path)
        verdict = verdict or found.verdict
        warnings += [f"{name}: {text}" for text in found.warnings]
        if found.phases < 2:
            warnings.append(f"{name}: {found.verdict}")
            continue
        routes += [(r, name) for r in transition.routes(found, model) if r.key != "P_landscape"]
        assert found.barrier is not None
        assert found.dm is not None
        if run.protocol == "umbrella":  # other runs go round the barrier and miss its top
            barriers.append((Route("barrier", "barrier / kT", found.barrier), name))
        jumps.append((Route("dm", "jump of m", found.dm), name))
        anchor = anchor or anchored(pool, found, name)
    for run in runs:
        if run.protocol == "hysteresis" and anchor is not None:
            routes += _branches(run, anchor)
    exact = _theory(model, chi)
    routes += [(route, "theory") for route in exact if route.key.startswith("P_")]
    barriers += [(route, "theory") for route in exact if route.key == "barrier"]
    jumps += [(route, "theory") for route in exact if route.key == "dm"]
    return RoutesResult(
        model=model,
        chi=chi,
        lines=_lines(routes, exact, REFERENCE),
        barriers=_lines(barriers, exact, "barrier"),
        jumps=_lines(jumps, exact, "dm"),
        verdict=verdict,
        warnings=tuple(warnings),
    )


def anchored(pool: Pool, found: Transition, source: str) -> Anchor | None:
    """G(copy) - G(uniform) a little above the transition; None if the samples do not reach it."""
    assert found.P_equal_weight
    P, chi = found.P_equal_weight.value * (1 + BESIDE), found.chi
    reader = twophase.reader_at(pool, chi, found.P_equal_weight.value)
    if reader is None or not found.reach[0] <= P <= found.reach[1]:
        return None
    draws = resample.draw(pool, twophase.influence(pool, chi, P, reader), 0)
    ratio = float(twophase.read(pool, chi, P, reader)[0])
    drawn = twophase.drawn(pool, draws, chi, np.array([P]), reader)[:, 0, 0]
    estimate = draws.estimate(ratio, drawn)
    return Anchor(P, -ratio, estimate.error, source)


def _branches(run: Run, anchor: Anchor) -> list[tuple[Route, str]]:
    """Slowest loop first: it is the one that the key at the top of the JSON stands for."""
    found = reversed(crossing.crossings(run, anchor))
    return [
        (
            Route(
                "P_branch_crossing",
                f"branches at {loop.sweeps_per_point} sweeps per point",
                loop.P,
            ),
            str(run.path),
        )
        for loop in found
    ]


def _theory(model: CopyModel, chi: float) -> list[Route]:
    """Finite-chi theory and the landscape, with the names of their keys."""
    out = []
    try:
        exact = coexistence.coexistence(model, chi)
    except McattnError:  # beyond what this theory can sum; the runs are shown all the same
        exact = None
    if exact is not None:
        kinds = (
            (REFERENCE, "finite-chi theory, equal weight", exact.P_equal_weight),
            ("P_saddle", "finite-chi theory, saddle point", exact.P_saddle),
            ("barrier", "barrier / kT", exact.barrier),
            ("dm", "jump of m", exact.dm),
        )
        out = [Route(key, name, Estimate(*value, NAN, 0.0)) for key, name, value in kinds]
    jump = theory.boundary(model, chi)
    if jump is not None:
        name = "landscape, without score fluctuations"
        out.append(Route("P_landscape", name, series.exactly(jump.P_star)))
    return out


def _lines(
    routes: Sequence[tuple[Route, str]], exact: Sequence[Route], key: str
) -> tuple[Line, ...]:
    reference = next((route.P for route in exact if route.key == key), None)
    return tuple(
        Line(route.key, route.name, source, route.P, _pull(route, reference))
        for route, source in routes
    )


def _pull(route: Route, reference: Estimate | None) -> float:
    """Distance in errors; nan for equal height, which is another P, and for theory itself."""
    if reference is None or route.key in ("P_equal_height", "P_landscape", "P_saddle", REFERENCE):
        return NAN
    error = math.hypot(route.P.error, reference.error)
    return (route.P.value - reference.value) / error if route.P.value != reference.value else NAN


def _common_model(runs: Sequence[Run]) -> CopyModel:
    first = runs[0]
    for run in runs:
        if run.model.attention != "softmax":
            raise RunFileError(
                f"{run.path}: linear attention has no jump; see mcattn analyze --view stages"
            )
        if run.model != first.model:
            raise RunFileError(
                f"{run.path} has another model than {first.path}: {run.model} instead of "
                f"{first.model}"
            )
    return first.model
