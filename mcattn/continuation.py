"""Branches of minima over all scores, followed in P; softmax's two, their ends and crossing.

The uniform branch is followed up in P until it is lost, the copy branch down; each minimum is
the start of the next. For a data set P counts its first rows, so a point of the boundary is a
bracket of two neighbouring whole numbers. Source: theory.md, points 1 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mcattn import action, theory
from mcattn.errors import ModelError
from mcattn.landscape import softmax_sums, state_curve
from mcattn.minima import Minimum, minimise, search
from mcattn.problems import Problem

_FIRST_STEP = 0.08  # share of P
_RETREATS = 40
_BEYOND = 1.15  # rows drawn, as a multiple of P_hi: disorder moves the end of a branch


@dataclass(frozen=True)
class Jump:
    """Ends and crossing of the two branches; nan where the data end before.

    Each is a bracket: the branch or the order of the depths is one at the first P and another
    at the second. For a data set the two are neighbouring whole numbers.
    """

    low: tuple[float, float]  # the copy branch is lost and there
    star: tuple[float, float]  # the copy minimum is the higher, and the deeper
    high: tuple[float, float]  # the uniform branch is there and lost
    P_star: float  # within its bracket, by interpolation

    @property
    def P_lo(self) -> float:
        return sum(self.low) / 2

    @property
    def P_hi(self) -> float:
        return sum(self.high) / 2


def rows(boundary: theory.Boundary | None, most: int) -> int:
    """Sequences to draw so that data hold P = most and, where there is a jump, both its ends."""
    return most if boundary is None else max(most, math.ceil(_BEYOND * boundary.P_hi))


class Branch:
    """Minima on one side of a copy overlap, each found from the nearest that is known.

    Parameters
    ----------
    inside : whether a copy overlap m is on this branch's side.
    start : scores, shape (a, b), of the first descent, at any P.
    """

    def __init__(
        self, problem: Problem, inside: Callable[[float], bool], start: np.ndarray
    ) -> None:
        self._problem, self._inside, self._start = problem, inside, start
        self._known: dict[float, Minimum] = {}
        self._lost: set[float] = set()

    def at(self, P: float) -> Minimum | None:
        """The branch's minimum at P; None where following it to there loses it."""
        if P not in self._known and P not in self._lost:
            near = min(self._known.values(), key=lambda one: abs(one.P - P), default=None)
            S = self._start if near is None else near.S
            found = minimise(self._problem, P, S, self._left)
            if found is None:
                self._lost.add(P)
            else:
                self._known[P] = found
        return self._known.get(P)

    def _left(self, S: np.ndarray) -> bool:
        return not self._inside(float(action.order_parameters(S, "softmax")[0]))

    def first(self, P: float, retreat: float) -> float:
        """The nearest P that holds the branch, going from P by factors `retreat`."""
        for _ in range(_RETREATS):
            P = _allowed(self._problem, P)
            if self.at(P) is not None:
                return P
            P *= retreat
        raise ModelError(
            "a branch of minima is nowhere to be found; perhaps the data end before it"
        )

    def end(self, P: float, direction: int) -> tuple[float, float]:
        """Where following the branch up (+1) or down (-1) from P loses it: last P kept, next lost.

        The second is nan if the data end before the branch does.
        """
        whole, step = self._problem.resolution == 0, _FIRST_STEP * P
        while step >= (1 if whole else self._problem.resolution * P):
            step = math.floor(step) if whole else step
            ahead = _allowed(self._problem, P + direction * step)
            if ahead != P and self.at(ahead) is not None:
                P = ahead
            elif ahead == P and step == 1:
                return P, math.nan
            else:
                step /= 2
        return P, P + direction * (1 if whole else 2 * step)


class Branches:
    """The uniform and the copy branch of a problem with softmax attention.

    A minimum counts to the copy branch if its m is above the middle of the population
    landscape's values at the two spinodals, between which no minimum lies.

    Raises
    ------
    ModelError : the population landscape has one branch only.
    """

    def __init__(self, problem: Problem) -> None:
        model, self._problem = problem.model, problem
        boundary = theory.boundary(model, problem.chi)
        if boundary is None:
            raise ModelError("the landscape has one branch only: no ends and no crossing")
        curve = state_curve(model, problem.chi)
        middle = float(softmax_sums(curve.gaps[curve.ends[1:3]], model.L)[:, 0].mean())
        self.boundary, L = boundary, model.L
        copying = boundary.gap_plus * np.roll(np.eye(L), -1, axis=1)
        self.uniform = Branch(problem, lambda m: m < middle, np.zeros((L, L)))
        self.copy = Branch(problem, lambda m: m > middle, copying)

    def jump(self) -> Jump:
        """Both spinodals and the crossing."""
        P = self.boundary.P_star
        high = self.uniform.end(self.uniform.first(P, 0.97), +1)
        kept, lost = self.copy.end(self.copy.first(P, 1.03), -1)
        star, P_star = self._crossing(kept, high[0])
        return Jump((lost, kept), star, high, P_star)

    def table(self, P: Iterable[float]) -> tuple[list[Minimum | None], list[Minimum | None]]:
        """Minima of the uniform and the copy branch at each P, None where one is lost.

        Both are followed outwards from the middle of where they coexist.
        """
        P = [float(x) for x in P]
        found: list[dict[float, Minimum | None]] = []
        for branch, away, retreat in ((self.uniform, 1, 0.97), (self.copy, -1, 1.03)):
            branch.first(self.boundary.P_star, retreat)
            found.append({x: branch.at(x) for x in sorted(P, key=lambda x: away * x)})
        return [found[0][x] for x in P], [found[1][x] for x in P]

    def _crossing(self, low: float, high: float) -> tuple[tuple[float, float], float]:
        """Bracket and interpolated P at which the copy minimum becomes the deeper, by bisection."""
        nowhere = (math.nan, math.nan), math.nan
        if not low < high:
            return nowhere
        ends = [self._excess(low), self._excess(high)]
        if not ends[0] > 0 >= ends[1]:
            return nowhere
        whole = self._problem.resolution == 0
        while high - low > (1 if whole else self._problem.resolution * low):
            middle = (low + high) / 2
            middle = math.floor(middle) if whole else middle
            excess = self._excess(middle)
            if excess > 0:
                low, ends[0] = middle, excess
            else:
                high, ends[1] = middle, excess
        return (low, high), low + (high - low) * ends[0] / (ends[0] - ends[1])

    def _excess(self, P: float) -> float:
        """Depth of the uniform over the copy minimum, both of which are there."""
        uniform, copy = self.uniform.at(P), self.copy.at(P)
        assert uniform is not None
        assert copy is not None
        return copy.F_per_chi - uniform.F_per_chi


def lowest(problem: Problem, P: Iterable[float], starts: int, seed: int = 0) -> list[Minimum]:
    """The lowest minimum known at each P: searched for at the largest, followed down, then up.

    For linear attention, whose lowest minimum moves smoothly with P; `minima.search` at every P
    finds the same at many times the cost.

    Parameters
    ----------
    starts : random starts of the search.
    """
    P = [float(x) for x in P]
    order = sorted(set(P), reverse=True)
    one: Minimum | None = search(problem, order[0], starts, seed).lowest
    known: dict[float, Minimum] = {}
    for x in [*order, *reversed(order)]:
        assert one is not None
        one = minimise(problem, x, one.S)
        assert one is not None
        if x not in known or one.F_per_chi < known[x].F_per_chi:
            known[x] = one
    return [known[x] for x in P]


def _allowed(problem: Problem, P: float) -> float:
    """The nearest P that a problem has."""
    return float(min(max(round(P), 1), problem.most)) if problem.resolution == 0 else P
