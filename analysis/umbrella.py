"""An umbrella run: do replicas travel between the phases, and where is the transition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mcattn.analysis import fixed, mbar, series, tempering, transition
from mcattn.analysis.tempering import TemperingResult
from mcattn.analysis.transition import Route, Transition
from mcattn.model import CopyModel
from mcattn.runfile import Run

ENOUGH_TRIPS = 20  # fewer, and the error rests on few passages of the barrier


@dataclass(frozen=True)
class UmbrellaResult:
    """What an umbrella run yields.

    ladder : the windows as a ladder: averages with the bias, swaps, round trips of replicas
        from the first window, in the uniform phase, to the last, in the copy phase, and back.
    transition : from all windows together, without the bias.
    routes : the transition points, to be compared with those of other runs.
    """

    model: CopyModel
    seed: int
    complete: bool
    versions: dict[str, str]
    ladder: TemperingResult
    transition: Transition
    routes: tuple[Route, ...]
    warnings: tuple[str, ...]

    @property
    def round_trips(self) -> int:
        """Round trips across the barrier, of all replicas."""
        return sum(self.ladder.round_trips)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        head = {
            "protocol": "umbrella",
            "model": series.plain(self.model),
            "seed": self.seed,
            "complete": self.complete,
            "round_trips": self.round_trips,
        }
        tail = {
            "routes": series.plain(self.routes),
            "versions": self.versions,
            "ladder": self.ladder.to_json() | {"protocol": "umbrella"},
            "warnings": list(self.warnings),
        }
        return head | self.transition.to_json() | tail


def analyze(run: Run) -> UmbrellaResult:
    """Travel and transition of an umbrella run, finished or not.

    Raises
    ------
    RunFileError : the run has another protocol.
    TooFewSamplesError : too few rows.
    SamplingError : windows that do not overlap.
    """
    fixed.expect(run, "umbrella")
    ladder = tempering.analyze(replace(run, protocol="tempering"))  # windows are a ladder
    found = transition.estimate(mbar.pool(run))
    return UmbrellaResult(
        model=run.model,
        seed=run.seed,
        complete=run.complete,
        versions=run.versions,
        ladder=ladder,
        transition=found,
        routes=transition.routes(found, run.model),
        warnings=tuple(fixed.general_warnings(run)) + found.warnings + _few_trips(ladder),
    )


def _few_trips(ladder: TemperingResult) -> tuple[str, ...]:
    trips = sum(ladder.round_trips)
    if trips >= ENOUGH_TRIPS:
        return ()
    return (
        f"{trips} round trips of replicas across the barrier, fewer than {ENOUGH_TRIPS}: the "
        "patterns in the windows are not yet mixed, errors may be too small; sample longer",
    )
