"""The settings of a job: what each table of a job file may hold, and the plan it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from mcattn import protocols, windows
from mcattn.exactjob import check_sequences, check_shares
from mcattn.jobfields import (
    MOST_REPLICAS,
    Biases,
    Count,
    Grid,
    Positive,
    Range,
    Rates,
    Sweeps,
    Table,
    Values,
    array,
    common,
    read_model,
    same,
)
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.protocols import Plan
from mcattn.trainjob import Train

CONTROLS = ("P", "chi", "bias_center", "bias_strength")
_TUNE_EXCHANGES = 20  # a pilot round with fewer knows too little of the acceptances


class Hysteresis(Table):
    """A path of control values followed by all replicas together.

    P as a table { start, stop, points } is followed there and back; as a list, exactly as it is.
    """

    kind: Literal["hysteresis"]
    action: Literal["population", "exact"] = "population"
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
        points, chis = len(self.path()), len(array(self.chi))
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
        unknown = [p for p in self.patterns_at if not same(p, self.path()).any()]
        if unknown:
            raise ValueError(f"patterns_at has {unknown[0]:g}, which is not a value of the path P")
        return self

    def path(self) -> np.ndarray:
        P = array(self.P)
        return protocols.there_and_back(P) if isinstance(self.P, Grid) else P

    def plan(self) -> Plan:
        P = self.path()
        chosen = [p for p in P if same(p, np.array(self.patterns_at)).any()]
        return protocols.hysteresis(
            P=P,
            chi=np.broadcast_to(array(self.chi), P.shape),
            sweeps=self.sweeps,
            thermalize=self.thermalize,
            equilibrate=self.equilibrate,
            every=self.every,
            replicas=self.replicas,
            start=self.start,
            patterns_at=chosen,
            pattern_replicas=self.pattern_replicas,
        )


class Fixed(Table):
    """Independent replicas in fixed states: one state for each value of P, chi or the bias."""

    kind: Literal["fixed"]
    action: Literal["population", "exact"] = "population"
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
        return common({name: array(getattr(self, name)) for name in CONTROLS})

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


class Tempering(Table):
    """Replicas that exchange states along a path of P, chi and bias, or in a grid of P and chi."""

    kind: Literal["tempering"]
    action: Literal["population", "exact"] = "population"
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
        _check_lengths(self)
        return self

    def ladder(self) -> Ladder:
        lists = {name: array(getattr(self, name)) for name in CONTROLS}
        P, chi = lists["P"], lists["chi"]
        if self.grid:
            lists |= {"P": np.repeat(P, len(chi)), "chi": np.tile(chi, len(P))}
        points = common(lists)
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
            every=_rows_every(self),
            start=self.start,
            pattern_replicas=self.pattern_replicas,
        )


class Umbrella(Table):
    """Replicas that exchange windows along an order parameter, at one P and chi."""

    kind: Literal["umbrella"]
    action: Literal["population", "exact"] = "population"
    chi: Positive
    P: Positive | None = None
    along: Literal["m", "tau", "beta"] | None = None
    range: Range | None = None
    windows: Annotated[int, Field(ge=4, le=MOST_REPLICAS, strict=True)] | None = None
    ladders: Count = 4
    exchange_every: Count = 5
    tune_rounds: Sweeps = 4
    tune_sweeps: Count = 1000
    sweeps: Count = 40000
    thermalize: Sweeps = 2000
    every: Count | None = None
    pattern_replicas: Sweeps = 0

    @model_validator(mode="after")
    def _check(self) -> Umbrella:
        _check_lengths(self)
        return self

    def plan(self, model: CopyModel) -> Plan:
        return protocols.umbrella(
            windows.place(model, self.chi, self.P, self.along, self.range),
            chi=self.chi,
            count=self.windows,
            ladders=self.ladders,
            exchange_every=self.exchange_every,
            tune_rounds=self.tune_rounds,
            sweeps=self.sweeps,
            thermalize=self.thermalize,
            tune_sweeps=self.tune_sweeps,
            every=_rows_every(self),
            pattern_replicas=self.pattern_replicas,
        )


def _rows_every(protocol: Tempering | Umbrella) -> int:
    return protocol.exchange_every if protocol.every is None else protocol.every


def _check_lengths(protocol: Tempering | Umbrella) -> None:
    """Refuse pilot rounds that hold too few exchanges, and runs without a row."""
    tune, least = protocol.tune_sweeps, _TUNE_EXCHANGES * protocol.exchange_every
    if protocol.tune_rounds and tune < least:
        raise ValueError(
            f"tune_sweeps is {tune}; it must hold at least {_TUNE_EXCHANGES} "
            f"exchanges, that is {least} sweeps"
        )
    every = _rows_every(protocol)
    if protocol.sweeps < every:
        raise ValueError(f"sweeps is {protocol.sweeps}; it must be at least every = {every}")


class RunSettings(Table):
    """How the run is carried out; nothing here changes what is sampled, except the seed."""

    seed: Sweeps = 0
    commit_seconds: Positive = 30.0
    commit_sweeps: Count | None = None


class Data(Table):
    """Data sets: drawn from the model's tokens with seeds seed, seed + 1, ..., or one file."""

    seed: Sweeps = 0
    sets: Count = 1
    file: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Data:
        if self.file is not None and self.sets > 1:
            raise ValueError(f"sets is {self.sets}; a file is one data set")
        return self


class Job(Table):
    """A whole job file."""

    model: Annotated[Any, BeforeValidator(read_model)]
    protocol: Annotated[
        Hysteresis | Fixed | Tempering | Umbrella | Train, Field(discriminator="kind")
    ]
    data: Data = Data()
    run: RunSettings = RunSettings()

    @model_validator(mode="after")
    def _check(self) -> Job:
        if isinstance(self.protocol, Umbrella):
            self.plan()
        if self.has_data:
            exchange = isinstance(self.protocol, Tempering | Umbrella)
            name = "ladders" if exchange else "replicas"
            check_shares(name, getattr(self.protocol, name), self.data.sets)
        if self._exact:
            check_sequences(self.plan())
        return self

    @property
    def _exact(self) -> bool:
        return not isinstance(self.protocol, Train) and self.protocol.action == "exact"

    @property
    def has_data(self) -> bool:
        """Whether the job uses data sets."""
        return self._exact or isinstance(self.protocol, Train)

    def plan(self) -> Plan:
        """What the run does: states, stages, replicas."""
        if isinstance(self.protocol, Umbrella):
            plan = self.protocol.plan(self.model)
        else:
            plan = self.protocol.plan()
        return replace(plan, sets=self.data.sets) if self._exact else plan
