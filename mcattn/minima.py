"""Minima of an action over all L^2 scores: descent to full precision, and what a minimum is like.

Newton steps within a trust radius follow a valley without leaving it; products with the Hessian
are differences of two gradients, so no matrix of L^2 x L^2 numbers is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigsh

from mcattn import action, streams
from mcattn.errors import SamplingError
from mcattn.problems import Landscape, Problem

RADIUS = 0.5  # longest step, in scores: far less than the distance of two phases
_SHIFT = 1e-4  # of differences of gradients: errors of 1e-8, by rounding and by curvature
_DIGITS = 10.0  # descent stops at slopes where F still moves by this many roundings
_POLISH, _PUSHES, _STEPS = 8, 20, 2000
_NOTHING = 1e-10  # size of a pattern that is zero but for rounding
_FLAT = 1e-7  # lowest curvature that differences of gradients tell from none


@dataclass(frozen=True)
class Minimum:
    """A minimum of F/chi at P.

    slope : largest entry of the gradient there, a few roundings.
    curvature : smallest eigenvalue of the Hessian; it falls to 0 where the minimum ends.
    spread : |R - R'| / |R| of the pattern with the shift undone, R_ak = A_{a,a-1-k}, and its mean
        over rows R': 0 if all rows are one pattern.
    loss : test loss per position, on fresh tokens.
    """

    P: float
    S: np.ndarray  # scores, shape (a, b)
    F_per_chi: float
    X: np.ndarray  # five sums, shape (5,)
    alpha: float
    beta: float
    loss: float
    spread: float
    curvature: float
    slope: float

    @property
    def m(self) -> float:
        return float(self.X[0])


@dataclass(frozen=True)
class Search:
    """What many starts found: the lowest minimum, and all of them in the order of the starts."""

    lowest: Minimum
    found: tuple[Minimum, ...]

    @property
    def share(self) -> float:
        """Share of the starts that ended in the lowest, A and -A being one for linear attention."""
        best = self.lowest.F_per_chi
        return float(np.mean([one.F_per_chi - best <= 1e-8 * abs(best) for one in self.found]))


def minimise(
    problem: Problem, P: float, S: np.ndarray, leave: Callable[[np.ndarray], bool] | None = None
) -> Minimum | None:
    """The minimum that the scores S, shape (a, b), descend to at P.

    Parameters
    ----------
    leave : asked at every step; where it is true of the scores the answer is None.

    Raises
    ------
    SamplingError : the descent comes to no minimum.
    ModelError : P is not one of the problem's.
    """
    f, S = problem.at(P), np.array(S, dtype=float)
    for _ in range(_PUSHES):
        S = _descend(f, S, leave)
        if leave is not None and leave(S):
            return None
        S, slope = _polish(f, S)
        curvature, direction = _softest(f, S)
        if curvature > _FLAT:
            return _described(problem, P, S, float(f(S)[0]), curvature, slope)
        # A saddle, where starts with its symmetry end: fall off it.
        ends = S + 0.1 * np.stack([direction, -direction])
        S = ends[np.argmin(f(ends)[0])]
    raise SamplingError(f"the descent at P = {P:g} ends on a flat piece, not in a minimum")


def search(problem: Problem, P: float, starts: int, seed: int = 0, width: float = 1.0) -> Search:
    """Descend from scores drawn from the prior at chi = 1, narrowed by `width`.

    Start k is the same for any number of starts. Where a start ends depends on the way down too:
    quasi-Newton steps at first, which are not those of training.
    """
    found = []
    for k in range(starts):
        rng = streams.search_generator(seed, k)
        S = width * math.sqrt(problem.model.g_s) * rng.standard_normal((problem.model.L,) * 2)
        one = minimise(problem, P, _coarse(problem.at(P), S))
        assert one is not None
        found.append(one)
    return Search(min(found, key=lambda one: one.F_per_chi), tuple(found))


def spread_of_rows(A: np.ndarray) -> float:
    """`Minimum.spread` of a pattern, shape (a, b)."""
    a = np.arange(len(A))
    R = A[a[:, None], a[:, None] - 1 - a]
    size = np.linalg.norm(R)
    return float(np.linalg.norm(R - R.mean(axis=0)) / size) if size > _NOTHING else 0.0


def _described(
    problem: Problem, P: float, S: np.ndarray, F: float, curvature: float, slope: float
) -> Minimum:
    model = problem.model
    X = action.order_parameters(S, model.attention)
    if X[2] < 0:  # linear attention: A and -A have the same F
        S, X = -S, X * [-1, 1, -1, 1, 1]
    alpha, beta = map(float, action.alpha_beta(X, model.L))
    spread = spread_of_rows(action.pattern(S, model.attention))
    loss = problem.loss(S, P)
    return Minimum(float(P), S, F, X, alpha, beta, loss, spread, curvature, slope)


def _coarse(f: Landscape, S: np.ndarray) -> np.ndarray:
    """Most of the way down from far up, where the shape of the valley does not matter yet."""

    def flat(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = f(x.reshape(S.shape))
        return float(value), slope.ravel()

    return minimize(flat, S.ravel(), jac=True, method="L-BFGS-B").x.reshape(S.shape)


def _descend(f: Landscape, S: np.ndarray, leave: Callable[[np.ndarray], bool] | None) -> np.ndarray:
    """Follow the valley down until rounding of F hides how it goes on."""

    def flat(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = f(x.reshape(S.shape))
        return float(value), slope.ravel()

    def product(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        return _along(f, x.reshape(S.shape), v)

    def stop(intermediate_result: object) -> None:
        if leave is not None and leave(intermediate_result.x.reshape(S.shape)):  # type: ignore[attr-defined]
            raise StopIteration

    options = {
        "initial_trust_radius": RADIUS / 4,
        "max_trust_radius": RADIUS,
        "gtol": _DIGITS * math.sqrt(np.finfo(float).eps * max(1.0, abs(float(f(S)[0])))),
        "maxiter": _STEPS,
    }
    return minimize(
        flat, S.ravel(), jac=True, hessp=product, method="trust-ncg", callback=stop, options=options
    ).x.reshape(S.shape)


def _polish(f: Landscape, S: np.ndarray) -> tuple[np.ndarray, float]:
    """Newton steps for as long as they shrink the gradient; scores and its largest entry."""
    G = f(S)[1]
    for _ in range(_POLISH):
        H = _hessian(f, S)
        step, _ = cg(H, -G.ravel(), rtol=1e-6, maxiter=4 * S.size)
        trial = S + step.reshape(S.shape)
        slope = f(trial)[1]
        if not np.linalg.norm(slope) < 0.5 * np.linalg.norm(G):
            break
        S, G = trial, slope
    return S, float(np.abs(G).max())


def _softest(f: Landscape, S: np.ndarray) -> tuple[float, np.ndarray]:
    """Smallest eigenvalue of the Hessian and its direction, shape (a, b)."""
    first = np.random.default_rng(0).standard_normal(S.size)
    try:
        values, vectors = eigsh(_hessian(f, S), k=1, which="SA", tol=1e-5, v0=first)
    except ArpackNoConvergence as err:
        raise SamplingError("the smallest curvature of a minimum cannot be found") from err
    return float(values[0]), vectors[:, 0].reshape(S.shape)


def _hessian(f: Landscape, S: np.ndarray) -> LinearOperator:
    return LinearOperator((S.size, S.size), matvec=lambda v: _along(f, S, v), dtype=float)


def _along(f: Landscape, S: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Product of the Hessian at S with v, shape (a b,)."""
    size = float(np.linalg.norm(v))
    if not size:
        return np.zeros(S.size)
    h = _SHIFT / size * v.reshape(S.shape)
    ahead, behind = f(S + np.stack([h, -h]))[1]
    return size / (2 * _SHIFT) * (ahead - behind).ravel()
