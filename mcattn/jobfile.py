"""The settings of a job: what each table of a job file may hold, and the plan it asks for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from mcattn import protocols
from mcattn.jobvalues import LARGEST, Biases, Count, Grid, Positive, Rates, Sweeps, Values
from mcattn.jobvalues import Table as _Table
from mcattn.jobvalues import array as _array
from mcattn.jobvalues import common as _common
from mcattn.jobvalues import same as _same
from mcattn.jobvalues import short as _short
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.protocols import Plan
from mcattn.trainjob import Train

CONTROLS = ("P", "chi", "bias_center", "bias_strength")
_TUNE_EXCHANGES = 20  # a pilot round with fewer knows too little of the acceptances

LARGEST_L = 4096


def _read_model(value: Any) -> CopyModel:
    model = value if isinstance(value, CopyModel) else CopyModel(**value)
    if model.L > LARGEST_L:
        raise ValueError(f"L is {_short(model.L)}; it must be at most {LARGEST_L} to be sampled")
    for name in ("kappa", "g_s", "g_w"):
        if not 1 / LARGEST <= getattr(model, name) <= LARGEST:
            raise ValueError(f"{name} is {getattr(model, name)}; it must be within 1e-30 and 1e30")
    return model


class Hysteresis(_Table):
    """A path of control values followed by all replicas together.

    P as a table { start, stop, points } is followed there and back; as a list, exactly as it is.
    """

    kind: Literal["hysteresis"]
    P: Values
    chi: Values
    replicas: Count = 64
    start: Literal["uniform", "copy"] = "uniform"
    sweeps: Rates = (1000,)
    thermalize: Sweeps = 100
    equilibrate: Sweeps = 500
    every: Count = 1
    patterns_at: list[Positive] = []
    pattern_replicas: Sweeps = 4

    @model_validator(mode="after")
    def _check(self) -> Hysteresis:
        points, chis = len(self.path()), len(_array(self.chi))
        if points < 2:
            raise ValueError("P must have at least 2 values to make a path")
        if chis not in (1, points):
            raise ValueError(
                f"chi has {chis} values; the path of P has {points}: give 1 or {points}"
            )
        if min(self.sweeps) < self.every:
            raise ValueError(
                f"sweeps is {min(self.sweeps)}; it must be at least every = {self.every}"
            )
        unknown = [p for p in self.patterns_at if not _same(p, self.path()).any()]
        if unknown:
            raise ValueError(f"patterns_at has {unknown[0]:g}, which is not a value of the path P")
        return self

    def path(self) -> np.ndarray:
        P = _array(self.P)
        return protocols.there_and_back(P) if isinstance(self.P, Grid) else P

    def plan(self) -> Plan:
        P = self.path()
        chosen = [p for p in P if _same(p, np.array(self.patterns_at)).any()]
        return protocols.hysteresis(
            P=P,
            chi=np.broadcast_to(_array(self.chi), P.shape),
            sweeps=self.sweeps,
            thermalize=self.thermalize,
            equilibrate=self.equilibrate,
            every=self.every,
            replicas=self.replicas,
            start=self.start,
            patterns_at=chosen,
            pattern_replicas=self.pattern_replicas,
        )


class Fixed(_Table):
    """Independent replicas in fixed states: one state for each value of P, chi or the bias."""

    kind: Literal["fixed"]
    P: Values
    chi: Values
    bias_center: Biases = (0.0,)
    bias_strength: Biases = (0.0,)
    replicas: Count = 16
    start: Literal["uniform", "copy"] = "uniform"
    sweeps: Count = 1000
    thermalize: Sweeps = 500
    every: Count = 1
    pattern_replicas: Sweeps = 0

    @model_validator(mode="after")
    def _check(self) -> Fixed:
        self._lists()
        if self.sweeps < self.every:
            raise ValueError(f"sweeps is {self.sweeps}; it must be at least every = {self.every}")
        return self

    def _lists(self) -> dict[str, np.ndarray]:
        return _common({name: _array(getattr(self, name)) for name in CONTROLS})

    def plan(self) -> Plan:
        return protocols.fixed(
            **self._lists(),
            sweeps=self.sweeps,
            thermalize=self.thermalize,
            every=self.every,
            replicas=self.replicas,
            start=self.start,
            pattern_replicas=self.pattern_replicas,
        )


class Tempering(_Table):
    """Replicas that exchange states along a path of P, chi and bias, or in a grid of P and chi."""

    kind: Literal["tempering"]
    P: Values
    chi: Values
    bias_center: Biases = (0.0,)
    bias_strength: Biases = (0.0,)
    grid: bool = False
    states: Count | None = None
    ladders: Count = 1
    exchange_every: Count = 20
    pairing: Literal["even-odd", "random"] = "even-odd"
    tune_rounds: Sweeps = 0
    tune_sweeps: Count = 1000
    start: Literal["uniform", "copy"] = "uniform"
    sweeps: Count = 10000
    thermalize: Sweeps = 1000
    every: Count | None = None
    pattern_replicas: Sweeps = 0

    @model_validator(mode="after")
    def _check(self) -> Tempering:
        ladder = self.ladder()
        if ladder.states < 2:
            raise ValueError(f"{ladder.states} state makes no ladder; give at least 2")
        if self.grid and (self.states is not None or self.tune_rounds):
            raise ValueError("states and tune_rounds are for a ladder along a path, not for a grid")
        if self.tune_rounds and self.tune_sweeps < _TUNE_EXCHANGES * self.exchange_every:
            raise ValueError(
                f"tune_sweeps is {self.tune_sweeps}; it must hold at least {_TUNE_EXCHANGES} "
                f"exchanges, that is {_TUNE_EXCHANGES * self.exchange_every} sweeps"
            )
        if self.sweeps < self._every():
            raise ValueError(
                f"sweeps is {self.sweeps}; it must be at least every = {self._every()}"
            )
        return self

    def _every(self) -> int:
        return self.exchange_every if self.every is None else self.every

    def ladder(self) -> Ladder:
        lists = {name: _array(getattr(self, name)) for name in CONTROLS}
        P, chi = lists["P"], lists["chi"]
        if self.grid:
            lists |= {"P": np.repeat(P, len(chi)), "chi": np.tile(chi, len(P))}
        points = _common(lists)
        path = (self.states or len(points["P"]),)
        return Ladder(
            **points,
            shape=(len(P), len(chi)) if self.grid else path,
            ladders=self.ladders,
            exchange_every=self.exchange_every,
            pairing=self.pairing,
            tune_rounds=self.tune_rounds,
        )

    def plan(self) -> Plan:
        return protocols.tempering(
            ladder=self.ladder(),
            sweeps=self.sweeps,
            thermalize=self.thermalize,
            tune_sweeps=self.tune_sweeps,
            every=self._every(),
            start=self.start,
            pattern_replicas=self.pattern_replicas,
        )


class RunSettings(_Table):
    """How the run is carried out; nothing here changes what is sampled, except the seed."""

    seed: Sweeps = 0
    commit_seconds: Positive = 30.0
    commit_sweeps: Count | None = None


class Data(_Table):
    """Data sets: drawn from the model's tokens with seeds seed, seed + 1, ..., or one file."""

    seed: Sweeps = 0
    sets: Count = 1
    file: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Data:
        if self.file is not None and self.sets > 1:
            raise ValueError(f"sets is {self.sets}; a file is one data set")
        return self


class Job(_Table):
    """A whole job file."""

    model: Annotated[Any, BeforeValidator(_read_model)]
    protocol: Annotated[Hysteresis | Fixed | Tempering | Train, Field(discriminator="kind")]
    data: Data = Data()
    run: RunSettings = RunSettings()

    @model_validator(mode="after")
    def _check(self) -> Job:
        if self.protocol.kind == "train" and self.protocol.replicas % self.data.sets:
            raise ValueError(
                f"protocol.replicas is {self.protocol.replicas}; it must be a multiple of "
                f"data.sets = {self.data.sets}"
            )
        return self
