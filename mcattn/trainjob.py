"""The settings of a training run, protocol `train`."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import model_validator

from mcattn import protocols
from mcattn.jobfields import Count, Positive, Sweeps, Table, Values, array
from mcattn.protocols import Plan
from mcattn.recipe import Recipe

MOST_SEQUENCES = 10**7
# Adam's: small against the scores that copying needs, so that a start does not jump branches.
_RATES = {"adam": 0.01, "flow": 0.01, "sgld": 0.05}


class Train(Table):
    """An ensemble of networks trained at one P after the other, in the order given."""

    kind: Literal["train"]
    P: Values
    network: Literal["positional", "full"] = "positional"
    optimiser: Literal["adam", "flow", "sgld"] = "adam"
    chi: Positive | None = None
    rate: Positive | None = None
    schedule: Literal["constant", "cosine"] | None = None
    batch: Count | None = None
    path: Literal["scratch", "continue"] = "continue"
    start: Literal["small", "prior", "copy"] = "small"
    steps: Count = 2000
    thermalize: Sweeps = 0
    every: Count = 100
    replicas: Count = 8
    pattern_replicas: Sweeps = 1

    @model_validator(mode="after")
    def _check(self) -> Train:
        self._check_optimiser()
        if self.steps < self.every:
            raise ValueError(f"steps is {self.steps}; it must be at least every = {self.every}")
        P = np.rint(array(self.P))
        if P.min() < 1:
            raise ValueError(f"P has {array(self.P).min():g}; sequences are counted from 1")
        if P.max() > MOST_SEQUENCES:
            raise ValueError(f"P has {P.max():g}; it must be at most {MOST_SEQUENCES:g}")
        if (np.diff(P) == 0).any():
            raise ValueError("P has neighbours that are the same whole number; leave one out")
        return self

    def _check_optimiser(self) -> None:
        if self.optimiser == "sgld":
            if self.chi is None:
                raise ValueError("chi is missing; sgld samples at the temperature 1/chi")
        elif self.chi is not None:
            raise ValueError(f"chi is for sgld; {self.optimiser} has no temperature")
        elif self.thermalize:
            raise ValueError(f"thermalize is for sgld; {self.optimiser} shows all its steps")
        if self.schedule is not None and self.optimiser != "adam":
            raise ValueError(f"schedule is for adam; {self.optimiser} has a constant rate")
        if self.batch is not None and self.optimiser == "flow":
            raise ValueError("batch is for adam and sgld; the flow follows the whole loss")

    def recipe(self) -> Recipe:
        adam = self.optimiser == "adam"
        return Recipe(
            network=self.network,
            optimiser=self.optimiser,
            rate=self.rate or _RATES[self.optimiser],
            schedule=self.schedule or ("cosine" if adam else "constant"),
            batch=self.batch,
        )

    def plan(self) -> Plan:
        return protocols.train(
            P=np.rint(array(self.P)),
            chi=np.inf if self.chi is None else self.chi,
            recipe=self.recipe(),
            steps=self.steps,
            thermalize=self.thermalize,
            every=self.every,
            scratch=self.path == "scratch",
            replicas=self.replicas,
            start=self.start,
            pattern_replicas=self.pattern_replicas,
        )
