"""What a job must fulfil to run on data sets: equal shares, whole numbers of sequences."""

from __future__ import annotations

import numpy as np

from mcattn.protocols import Plan
from mcattn.trainjob import MOST_SEQUENCES


def check_shares(name: str, count: int, sets: int) -> None:
    """Refuse replicas or ladders that data sets cannot share equally."""
    if count % sets:
        raise ValueError(f"protocol.{name} is {count}; it must be a multiple of data.sets = {sets}")


def check_sequences(plan: Plan) -> None:
    """Refuse numbers of sequences that no data set has."""
    P, ladder = plan.states.P, plan.ladder
    odd = P[(np.rint(P) != P) | (P < 1)]
    if len(odd):
        raise ValueError(
            f'P has {odd[0]:g}; with action = "exact" it counts sequences of a data set: give '
            "whole numbers"
        )
    if P.max() > MOST_SEQUENCES:
        raise ValueError(f"P has {P.max():g}; it must be at most {MOST_SEQUENCES:g}")
    if ladder is not None and ladder.tune_rounds and np.ptp(ladder.P):
        raise ValueError(
            f'tune_rounds is {ladder.tune_rounds}; with action = "exact" and several P it must '
            "be 0, since tuned states lie between whole numbers"
        )
