"""The kinds of values in a job file: how they are read, and what is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mcattn.model import CopyModel

LARGEST = 1e30  # beyond it, and below its inverse, the action leaves double precision
MOST_REPLICAS, MOST_SWEEPS, LARGEST_L = 10**6, 10**12, 4096
Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST, strict=True)]
Count = Annotated[int, Field(ge=1, le=MOST_REPLICAS, strict=True)]
Sweeps = Annotated[int, Field(ge=0, le=MOST_SWEEPS, strict=True)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(Table):
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


def read_model(value: Any) -> CopyModel:
    model = value if isinstance(value, CopyModel) else CopyModel(**value)
    if model.L > LARGEST_L:
        raise ValueError(f"L is {_short(model.L)}; it must be at most {LARGEST_L} to be sampled")
    for name in ("kappa", "g_s", "g_w"):
        if not 1 / LARGEST <= getattr(model, name) <= LARGEST:
            raise ValueError(f"{name} is {getattr(model, name)}; it must be within 1e-30 and 1e30")
    return model


def _read_range(value: Any) -> tuple[float, float]:
    numbers = _numbers(value)
    if len(numbers) != 2 or not 0 <= numbers[0] < numbers[1] <= LARGEST:
        raise ValueError(f"is {_short(value)}; it must be [low, high] with 0 <= low < high")
    return float(numbers[0]), float(numbers[1])


Values = Annotated[Any, BeforeValidator(_read_values)]
Rates = Annotated[Any, BeforeValidator(_read_rates)]
Biases = Annotated[Any, BeforeValidator(_read_biases)]
Range = Annotated[Any, BeforeValidator(_read_range)]


def array(value: Grid | tuple[float, ...] | float) -> np.ndarray:
    return value.values() if isinstance(value, Grid) else np.atleast_1d(value).astype(float)


def same(value: float, others: np.ndarray) -> np.ndarray:
    """Which of the others are this value but for rounding."""
    return np.isclose(value, others, rtol=1e-12, atol=0)


def common(lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Lists of one common length; a single value stands for a list of equal ones."""
    longest = max(lists, key=lambda name: len(lists[name]))
    for name, values in lists.items():
        if len(values) not in (1, len(lists[longest])):
            raise ValueError(
                f"{name} has {len(values)} values and {longest} has {len(lists[longest])}; "
                "lists must have one common length"
            )
    return dict(zip(lists, np.broadcast_arrays(*lists.values()), strict=True))
