"""What could be seen before the transition: fluctuations on approach from below.

The order parameter is m for softmax attention and tau for linear attention, whose mean is zero
by A -> -A. Distances are P / P_t, with P_t the equilibrium transition, so that runs of
both kinds can be laid side by side. Axes: t rows, r replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mcattn import coexistence, linear_stages, phases, theory
from mcattn.analysis import fixed, series
from mcattn.analysis.facts import RunFacts, facts
from mcattn.analysis.series import NAN, Estimate, short
from mcattn.errors import ModelError, RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import Run

ORDER = {"softmax": "m", "linear": "tau"}


@dataclass(frozen=True)
class Approach:
    """One state below, at or beyond the transition.

    distance : P / P_t.
    variance : of the order parameter.
    time : its autocorrelation time in sweeps.
    loss_variance, loss_time, loss : the same for the test loss, and its mean.
    growth, slowing : variance and time relative to the state farthest below.
    switched : share of rows in the copy phase; nan without a switch rule.
    """

    P: float
    distance: float
    variance: Estimate
    time: Estimate
    loss: Estimate
    loss_variance: Estimate
    loss_time: Estimate
    growth: Estimate
    slowing: Estimate
    switched: float


@dataclass(frozen=True)
class PrecursorsResult(RunFacts):
    """States in the order of P; `transition` is P_t and `source` what it rests on."""

    order_parameter: str
    transition: float
    source: str
    states: tuple[Approach, ...]
    warnings: tuple[str, ...]

    @property
    def before(self) -> tuple[Approach, ...]:
        """States below the transition."""
        return tuple(state for state in self.states if state.distance < 1)

    @property
    def statement(self) -> str:
        """What an observer could have seen, in one sentence."""
        far, near = self.before[0], self.before[-1]
        drop = near.loss.value - far.loss.value
        error = math.hypot(near.loss.error, far.loss.error)
        return (
            f"{self.model.attention} attention, from {far.distance:.2f} to {near.distance:.2f} of "
            f"the transition: var({self.order_parameter}) changes by a factor "
            f"{short(near.growth.value, near.growth.error)}, its autocorrelation time by "
            f"{short(near.slowing.value, near.slowing.error)}, and the test loss by "
            f"{short(drop, error)} (1 is the loss of predicting nothing)."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        own = series.plain(self) | {"path": str(self.path), "statement": self.statement}
        return {"view": "precursors"} | own


def analyze(run: Run) -> PrecursorsResult:
    """Fluctuations in every state of a fixed run that approaches a transition from below.

    Raises
    ------
    RunFileError : not a fixed run in P at one chi without bias, or it has not two states below
        the transition, or there is no transition at this chi.
    TooFewSamplesError : the run has no rows yet.
    """
    fixed.expect(run, "fixed")
    chis = np.unique(run.states["chi"])
    if chis.size > 1 or np.any(run.states["bias_strength"] > 0):
        raise RunFileError(f"{run.path}: precursors need states of one chi without bias")
    chi = float(chis[0])
    transition, source = equilibrium(run.model, chi)
    if not math.isfinite(transition):
        raise RunFileError(f"{run.path}: at chi = {chi:g} this model has no transition to approach")
    order = np.argsort(run.states["P"])
    states = _relative([_approach(run, int(k), transition) for k in order])
    pure = [state for state in states if not state.switched > 0]
    if sum(state.distance < 1 for state in pure) < 2:
        raise RunFileError(
            f"{run.path} has fewer than two states below P = {transition:.5g}, where the "
            "transition is: there is no approach to look at"
        )
    return PrecursorsResult(
        **vars(facts(run, chi, run.replicas // len(order))),
        order_parameter=ORDER[run.model.attention],
        transition=transition,
        source=source,
        states=tuple(pure),
        warnings=tuple(_warnings(run, states)),
    )


@lru_cache  # takes seconds
def equilibrium(model: CopyModel, chi: float) -> tuple[float, str]:
    """P of the equilibrium transition, nan without one, and what that number rests on."""
    if model.attention == "linear":
        return linear_stages.onset(model, chi), "exact: cumulant of tau = 1/3"
    with suppress(ModelError):  # what this theory cannot sum is left to the landscape
        found = coexistence.coexistence(model, chi)
        if found is not None:
            return found.P_equal_weight.value, "finite-chi theory: equal weight"
    jump = theory.boundary(model, chi)
    return (NAN if jump is None else jump.P_star), "landscape: equally deep minima"


def _approach(run: Run, k: int, transition: float) -> Approach:
    own = run.state[0] == k
    X, P = run.X[:, own], float(run.states["P"][k])
    values = fixed.observables(X, run.model, P)
    order, loss = values[ORDER[run.model.attention]], values["loss"]
    every = float(run.sweep[1] - run.sweep[0]) if run.sweep.size > 1 else NAN
    phase = fixed.follow(run, X[..., 0], phases.UNIFORM)
    blank = Estimate(NAN, NAN, NAN, 0.0)
    center = 0.0 if run.model.attention == "linear" else None
    variance, time = _fluctuations(order, every, center)
    loss_variance, loss_time = _fluctuations(loss, every)
    return Approach(
        P=P,
        distance=P / transition,
        variance=variance,
        time=time,
        loss=series.mean(loss),
        loss_variance=loss_variance,
        loss_time=loss_time,
        growth=blank,
        slowing=blank,
        switched=NAN if phase is None else float((phase == phases.COPY).mean()),
    )


def _fluctuations(
    x: np.ndarray, every: float, center: float | None = None
) -> tuple[Estimate, Estimate]:
    """Variance of x, shape (t, r), about a center, its mean if none is known; tau in sweeps."""
    time = series.autocorrelation(x)
    if center is None:
        # The measured mean fluctuates along with the rows, by tau / size of their variance.
        square = series.mean((x - x.mean()) ** 2)
        share = 1.0 if math.isnan(time.value) else 1 + time.value / x.size
        variance = _scaled(square, share)
    else:
        variance = series.mean((x - center) ** 2)
    return variance, _scaled(time, every)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return replace(estimate, value=factor * estimate.value, error=factor * estimate.error)


def _relative(states: Sequence[Approach]) -> list[Approach]:
    """The states with growth and slowing, relative to the first."""
    first = states[0]
    return [
        Approach(
            **vars(state)
            | {
                "growth": _ratio(state.variance, first.variance, state is first),
                "slowing": _ratio(state.time, first.time, state is first),
            }
        )
        for state in states
    ]


def _ratio(a: Estimate, b: Estimate, same: bool) -> Estimate:
    """a / b of independent estimates; exactly 1 if they are the same one."""
    if same:
        return series.exactly(1.0)
    value = a.value / b.value
    error = abs(value) * math.hypot(a.error / a.value, b.error / b.value)
    return Estimate(value, error, NAN, min(a.n, b.n), a.flag or b.flag)


def _warnings(run: Run, states: Sequence[Approach]) -> list[str]:
    found = fixed.general_warnings(run)
    gone = [f"{state.P:g}" for state in states if state.switched > 0]
    if gone:
        found.append(f"left out, since replicas went over to copying there: P = {', '.join(gone)}")
    every = run.sweep[1] - run.sweep[0] if run.sweep.size > 1 else 1
    coarse = [f"{s.P:g}" for s in states if s.time.value < 2 * every] if every > 1 else []
    if coarse:
        found.append(
            "autocorrelation times near the distance of rows are upper bounds; store rows more "
            f"often (every = {every}): P = {', '.join(coarse)}"
        )
    return found
