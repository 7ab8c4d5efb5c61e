"""Averages in states that do not change: one summary for each state of a `fixed` run.

Axes: t rows, r replicas, k states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcattn import action, phases
from mcattn.analysis import series
from mcattn.analysis.disorder import Split, split
from mcattn.analysis.series import Estimate
from mcattn.errors import RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

OBSERVABLES = ("m", "q", "tau", "r", "s2", "alpha", "beta", "loss")


@dataclass(frozen=True)
class StateSummary:
    """Averages in one state, over the `replicas` that sat in it; nan where nothing is known.

    A bias, where there is one, is not taken out: the averages are those of the biased state.

    For linear attention m, tau, alpha and beta carry the sign that makes tau positive.
    """

    P: float
    chi: float
    bias_center: float
    bias_strength: float
    replicas: int
    rows: int
    m: Estimate
    q: Estimate
    tau: Estimate
    r: Estimate
    s2: Estimate
    alpha: Estimate
    beta: Estimate
    loss: Estimate
    copy_fraction: float
    acceptance: float


@dataclass(frozen=True)
class FixedResult:
    """All states of a fixed run, and what to know before using them."""

    model: CopyModel
    seed: int
    complete: bool
    switch: tuple[float, float] | None
    versions: dict[str, str]
    states: tuple[StateSummary, ...]
    warnings: tuple[str, ...]
    disorder: tuple[Split, ...] = ()  # of m and q in every state, in a run on data sets

    @property
    def control(self) -> str:
        """What tells the states apart: "P", "chi" or "bias_center", the first that differs."""
        names = ("P", "chi", "bias_center")
        return next((n for n in names if len({getattr(s, n) for s in self.states}) > 1), "P")

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"protocol": "fixed"} | series.plain(self)


def analyze(run: Run) -> FixedResult:
    """Averages with errors in every state of a fixed run, finished or not.

    Raises
    ------
    RunFileError : the run has another protocol, or a replica changed its state.
    TooFewSamplesError : the run has no rows yet.
    """
    expect(run, "fixed")
    if np.any(run.state != run.state[:1]):
        raise RunFileError(f"{run.path}: a replica changed its state; a fixed run keeps them")
    X = sign_fixed(run.X, run.model)
    states = tuple(_summary(run, X, int(k)) for k in np.unique(run.state[0]))
    return FixedResult(
        model=run.model,
        seed=run.seed,
        complete=run.complete,
        switch=run.switch,
        versions=run.versions,
        states=states,
        warnings=tuple(general_warnings(run) + _stuck(states)),
        disorder=_disorder(run, X),
    )


def expect(run: Run, protocol: str) -> None:
    """Refuse a run of another protocol, or one without rows."""
    if run.protocol != protocol:
        article = "an" if protocol == "umbrella" else "a"
        raise RunFileError(f"{run.path} is a {run.protocol} run; expected {article} {protocol} run")
    if run.sweep.size == 0:
        raise TooFewSamplesError(
            f"{run.path} shows no rows yet: the run is in its first sweeps, or was stopped there "
            "and waits for mcattn resume"
        )


def population_only(run: Run) -> None:
    """Refuse a run on data sets where samples are to be reweighted by the population action."""
    if run.exact:
        raise RunFileError(
            f"{run.path} sampled the exact action of data sets; this analysis reweights by the "
            'population\'s: expected a run with action = "population"'
        )


def sign_fixed(X: np.ndarray, model: CopyModel) -> np.ndarray:
    """X, shape (..., 5), of the pattern or its negative, whichever has tau >= 0.

    The action of linear attention is even in A, so that plain averages of m and tau are zero
    (theory.md, point 5); softmax patterns are left as they are.
    """
    if model.attention == "softmax":
        return X
    sign = np.where(X[..., 2] < 0, -1.0, 1.0)
    X = X.copy()
    X[..., 0] *= sign
    X[..., 2] *= sign
    return X


def observables(X: np.ndarray, model: CopyModel, P: float) -> dict[str, np.ndarray]:
    """The series to average, each shape (t, r), from the sums X, shape (t, r, 5), at this P."""
    alpha, beta = action.alpha_beta(X, model.L)
    values = {name: X[..., i] for i, name in enumerate(action.SUMS)}
    return values | {"alpha": alpha, "beta": beta, "loss": action.test_loss(X, model, P)}


def average(name: str, x: np.ndarray, model: CopyModel) -> Estimate:
    """Mean of the observable of this name; the row sums of softmax are 1 by construction."""
    if model.attention == "softmax" and name in ("tau", "r"):
        return series.exactly(1.0)
    return series.mean(x)


def follow(run: Run, m: np.ndarray, start: int) -> np.ndarray | None:
    """Phases, shape (t, r), of m, shape (t, r), from `start` on; None without a switch rule."""
    if run.switch is None:
        return None
    return phases.follow(m, np.full(m.shape[1], start), *run.switch)


def acceptance(run: Run, k: int) -> float:
    """Accepted share of the updates in state k; nan before the first."""
    attempted = int(run.states["attempted"][k])
    return int(run.states["accepted"][k]) / attempted if attempted else series.NAN


def general_warnings(run: Run) -> list[str]:
    """What is to be known of any run: unfinished, few replicas, replicas that are copies."""
    found = []
    if not run.complete:
        done = int(run.sweep[-1])
        found.append(f"unfinished: {done} of {run.planned_sweeps} sweeps; the rows so far are used")
    if run.replicas < series.REPLICAS:
        found.append(
            f"{run.replicas} replicas: fewer than {series.REPLICAS}, errors rest on few values"
        )
    distinct = len(np.unique(run.X[-1, :, 4]))
    if distinct < run.replicas:
        found.append(f"only {distinct} of {run.replicas} replicas differ: the others are copies")
    return found


def _disorder(run: Run, X: np.ndarray) -> tuple[Split, ...]:
    if not run.exact:
        return ()
    found = []
    for k in np.unique(run.state[0]):
        own = run.state[0] == k
        at = float(run.states["P"][k]), float(run.states["chi"][k])
        for i, name in enumerate(("m", "q")):
            found.append(split(name, *at, X[:, own, i], run.exact["set"][own]))
    return tuple(found)


def _summary(run: Run, X: np.ndarray, k: int) -> StateSummary:
    own = run.state[0] == k
    X, P = X[:, own], float(run.states["P"][k])
    phase = follow(run, X[..., 0], phases.UNIFORM)
    values = observables(X, run.model, P)
    if run.exact:
        values["loss"] = run.exact["loss"][:, own]
    return StateSummary(
        P=P,
        chi=float(run.states["chi"][k]),
        bias_center=float(run.states["bias_center"][k]),
        bias_strength=float(run.states["bias_strength"][k]),
        replicas=int(own.sum()),
        rows=X.shape[0],
        copy_fraction=series.NAN if phase is None else float((phase == phases.COPY).mean()),
        acceptance=acceptance(run, k),
        **{name: average(name, values[name], run.model) for name in OBSERVABLES},
    )


def _stuck(states: tuple[StateSummary, ...]) -> list[str]:
    where = [f"{s.P:g}" for s in states if s.m.flag == series.STUCK]
    found = [f"a replica does not move at P = {', '.join(where)}"] if where else []
    if any(s.bias_strength > 0 for s in states):
        found.append("biased states: these are averages with the bias, not without it")
    return found
