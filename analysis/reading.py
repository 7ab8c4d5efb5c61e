"""What one run says, data set by data set, at every P of its path: the same for all methods.

Axes: t rows, r members or replicas, s data sets, k states.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

import numpy as np

from mcattn import action, data, phases
from mcattn.analysis import fixed
from mcattn.analysis.series import NAN
from mcattn.analysis.training import best_of
from mcattn.data import Data
from mcattn.errors import RunFileError
from mcattn.runfile import Run

MIXED = -1  # phase of a data set whose members differ or change it
NAMES = ("m", "q", "alpha", "beta", "loss")
MONTE_CARLO = "Monte Carlo"
_OPTIMISERS = {"adam": "Adam", "flow": "gradient flow", "sgld": "SGLD"}


@dataclass(frozen=True)
class Reading:
    """One state of a run. Arrays have shape (s,).

    phase : phases.UNIFORM, phases.COPY or MIXED; UNIFORM for linear attention, which has no two.
    values : m, q, alpha, beta and the test loss of the networks; also H where it was trained.
    variances : of these by sampling alone; 0 where there is no temperature.
    """

    P: float
    branch: int
    phase: np.ndarray
    values: dict[str, np.ndarray]
    variances: dict[str, np.ndarray]


@dataclass(frozen=True)
class Method:
    """A run as one of several ways to the same numbers.

    way : "Monte Carlo", "Adam", "gradient flow" or "SGLD".
    scratch, full : trained from the start at every P; with scores from tokens and positions.
    data : of job files' table [data].
    members : in each data set.
    reached : shape (k,), share of members within 0.1 % of the lowest H of their data set; nan
        at a temperature.
    """

    way: str
    scratch: bool
    full: bool
    chi: float
    data: Data
    members: int
    readings: tuple[Reading, ...]
    reached: tuple[float, ...]

    @property
    def name(self) -> str:
        """In words."""
        full = ", full network" if self.full else ""
        return f"{self.way}{full}{' from scratch' if self.scratch else ''}"

    @property
    def sampled(self) -> bool:
        """Whether the run is at a temperature."""
        return bool(np.isfinite(self.chi))


def read(run: Run) -> Method:
    """All states of a training run, or of a hysteresis run under the exact action.

    Raises
    ------
    RunFileError : another kind of run, or one with several temperatures.
    TooFewSamplesError : the run has no rows yet.
    """
    trained = run.protocol == "train"
    if not trained:
        fixed.expect(run, "hysteresis")
        if not run.exact:
            raise RunFileError(
                f'{run.path} sampled the population action; expected action = "exact", or training'
            )
    fixed.expect(run, run.protocol)
    chis = np.unique(run.states["chi"])
    if len(chis) > 1:
        raise RunFileError(f"{run.path} has {len(chis)} values of chi; expected one")
    job = tomllib.loads(run.job)
    protocol, source = job["protocol"], data.source(job.get("data"))
    sets, chi = source.sets, float(chis[0])
    set_of = np.arange(run.replicas) * sets // run.replicas if trained else run.exact["set"]
    values = _values(run)
    scratch = trained and protocol.get("path") == "scratch"
    seen = np.unique(run.state[:, 0])
    found = [_reading(run, int(k), values, set_of, np.isfinite(chi), scratch) for k in seen]
    return Method(
        way=_OPTIMISERS[protocol.get("optimiser", "adam")] if trained else MONTE_CARLO,
        scratch=scratch,
        full=trained and protocol.get("network") == "full",
        chi=chi,
        data=source,
        members=run.replicas // sets,
        readings=tuple(reading for reading, _ in found),
        reached=tuple(share for _, share in found),
    )


def _values(run: Run) -> dict[str, np.ndarray]:
    """Every observable of every row, each (t, r)."""
    X = fixed.sign_fixed(run.X, run.model)
    alpha, beta = action.alpha_beta(X, run.model.L)
    found = {"m": X[..., 0], "q": X[..., 1], "alpha": alpha, "beta": beta}
    if run.training:
        return found | {"loss": run.training["loss"], "H": run.training["H"]}
    return found | {"loss": run.exact["drawn_loss"]}


def _reading(
    run: Run, k: int, values: dict[str, np.ndarray], set_of: np.ndarray, sampled: bool, best: bool
) -> tuple[Reading, float]:
    """State k, and the share of members that reach the lowest H."""
    rows = np.flatnonzero(run.state[:, 0] == k)
    if not sampled:
        rows = rows[-1:]
    own = {name: x[rows] for name, x in values.items()}
    sets = int(set_of.max()) + 1
    groups = [np.flatnonzero(set_of == s) for s in range(sets)]
    reached = NAN
    if not sampled:
        lowest, at_it = best_of(own["H"][0], set_of)
        reached = float(at_it.mean())
        if best:
            groups = [np.array([i]) for i in lowest]
    phase = [_phase(run, own["m"][:, group]) for group in groups]
    means = {name: x.mean(axis=0) for name, x in own.items()}
    variances = {name: np.zeros(sets) for name in means}
    if sampled:
        variances = {n: np.array([_variance(x[g]) for g in groups]) for n, x in means.items()}
    reading = Reading(
        P=float(run.states["P"][k]),
        branch=int(run.states["branch"][k]),
        phase=np.array(phase),
        values={n: np.array([x[g].mean() for g in groups]) for n, x in means.items()},
        variances=variances,
    )
    return reading, reached


def _variance(x: np.ndarray) -> float:
    """Of the mean of independent values; nan for one."""
    return float(x.var(ddof=1) / len(x)) if len(x) > 1 else NAN


def _phase(run: Run, m: np.ndarray) -> int:
    """The phase that all rows and members of m, shape (t, r), are in."""
    if run.switch is None:
        return phases.UNIFORM
    low, high = run.switch
    if (m < high).all() and m.mean() < low:
        return phases.UNIFORM
    return phases.COPY if (m > low).all() and m.mean() > high else MIXED
