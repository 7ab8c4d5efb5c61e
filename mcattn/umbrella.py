"""Where umbrella windows lie: overlapping harmonic biases in m from one phase to the other.

The landscape tells how far the windows must reach and how stiff they must be to hold replicas
where the free energy is concave; a pilot (`mcattn.ladder.respaced`) then moves them until
neighbours exchange equally often. Axes: n windows.
"""

from __future__ import annotations

import math

import numpy as np

from mcattn import action, landscape, theory
from mcattn.errors import JobError
from mcattn.model import CopyModel

STIFF = 2.0  # strength over the largest concavity of the landscape along m
FEWEST = 12
BELOW, ABOVE = 0.6, 0.35  # reach below m_minus, as a share of it, and above m_plus, of 1 - m_plus
GRID = 400


def transition(model: CopyModel, chi: float) -> float:
    """The landscape's P*, where windows are of use.

    Raises
    ------
    JobError : the landscape has no transition at this chi.
    """
    jump = theory.boundary(model, chi)
    if jump is None:
        raise JobError(
            f"the landscape has no transition at L = {model.L}, chi = {chi:g}; give P to sample "
            "umbrella windows all the same"
        )
    return jump.P_star


def reach(model: CopyModel, chi: float) -> tuple[float, float]:
    """Centres of the first and last window: beyond both minima of the landscape at its P*."""
    jump = theory.boundary(model, chi)
    if jump is None:
        return BELOW / model.L, 0.8
    return BELOW * jump.m_minus, jump.m_plus + ABOVE * (1 - jump.m_plus)


def windows(
    model: CopyModel, chi: float, P: float, ends: tuple[float, float], count: int | None
) -> tuple[np.ndarray, float]:
    """Centres, shape (n,), evenly from end to end, and the strength that all of them share.

    Without a count there are as many as make neighbours one width of a window apart.
    """
    low, high = ends
    m = np.linspace(low, high, GRID)
    gap = np.log(m * (model.L - 1) / (1 - m))
    F = action.population(landscape.softmax_sums(gap, model.L), model, P, chi)
    concavity = max(0.0, -float(np.gradient(np.gradient(F, m), m)[2:-2].min()))
    least = ((FEWEST - 1) / (high - low)) ** 2
    strength = max(STIFF * concavity, least)
    if count is None:
        count = 1 + math.ceil((high - low) * math.sqrt(strength))
    else:  # windows further apart than they are wide would not overlap
        strength = max(STIFF * concavity, ((count - 1) / (high - low)) ** 2)
    return np.linspace(low, high, count), strength
