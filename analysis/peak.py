"""Where the order parameter u fluctuates most in P, from pooled samples, and how it then looks.

Var u has a peak in P wherever order sets in, with or without a jump. Its height, and the ratio
of moments B = 1 - <d^4>/(3 <d^2>^2) there, tell one from the other: two narrow phases of equal
weight have B = 2/3 and var u = (jump/2)^2, a Gaussian has B = 0. Here d = m - <m>; for linear
attention d is tau or beta itself, whose mean is zero.
Axes: n sample; b draw; j point in P.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from mcattn.analysis import mbar, profile, resample
from mcattn.analysis.mbar import Pool
from mcattn.analysis.resample import Draws
from mcattn.analysis.series import Estimate

_AROUND = np.array([-1.0, 0.0, 1.0])
_DROP = 0.1  # of ln var from the peak to the points beside it
_FOLLOW = 4  # steps of Newton's method to the peak of a draw


@dataclass(frozen=True)
class Peak:
    """P : where var u is largest; var : its value there; binder : B there."""

    P: Estimate
    var: Estimate
    binder: Estimate


def place(pool: Pool, chi: float, reach: tuple[float, float], points: int = 41) -> float | None:
    """P of the largest var u within reach; None if that is at one of its ends."""
    P = np.geomspace(*reach, points)
    var = np.array([_variance(pool, chi, x) for x in P])
    best = int(var.argmax())
    if best in (0, points - 1):
        return None
    bounds = P[best - 1], P[best + 1]
    found = minimize_scalar(lambda x: -_variance(pool, chi, x), bounds=bounds, method="bounded")
    return float(found.x)


def influence(pool: Pool, chi: float, P: float) -> np.ndarray:
    """Influence of every sample on <u>, shape (n,), for the blocks of its errors."""
    weights = pool.weights(P, chi)
    weights /= weights.sum()
    direct = weights * (pool.u - weights @ pool.u)
    return resample.influence(pool, direct, -(pool.shares @ direct))


def estimate(pool: Pool, draws: Draws, chi: float, P: float) -> Peak:
    """The peak next to P, with errors."""
    step = _step(pool, chi, P)
    points, base = P + step * _AROUND, pool.weights(P, chi)
    whole = _read(pool, chi, points, base[None])
    chunks = draws.chunks()
    drawn = np.concatenate([_read(pool, chi, points, draws.weights(base, c)) for c in chunks])
    return Peak(*(draws.estimate(float(whole[0, i]), drawn[:, i]) for i in range(3)))


def _variance(pool: Pool, chi: float, P: float) -> float:
    weights = pool.weights(P, chi)
    if mbar.effective(weights) < profile.REACH:
        return 0.0
    return float(_moments(pool, weights[None])[0][0])


def _moments(pool: Pool, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variance of u and B, shape (b,) each, of weights, shape (b, n)."""
    total, middle = weights.sum(axis=1), weights[0] @ pool.u / weights[0].sum()
    d = pool.u - middle  # near the mean, so that the moments do not cancel
    one, two, three, four = ((weights @ d**k) / total for k in range(1, 5))
    var = two - one**2
    if pool.states.along == "m":
        return var, 1 - (four - 4 * one * three + 6 * one**2 * two - 3 * one**4) / (3 * var**2)
    square, fourth = ((weights @ pool.u**k) / total for k in (2, 4))
    return var, 1 - fourth / (3 * square**2)


def _step(pool: Pool, chi: float, P: float) -> float:
    """Distance in P at which ln var has dropped by about _DROP."""
    step = 1e-3 * P
    for _ in range(30):
        here, low, high = (math.log(_variance(pool, chi, x)) for x in (P, P - step, P + step))
        if here - (low + high) / 2 > _DROP / 2:
            break
        step *= 1.3
    return step


def _read(pool: Pool, chi: float, P: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """P of the peak, its height and B, shape (b, 3), from weights at P[1], shape (b, n).

    The peak of a sharp transition is narrower than draws scatter: each is followed to its own.
    """
    step = float(P[1] - P[0])
    low, here, high = (pool.ln_weights(x, chi) for x in P)
    tilt, bend = (high - low) / 2, (high - 2 * here + low) / 2  # in steps of P

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        change = x[:, None] * (tilt + x[:, None] * bend)
        change -= change.max(axis=1, keepdims=True)
        return _moments(pool, weights * np.exp(change))

    center = np.zeros(len(weights))
    for _ in range(_FOLLOW):
        variances, ratios = zip(*(at(center + k) for k in _AROUND), strict=True)
        ln = np.log(variances)
        curve = ln[0] - 2 * ln[1] + ln[2]
        x = np.clip((ln[0] - ln[2]) / (2 * curve), -2, 2)
        center = center + x
    height = np.exp(ln[1] + x * (ln[2] - ln[0]) / 2 + x**2 * curve / 2)
    ratio = ratios[1] + x * (ratios[2] - ratios[0]) / 2
    ratio = ratio + x**2 * (ratios[0] - 2 * ratios[1] + ratios[2]) / 2
    return np.stack([P[1] + center * step, height, ratio], axis=1)
