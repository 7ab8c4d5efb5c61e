"""Linear attention with equal rows: the action as a function of (alpha, beta).

The pattern A = (alpha/L) 1 1^T + beta Pi has |A|^2 = tau^2 + b^2 in the coordinates
v = (tau, b), tau = alpha + beta and b = sqrt(L - 1) beta, in which this file works. A and -A
have the same F. Source: theory.md, "Order parameters" and point 5. Axes: n states; i, j
components of v.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from mcattn import action
from mcattn.model import CopyModel

# A minimum needs |v|^2 <= g_s P/(4 kappa): the data term pulls on |v|^2 no harder than that.
RADII, ANGLES = 40, 180
LOWEST_RADII, LOWEST_ANGLES = 16, 12
STEPS = 80
FRACTIONS = np.array([1.0, 0.5, 0.2, 0.04, 0.005, 0.0])


def symmetric_sums(alpha: ArrayLike, beta: ArrayLike, L: int) -> np.ndarray:
    """The five sums X, shape (..., 5), of A = (alpha/L) 1 1^T + beta Pi; inputs broadcast."""
    alpha, beta = np.broadcast_arrays(np.asarray(alpha, float), np.asarray(beta, float))
    tau = alpha + beta
    q = (alpha * alpha + 2 * alpha * beta) / L + beta * beta
    return np.stack([alpha / L + beta, q, tau, tau * tau, L * q], axis=-1)


def sums_at(v: np.ndarray, L: int) -> np.ndarray:
    """The five sums X, shape (..., 5), at the point v, shape (..., i)."""
    beta = v[..., 1] / math.sqrt(L - 1)
    return symmetric_sums(v[..., 0] - beta, beta, L)


def gradient(v: np.ndarray, model: CopyModel, P: ArrayLike, chi: float) -> np.ndarray:
    """Derivative of F/chi with respect to v, shape (..., i)."""
    L, tau = model.L, v[..., 0]
    slope = action.per_chi_gradient(sums_at(v, L), model, P, chi)
    out = 2 * v * (slope[..., 1:2] / L + slope[..., 4:5])
    out[..., 0] += slope[..., 0] / L + slope[..., 2] + 2 * tau * slope[..., 3]
    out[..., 1] += slope[..., 0] * math.sqrt(L - 1) / L
    return out


def origin_hessian(model: CopyModel, P: float, chi: float) -> np.ndarray:
    """Second derivatives of F/chi with respect to v at A = 0, shape (i, j)."""
    L = model.L
    slope = action.per_chi_gradient(np.zeros(5), model, P, chi)
    hold = 2 * (slope[1] / L + slope[4]) + np.array([2 * slope[3], 0.0])
    return np.diag(hold) - _pull(model, P)


def _pull(model: CopyModel, P: float) -> np.ndarray:
    """Minus the data term's second derivatives at A = 0, shape (i, j); proportional to P^2."""
    # At q = r = 0 the data term is a quadratic form of (m, tau): its slopes there are linear.
    probes = np.zeros((2, 5))
    probes[[0, 1], [0, 2]] = 1.0
    form = action.per_chi_gradient(probes, model, P, math.inf)[:, [0, 2]]
    jacobian = np.array([[1 / model.L, math.sqrt(model.L - 1) / model.L], [1.0, 0.0]])
    return -jacobian.T @ form @ jacobian


def origin_instability(model: CopyModel, chi: float) -> float:
    """Lowest P at which A = 0 is no minimum of F(alpha, beta).

    It always exists: along any direction the second derivative is a + b P - c P^2 with
    a > 0 and b >= 0, and c > 0 for some direction.
    """
    low = 1 / math.sqrt(model.g_s * np.linalg.eigvalsh(_pull(model, 1.0))[-1])
    if math.isinf(chi):
        return low

    def softest(P: float) -> float:
        return float(np.linalg.eigvalsh(origin_hessian(model, P, chi))[0])

    high = 2 * low
    while softest(high) > 0:
        high *= 2
    return float(brentq(softest, low, high, rtol=1e-13))


def all_minima(model: CopyModel, P: float, chi: float) -> np.ndarray:
    """Every minimum of F(alpha, beta), shape (n, i), one of each pair A, -A, with tau >= 0."""
    starts = _grid_minima(model, P, chi)
    curvatures, directions = np.linalg.eigh(origin_hessian(model, P, chi))
    origin_holds = curvatures[0] > 0
    if not origin_holds:
        starts = np.append(starts, 1e-3 * _reach(model, P) * directions[None, :, 0], axis=0)
    v = descend(starts, model, P, chi) if len(starts) else starts
    v = v[np.linalg.eigvalsh(_hessian(v, model, P, chi))[:, 0] > 0] if len(v) else v
    scale = _reach(model, P)
    found = [np.zeros(2)] if origin_holds else []
    for point in _oriented(v):
        if all(np.linalg.norm(point - other) > 1e-6 * scale for other in found):
            found.append(point)
    return np.array(found)


def lowest(model: CopyModel, P: np.ndarray, chi: float) -> np.ndarray:
    """The global minimum of F(alpha, beta) at each P, shape (n, i), with tau, beta >= 0.

    It has m tau >= 0 because the data term's coefficient of m tau favours equal signs, and
    then beta >= 0 because |m| is larger at the same q and r.
    """
    radius = np.linspace(0, 1, LOWEST_RADII + 1)[1:] ** 2
    angle = np.linspace(0, math.pi / 2, LOWEST_ANGLES)
    unit = _polar(radius, angle).reshape(-1, 2)
    points = _reach(model, P)[:, None, None] * unit
    F = action.per_chi(sums_at(points, model.L), model, P[:, None], chi)
    v = _oriented(descend(points[np.arange(len(P)), F.argmin(axis=1)], model, P, chi))
    F = action.per_chi(sums_at(v, model.L), model, P, chi)
    at_zero = action.per_chi(np.zeros((len(P), 5)), model, P, chi) <= F
    return np.where(at_zero[:, None], 0.0, v)


def descend(v: np.ndarray, model: CopyModel, P: ArrayLike, chi: float) -> np.ndarray:
    """The minimum of F/chi below each start, both shape (n, i), by damped Newton steps."""
    v, P = v.copy(), np.broadcast_to(np.asarray(P, dtype=float), v.shape[:1])
    moving = np.arange(len(v))
    for _ in range(STEPS):
        v[moving], length = _step(v[moving], model, P[moving], chi)
        moving = moving[length > 1e-13 * _reach(model, P[moving])]
        if not len(moving):
            break
    return v


def _step(
    v: np.ndarray, model: CopyModel, P: np.ndarray, chi: float
) -> tuple[np.ndarray, np.ndarray]:
    """The points one step on, shape (n, i), and the lengths of the full steps, shape (n,)."""
    w, U = np.linalg.eigh(_hessian(v, model, P, chi))
    w = np.maximum(np.abs(w), 1e-9 / model.g_s)
    slope = np.einsum("nji,nj->ni", U, gradient(v, model, P, chi))
    step = -np.einsum("nij,nj->ni", U, slope / w)
    size, length = np.linalg.norm(v, axis=1), np.linalg.norm(step, axis=1)
    step *= np.minimum(1, size / np.maximum(length, 1e-300))[:, None]
    trial = v[:, None] + FRACTIONS[:, None] * step[:, None]
    F = action.per_chi(sums_at(trial, model.L), model, P[:, None], chi)
    # Where rounding would decide which F is lower, the full step is already exact.
    pick = np.where((slope**2 / w).sum(axis=1) < 1e-12 * np.abs(F[:, -1]), 0, F.argmin(axis=1))
    return trial[np.arange(len(v)), pick], length


def _hessian(v: np.ndarray, model: CopyModel, P: ArrayLike, chi: float) -> np.ndarray:
    """Second derivatives of F/chi, shape (n, i, j), by central differences of the gradient."""
    P = np.broadcast_to(np.asarray(P, dtype=float), v.shape[:1])
    h = 1e-5 * np.maximum(np.linalg.norm(v, axis=1), 1e-6 * _reach(model, P))[:, None, None]
    shift = h * np.eye(2)
    ahead, behind = (
        gradient(v[:, None] + sign * shift, model, P[:, None], chi) for sign in (1, -1)
    )
    H = (ahead - behind) / (2 * h)
    return (H + np.swapaxes(H, 1, 2)) / 2


def _grid_minima(model: CopyModel, P: float, chi: float) -> np.ndarray:
    """Points of a polar grid that lie below their eight neighbours, shape (n, i).

    Angles cover half a turn, which A -> -A closes to a ring; the centre is left out.
    """
    radius = np.linspace(0, 1, RADII + 1) ** 2
    angle = np.linspace(-math.pi / 2, math.pi / 2, ANGLES, endpoint=False)
    points = _reach(model, P) * _polar(radius, angle)
    F = action.per_chi(sums_at(points, model.L), model, P, chi)
    F = np.concatenate([F, np.full((1, ANGLES), math.inf)])
    centre = F[1:-1]
    low = np.ones(centre.shape, dtype=bool)
    for out in (-1, 0, 1):
        for turn in (-1, 0, 1):
            if (out, turn) != (0, 0):
                low &= centre < np.roll(F, turn, axis=1)[1 + out : len(F) - 1 + out]
    return points[1:][low]


def _polar(radius: np.ndarray, angle: np.ndarray) -> np.ndarray:
    return radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _reach(model: CopyModel, P: ArrayLike) -> np.ndarray:
    """A radius |v| beyond every minimum."""
    return 0.51 * np.sqrt(model.g_s * np.asarray(P, dtype=float) / model.kappa)


def _oriented(v: np.ndarray) -> np.ndarray:
    """v or -v, whichever has tau > 0 (beta > 0 where tau = 0)."""
    flip = (v[..., 0] < 0) | ((v[..., 0] == 0) & (v[..., 1] < 0))
    return np.where(flip[..., None], -v, v)
