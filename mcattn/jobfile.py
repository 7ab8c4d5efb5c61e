"""The settings of a job: what each table of a job file may hold, and the plan it asks for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mcattn import protocols
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.protocols import Plan

CONTROLS = ("P", "chi", "bias_center", "bias_strength")
_TUNE_EXCHANGES = 20  # a pilot round with fewer knows too little of the acceptances

LARGEST = 1e30  # beyond it, and below its inverse, the action leaves double precision
MOST_REPLICAS, MOST_SWEEPS, LARGEST_L = 10**6, 10**12, 4096
Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST, strict=True)]
Count = Annotated[int, Field(ge=1, le=MOST_REPLICAS, strict=True)]
Sweeps = Annotated[int, Field(ge=0, le=MOST_SWEEPS, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(_Table):
    """Control values between two ends, both included."""

    start: Positive
    stop: Positive
    points: Annotated[int, Field(ge=2, le=100_000, strict=True)]
    spacing: Literal["even", "geometric"] = "even"

    def values(self) -> np.ndarray:
        space = np.geomspace if self.spacing == "geometric" else np.linspace
        return space(self.start, self.stop, self.points)


def _read_values(value: Any) -> Grid | tuple[float, ...]:
    if isinstance(value, dict):
        return Grid(**value)
    numbers = _numbers(value)
    if not numbers or not all(1 / LARGEST <= x <= LARGEST for x in numbers):
        raise ValueError(
            f"is {_short(value)}; it must be a number > 0, a list of numbers > 0, "
            "or a table { start, stop, points }"
        )
    return tuple(float(x) for x in numbers)


def _numbers(value: Any) -> list[int | float]:
    """A number as a list of one, a list of numbers as it is; anything else is an empty list."""
    listed = value if isinstance(value, list | tuple) else [value]
    good = all(isinstance(x, int | float) and not isinstance(x, bool) for x in listed)
    return list(listed) if good else []


def _short(value: Any) -> str:
    """A value as it is shown in a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _read_rates(value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed or not all(type(x) is int and 1 <= x <= MOST_SWEEPS for x in listed):
        raise ValueError(f"is {_short(value)}; it must be an integer >= 1 or a list of them")
    return tuple(listed)


def _read_biases(value: Any) -> tuple[float, ...]:
    numbers = _numbers(value)
    if not numbers or not all(0 <= x <= LARGEST for x in numbers):
        raise ValueError(f"is {_short(value)}; it must be a number >= 0 or a list of numbers >= 0")
    return tuple(float(x) for x in numbers)


def _read_model(value: Any) -> CopyModel:
    model = value if isinstance(value, CopyModel) else CopyModel(**value)
    if model.L > LARGEST_L:
        raise ValueError(f"L is {_short(model.L)}; it must be at most {LARGEST_L} to be sampled")
    for name in ("kappa", "g_s", "g_w"):
        if not 1 / LARGEST <= getattr(model, name) <= LARGEST:
            raise ValueError(f"{name} is {getattr(model, name)}; it must be within 1e-30 and 1e30")
    return model


Values = Annotated[Any, BeforeValidator(_read_values)]
Rates = Annotated[Any, BeforeValidator(_read_rates)]
Biases = Annotated[Any, BeforeValidator(_read_biases)]


def _array(value: Grid | tuple[float, ...] | float) -> np.ndarray:
    return value.values() if isinstance(value, Grid) else np.atleast_1d(value).astype(float)


def _same(value: float, others: np.ndarray) -> np.ndarray:
    """Which of the others are this value but for rounding."""
    return np.isclose(value, others, rtol=1e-12, atol=0)


def _common(lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Lists of one common length; a single value stands for a list of equal ones."""
    longest = max(lists, key=lambda name: len(lists[name]))
    for name, values in lists.items():
        if len(values) not in (1, len(lists[longest])):
            raise ValueError(
                f"{name} has {len(values)} values and {longest} has {len(lists[longest])}; "
                "lists must have one common length"
            )
    return dict(zip(lists, np.broadcast_arrays(*lists.values()), strict=True))


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


class Job(_Table):
    """A whole job file."""

    model: Annotated[Any, BeforeValidator(_read_model)]
    protocol: Annotated[Hysteresis | Fixed | Tempering, Field(discriminator="kind")]
    run: RunSettings = RunSettings()
