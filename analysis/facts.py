"""What every result of a view says of the run it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mcattn.model import CopyModel
from mcattn.runfile import Run


@dataclass(frozen=True)
class RunFacts:
    """Which run, of which model, at one chi; `replicas` are those in each state."""

    path: Path
    model: CopyModel
    chi: float
    seed: int
    replicas: int
    complete: bool
    versions: dict[str, str]


def facts(run: Run, chi: float, replicas: int) -> RunFacts:
    return RunFacts(run.path, run.model, chi, run.seed, replicas, run.complete, run.versions)
