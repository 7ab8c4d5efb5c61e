"""Is a tempering run to be trusted: swaps of neighbours, round trips of replicas, and averages.

Whether replicas travel is seen in the state of every row; the counts of swaps are the sampler's
own. Axes: t rows, r replicas, k states, l ladders, p pairs of neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mcattn import phases
from mcattn.analysis import fixed, series
from mcattn.analysis.fixed import StateSummary
from mcattn.analysis.series import NAN
from mcattn.model import CopyModel
from mcattn.runfile import Run

GAP = 0.02  # a pair that swaps less often cuts the ladder
ENOUGH_TRIPS = 10
_PATH_ROWS = 2000  # kept for the figure


@dataclass(frozen=True)
class Pair:
    """Swaps between two neighbouring states, over all ladders.

    acceptance : mean acceptance probability, less noisy than the accepted share; nan if untried.
    """

    low: int
    high: int
    attempted: int
    accepted: int
    acceptance: float


@dataclass(frozen=True)
class TemperingResult:
    """What a tempering run yields.

    states : averages in every state, over whichever replicas were in it; shape (k,).
    pairs : swaps, chains in order; shape (p,).
    upward : share of those replicas in a state that saw the first state later than the last,
        shape (k,): falls from 1 to 0 along the ladder, steepest at its bottleneck; nan if unknown.
    round_trips : from the first state to the last and back, of every replica, shape (r,).
    occupancy : share of the rows that every replica spent in every state, shape (r, k).
    barrier : sum of the rejection rates along the ladder (Syed et al., arXiv:1905.02939); nan
        for a grid.
    recommended : states for a rejection rate of about 1/2; 0 for a grid.
    paths : state of every replica in some rows at equal distances, shape (t, r), and `sweeps`,
        shape (t,), when they were taken.
    works : whether the replicas travel as tempering needs it, and `verdict` in words.
    """

    model: CopyModel
    seed: int
    complete: bool
    switch: tuple[float, float] | None
    versions: dict[str, str]
    ladders: int
    states: tuple[StateSummary, ...]
    pairs: tuple[Pair, ...]
    upward: tuple[float, ...]
    round_trips: tuple[int, ...]
    occupancy: np.ndarray
    barrier: float
    recommended: int
    sweeps: np.ndarray
    paths: np.ndarray
    works: bool
    verdict: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, without the paths."""
        names = [field.name for field in fields(self) if field.name not in ("sweeps", "paths")]
        values = {name: getattr(self, name) for name in names}
        values["occupancy"] = self.occupancy.tolist()
        return {"protocol": "tempering"} | {k: series.plain(v) for k, v in values.items()}


def analyze(run: Run) -> TemperingResult:
    """Swaps, travel and averages of a tempering run, finished or not.

    Raises
    ------
    RunFileError : the run has another protocol.
    TooFewSamplesError : the run has no rows yet.
    """
    fixed.expect(run, "tempering")
    count, ladders = len(run.states["P"]), run.exchanges["attempted"].shape[0]
    sorted_run, copy_fraction = by_state(run, ladders)
    averages = fixed.analyze(sorted_run)
    states = tuple(
        replace(state, copy_fraction=share)
        for state, share in zip(averages.states, copy_fraction, strict=True)
    )
    pairs = _pairs(run)
    trips, upward = travel(run.state, count)
    barrier = sum(1 - pair.acceptance for pair in pairs) if len(pairs) == count - 1 else NAN
    recommended = round(2 * barrier) + 1 if math.isfinite(barrier) else 0
    works, verdict = judge(states, pairs, trips, upward)
    rows = np.unique(np.linspace(0, len(run.sweep) - 1, _PATH_ROWS).astype(int))
    return TemperingResult(
        model=run.model,
        seed=run.seed,
        complete=run.complete,
        switch=run.switch,
        versions=run.versions,
        ladders=ladders,
        states=states,
        pairs=pairs,
        upward=tuple(upward.tolist()),
        round_trips=tuple(trips.tolist()),
        occupancy=np.stack([(run.state == k).mean(axis=0) for k in range(count)], axis=1),
        barrier=barrier,
        recommended=recommended,
        sweeps=run.sweep[rows],
        paths=run.state[rows],
        works=works,
        verdict=verdict,
        warnings=averages.warnings + tuple(_warnings(run, count, pairs, recommended)),
    )


def by_state(run: Run, ladders: int) -> tuple[Run, list[float]]:
    """The rows sorted by state instead of by replica, and the copy fraction of every state.

    Column k * ladders + l of the sorted run is state k of ladder l, whichever replica is in it.
    Phases are followed along replicas, before sorting: a phase belongs to a pattern.
    """
    rows, replicas = run.state.shape
    count = replicas // ladders
    order = np.argsort(run.state.reshape(rows, ladders, count), axis=2)
    first = count * np.arange(ladders)[:, None]
    holder = (order + first).swapaxes(1, 2).reshape(rows, replicas)
    state = np.tile(np.repeat(np.arange(count), ladders), (rows, 1))
    X = np.take_along_axis(run.X, holder[..., None], axis=1)
    phase = fixed.follow(run, run.X[..., 0], phases.UNIFORM)
    shares = [NAN] * count
    if phase is not None:
        copy = np.take_along_axis(phase == phases.COPY, holder, axis=1)
        shares = copy.reshape(rows, count, ladders).mean(axis=(0, 2)).tolist()
    return replace(run, X=X, state=state, protocol="fixed"), shares


def travel(state: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Round trips of every replica, shape (r,), and the upward share of every state, shape (k,).

    A round trip leads from state 0 to state count - 1 and back to 0. A replica is upward from
    its visit of state 0 until it reaches the other end, downward from there; before its first
    visit of an end it is neither.

    Parameters
    ----------
    state : state of every replica in every row, shape (t, r).
    """
    replicas = state.shape[1]
    heading = np.zeros(replicas, dtype=int)
    began = np.zeros(replicas, dtype=bool)  # has been at state 0
    trips = np.zeros(replicas, dtype=int)
    seen = np.zeros((2, count), dtype=int)
    for now in state:
        first, last = now == 0, now == count - 1
        trips += first & (heading < 0) & began
        began |= first
        heading[first], heading[last] = 1, -1
        np.add.at(seen[0], now[heading > 0], 1)
        np.add.at(seen[1], now[heading < 0], 1)
    total = seen.sum(axis=0)
    return trips, np.where(total > 0, seen[0] / np.maximum(total, 1), NAN)


def judge(
    states: tuple[StateSummary, ...],
    pairs: tuple[Pair, ...],
    trips: np.ndarray,
    upward: np.ndarray,
) -> tuple[bool, str]:
    """Whether the replicas travel, and what to do if they do not, in one or two sentences."""
    total = int(trips.sum())
    if total >= ENOUGH_TRIPS:
        return True, f"The ladder works: {total} round trips from its first state to its last."
    said = f"{total} round trips" if total else "No round trip"
    tried = [pair for pair in pairs if pair.attempted]
    weakest = min(tried, key=lambda pair: pair.acceptance, default=None)
    if weakest is not None and weakest.acceptance < GAP:
        return False, (
            f"{said}: the ladder is cut between {_where(states, weakest.low)} and "
            f"{_where(states, weakest.high)}, where {weakest.accepted} of {weakest.attempted} "
            "swaps were accepted. Put more states there (tune_rounds, states), or take umbrella "
            "windows (bias_center, bias_strength)."
        )
    fall = -np.diff(np.nan_to_num(upward, nan=0.5))
    k = int(np.argmax(fall))
    return False, (
        f"{said} though neighbours swap: replicas do not get past {_where(states, k)}, as at a "
        "first-order transition. Tempering is the wrong tool along this path: lead it round the "
        "end of the coexistence line, take umbrella windows in m (bias_center, bias_strength) or "
        "a hysteresis run, or sample much longer."
    )


def _where(states: tuple[StateSummary, ...], k: int) -> str:
    return f"state {k} (P = {states[k].P:.4g}, chi = {states[k].chi:.3g})"


def _pairs(run: Run) -> tuple[Pair, ...]:
    counts = {name: run.exchanges[name].sum(axis=0) for name in ("attempted", "accepted", "chance")}
    found = [
        Pair(
            int(run.exchanges["low"][i]),
            int(run.exchanges["high"][i]),
            int(attempted),
            int(counts["accepted"][i]),
            float(counts["chance"][i] / attempted) if attempted else NAN,
        )
        for i, attempted in enumerate(counts["attempted"])
    ]
    return tuple(sorted(found, key=lambda pair: (pair.low, pair.high)))


def _warnings(run: Run, count: int, pairs: tuple[Pair, ...], recommended: int) -> list[str]:
    found = []
    if count < recommended:
        found.append(f"{count} states; about {recommended} suit this path (2 Lambda + 1)")
    if any(pair.acceptance < GAP for pair in pairs):
        found.append("a pair rejects nearly always: Lambda and the number of states are too small")
    untried = [pair for pair in pairs if not pair.attempted]
    if untried:
        found.append(f"{len(untried)} of {len(pairs)} pairs were never tried")
    seen = (np.diff(run.state, axis=0) != 0).sum() / 2
    if seen < 0.9 * run.exchanges["accepted"].sum() - run.replicas:
        found.append("rows are rarer than exchanges: there may be more round trips than are seen")
    return found
