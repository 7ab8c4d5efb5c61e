"""What a hysteresis run yields: records of points, switches and loops, and their JSON form.

analysis/hysteresis.py fills them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcattn.analysis.series import Estimate, plain
from mcattn.model import CopyModel

UP, DOWN = 1, -1
NAMES = {UP: "up", DOWN: "down", 0: "neither"}


@dataclass(frozen=True)
class BranchPoint:
    """Averages at one point of the path.

    For linear attention m, alpha and beta carry the sign that makes tau positive in each row.
    copy_fraction : share of rows in the copy phase; nan without a switch rule.
    acceptance : accepted share of the updates; nan if none was counted.
    """

    P: float
    chi: float
    branch: int
    loop: int
    rows: int
    m: Estimate
    alpha: Estimate
    beta: Estimate
    q: Estimate
    loss: Estimate
    copy_fraction: float
    acceptance: float

    @property
    def tau(self) -> float:
        """Autocorrelation time in rows of m, the slowest of the observables."""
        return self.m.tau


@dataclass(frozen=True)
class Switching:
    """Where replicas leave their phase for the first time on one kind of branch.

    value : mean of the control (P, or chi if P stays) over those that switched; nan if none did.
    error : of that mean; the scatter between replicas and, in quadrature, spacing / sqrt(12),
        since the control is known to one step of the path only.
    spread : standard deviation over those that switched.
    at : control value of every replica, shape (r,); nan for one that did not switch.
    note : None, or what the value does not say: no transition, or only some replicas switched.
    """

    branch: int
    value: float
    error: float
    spread: float
    switched: int
    replicas: int
    at: tuple[float, ...]
    note: str | None


@dataclass(frozen=True)
class Loop:
    """One passage of the whole path at one rate.

    sweeps_per_point : sweeps in each state, thermalization included; more is slower.
    area : integral of m(down) - m(up) over the control values common to both branches, each
        replica a loop of its own; None unless both branches have two in common.
    recrossed : replicas that went back to the phase they had left on the same branch.
    """

    index: int
    sweeps_per_point: int
    planned: int
    points: tuple[BranchPoint, ...]
    P_up: Switching
    P_down: Switching
    area: Estimate | None
    recrossed: int

    def branch(self, branch: int) -> tuple[BranchPoint, ...]:
        """The points of one branch, in the order of the path."""
        return tuple(point for point in self.points if point.branch == branch)


@dataclass(frozen=True)
class HysteresisResult:
    """All loops of a run, in the order in which they were done.

    control : what the path moves along, "P", or "chi" where P stays.
    theory : `mcattn.theory.report` at the run's chi, for comparison; empty if chi changes.
    """

    model: CopyModel
    control: str
    chi: float
    seed: int
    replicas: int
    complete: bool
    switch: tuple[float, float] | None
    versions: dict[str, str]
    loops: tuple[Loop, ...]
    theory: dict[str, float | None]
    warnings: tuple[str, ...]

    @property
    def slowest(self) -> Loop:
        """The loop closest to equilibrium."""
        return max(self.loops, key=lambda loop: loop.sweeps_per_point)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; the numbers at the top are those of the slowest loop."""
        loops = [_summary(loop) for loop in self.loops]
        slowest = loops[self.loops.index(self.slowest)]
        branches = [
            (loop, branch) for loop in self.loops for branch in NAMES if loop.branch(branch)
        ]
        return {
            "protocol": "hysteresis",
            "P_up": slowest["P_up"],
            "P_down": slowest["P_down"],
            "area": slowest["area"],
            "branches": [_columns(loop, branch) for loop, branch in branches],
            **(plain(self) | {"loops": loops}),
        }


def _summary(loop: Loop) -> dict[str, Any]:
    """A loop without its points, which are listed by branch."""
    summary = {name: value for name, value in plain(loop).items() if name != "points"}
    if loop.area is None:
        summary["area"] = {"value": None, "error": None, "note": "the branches share no two points"}
    return summary


def _columns(loop: Loop, branch: int) -> dict[str, Any]:
    """The points of a branch as lists, one for each quantity, ready to be plotted."""
    points = plain(loop.branch(branch))
    columns = {name: [point[name] for point in points] for name in ("P", "chi", "rows")}
    for name in ("m", "alpha", "beta", "q", "loss"):
        columns[name] = [point[name]["value"] for point in points]
        columns[f"{name}_error"] = [point[name]["error"] for point in points]
    columns["m_autocorrelation"] = [point["m"]["tau"] for point in points]
    for name in ("copy_fraction", "acceptance"):
        columns[name] = [point[name] for point in points]
    return {"loop": loop.index, "branch": NAMES[branch], **columns}
