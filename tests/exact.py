"""Exact averages of tiny systems: a second population action, integrated over all L^2 scores.

Nothing here calls mcattn.action. The action is written from theory.md with V x V matrices; the
integral is done by quadrature after exact reductions, and every reduction is compared with the
plain action in test_exact.py. Axes: a, b positions; i, j tokens; n nodes or combinations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from mcattn.model import CopyModel

OBSERVABLES = ("m", "q", "tau", "r", "s2", "m2", "tau2", "abs_tau")
TOLERANCE = 5e-7  # successive resolutions that agree this well end the refinement
SIZES = {  # nodes per dimension, by (softmax, L)
    (True, 2): (40, 60, 90, 135, 200, 300),
    (True, 3): (12, 14, 17, 20, 23, 26, 30, 34),
    (False, 2): (12, 14, 17, 20, 24, 28, 34, 40, 48),
    (False, 3): (12, 14, 17, 20, 24, 28, 34, 40, 48),
}
NEGLIGIBLE = 1e-9  # nodes whose marginal weight is this far below the largest are left out

Averages = dict[str, float]


# --- the action, from the definition ---------------------------------------------------------


def attention(S: np.ndarray, model: CopyModel) -> np.ndarray:
    """Pattern A of the scores S, both shape (..., a, b)."""
    if model.attention == "linear":
        return S
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    return E / E.sum(axis=-1, keepdims=True)


def correlations(A: np.ndarray, model: CopyModel) -> tuple[np.ndarray, np.ndarray]:
    """G/P and C/P, both shape (..., i, j), averaged over the tokens of a random sequence."""
    L, V = model.L, model.V
    p = probabilities(model)
    T = np.empty((L, L, V, V))  # mean of x^b x^b'^T
    T[:] = np.outer(p, p)
    T[range(L), range(L)] = np.diag(p)
    U = np.roll(T, 1, axis=0)  # mean of y^a x^b^T, where y^a = x^(a-1)
    overlap = np.swapaxes(A, -1, -2) @ A
    G, C = (np.tensordot(x, t, axes=2) / L for x, t in ((overlap, T), (A, U)))
    return G, C


def action(S: np.ndarray, model: CopyModel, P: float, chi: float) -> np.ndarray:
    """Population action F, shape (...), of the scores S, shape (..., a, b)."""
    G, C = correlations(attention(S, model), model)
    return free_energy(G, C, (S * S).sum(axis=(-2, -1)), model, P, chi)


def free_energy(
    G: np.ndarray, C: np.ndarray, s2: np.ndarray, model: CopyModel, P: float, chi: float
) -> np.ndarray:
    """F, shape (...), of G/P and C/P, shape (..., i, j), and |S|^2; complex input is allowed."""
    ridge = model.kappa / (model.g_w * P)
    W = mean_weights(G, C, ridge)
    data = P / (2 * model.kappa) * (1 - (W * C).sum(axis=(-2, -1)))
    log_det = np.log(np.linalg.det(np.eye(model.V) + G / ridge))
    return chi * (s2 / (2 * model.g_s) + data) + model.V / 2 * log_det


def mean_loss(S: np.ndarray, model: CopyModel, P: float) -> np.ndarray:
    """Test loss per position, shape (...), of the predictor with the mean W at the scores S."""
    G, C = correlations(attention(S, model), model)
    W = mean_weights(G, C, model.kappa / (model.g_w * P))
    return 1 - 2 * (W * C).sum(axis=(-2, -1)) + ((W @ G) * W).sum(axis=(-2, -1))


def mean_weights(G: np.ndarray, C: np.ndarray, ridge: float) -> np.ndarray:
    """W = C (G + ridge)^-1, shape (..., i, j), of the symmetric G and of C, same shapes."""
    M = G + ridge * np.eye(G.shape[-1])
    return np.swapaxes(np.linalg.solve(M, np.swapaxes(C, -1, -2)), -1, -2)


def token_matrices(model: CopyModel) -> tuple[np.ndarray, np.ndarray]:
    """Sigma = diag(p) - p p^T and p p^T, both shape (i, j)."""
    p = probabilities(model)
    return np.diag(p) - np.outer(p, p), np.outer(p, p)


def probabilities(model: CopyModel) -> np.ndarray:
    """Token probabilities p, shape (i,)."""
    return np.full(model.V, 1 / model.V) if model.tokens is None else np.array(model.tokens)


def small_cases() -> list[tuple[str, CopyModel, float, float]]:
    """Tiny systems (id, model, P, chi) from the prior's rule to the copy pattern's.

    Linear ones above their onset change the sign of A at least once in some 1000 sweeps.
    """
    four, three = (0.4, 0.3, 0.2, 0.1), (0.6, 0.3, 0.1)
    rows = (  # id, L, V, g_s, g_w, tokens, P, chi
        ("softmax2-prior", 2, 3, 1.0, 1.0, three, 0.001, 1),
        ("softmax2-mixed", 2, 2, 2.0, 1.0, None, 6, 3),
        ("softmax2-tokens", 2, 4, 2.0, 0.5, four, 20, 10),
        ("softmax2-copy", 2, 3, 2.0, 0.5, None, 200, 30),
        ("softmax3-prior", 3, 3, 1.0, 1.0, three, 0.001, 1),
        ("softmax3-broad", 3, 2, 2.0, 0.5, None, 12, 1.5),
        ("softmax3-mixed", 3, 3, 2.0, 0.5, None, 15, 5),
        ("softmax3-tokens", 3, 4, 2.0, 0.5, four, 30, 10),
        ("softmax3-copy", 3, 4, 2.0, 0.3, None, 40, 30),
        ("linear2-prior", 2, 2, 1.0, 1.0, None, 0.001, 1),
        ("linear2-onset", 2, 2, 1.0, 1.0, None, 6, 3),
        ("linear2-tokens", 2, 3, 2.0, 0.5, three, 8, 4),
        ("linear2-copy", 2, 2, 1.0, 1.0, None, 30, 1),
        ("linear3-prior", 3, 4, 2.0, 0.5, four, 0.001, 3),
        ("linear3-onset", 3, 2, 1.0, 1.0, None, 5, 10),
        ("linear3-above", 3, 3, 1.5, 0.7, None, 8, 5),
        ("linear3-tokens", 3, 4, 1.0, 1.0, four, 7, 10),
        ("linear3-cold", 3, 3, 1.0, 1.0, None, 4, 30),
    )
    return [
        (name, CopyModel(L, V, name.split("-")[0][:-1], 1.0, g_s, g_w, tokens), P, chi)
        for name, L, V, g_s, g_w, tokens, P, chi in rows
    ]


# --- exact averages --------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A weight exp(-F - bias_strength (m - bias_center)^2 / 2) over the scores.

    data_factor and count_factor multiply the data term and the log-determinant: other values
    than 1 make wrong actions, for controls that must fail.
    """

    model: CopyModel
    P: float
    chi: float
    bias_center: float = 0.0
    bias_strength: float = 0.0
    data_factor: float = 1.0
    count_factor: float = 1.0

    @property
    def reach(self) -> float:
        """A |S| beyond which the weight is negligible: data can gain chi P/(2 kappa) at most."""
        gain = max(self.data_factor, 0.0) * self.P / self.model.kappa
        return math.sqrt(self.model.g_s * (gain + 60 / self.chi))

    def terms(self, q: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, ...]:
        """f0, mm, mt, tt, each shape (...), with F = prior + f0 + mm m^2 + mt m tau + tt tau^2."""
        sigma, pp = token_matrices(self.model)
        G = q[..., None, None] * sigma + r[..., None, None] * pp
        one, ridge = np.eye(self.model.V), self.model.kappa / (self.model.g_w * self.P)
        inverse = np.linalg.inv(G + ridge * one)
        data = self.data_factor * self.chi * self.P / (2 * self.model.kappa)
        count = self.count_factor * self.model.V / 2
        mm, mt, tt = (
            -data * ((x @ inverse) * y).sum(axis=(-2, -1))
            for x, y in ((sigma, sigma), (2 * sigma, pp), (pp, pp))
        )
        return data + count * np.linalg.slogdet(one + G / ridge)[1], mm, mt, tt

    def bias(self, m: np.ndarray) -> np.ndarray:
        """The bias on the copy overlap m, same shape."""
        return self.bias_strength / 2 * (m - self.bias_center) ** 2


def averages(
    model: CopyModel,
    P: float,
    chi: float,
    bias_center: float = 0.0,
    bias_strength: float = 0.0,
    *,
    data_factor: float = 1.0,
    count_factor: float = 1.0,
) -> Averages:
    """Exact averages of a `Problem` with L = 2 or 3.

    Keys: OBSERVABLES, "var_m", "ln_z" = ln of the weight's integral over the L^2 scores (F as in
    theory.md, no constant dropped) and "error", the `difference` between the last two
    resolutions; the finer one is returned, and its own error is many times smaller.
    """
    numbers = (P, chi, bias_center, bias_strength, data_factor, count_factor)
    return dict(_averages(Problem(model, *map(float, numbers))))


@cache
def _averages(problem: Problem) -> Averages:
    if problem.model.L not in (2, 3):
        raise ValueError(f"L is {problem.model.L}; the quadrature knows L = 2 and 3")
    softmax = problem.model.attention == "softmax"
    route, box = (_softmax, _softmax_box(problem)) if softmax else (_linear, _linear_box(problem))
    fine, box = route(problem, box, SIZES[softmax, problem.model.L][0])
    for n in SIZES[softmax, problem.model.L][1:]:
        coarse = fine
        fine, box = route(problem, box, n)
        if (error := difference(coarse, fine)) < TOLERANCE:
            break
    return {**fine, "error": error}


def difference(one: Averages, other: Averages) -> float:
    """Largest relative difference of two sets of averages (m, tau: to their rms; ln_z: plain)."""
    scale = {name: abs(value) for name, value in other.items()}
    scale |= {"m": math.sqrt(other["m2"]), "tau": math.sqrt(other["tau2"]), "ln_z": 1.0}
    return max(abs(one[k] - other[k]) / scale[k] for k in other if k in one and k != "error")


class WeightedSums:
    """Sums of the observables over chunks of points, safe from overflow."""

    def __init__(self) -> None:
        self.shift = -math.inf
        self.total = np.zeros(1 + len(OBSERVABLES))

    def add(self, ln_w: np.ndarray, m: Any, q: Any, tau: Any, r: Any, s2: Any) -> None:
        """Add points of weight exp(ln_w); the other arrays broadcast to its shape."""
        shift = max(self.shift, float(ln_w.max()))
        w = np.exp(ln_w - shift)
        columns = (m, q, tau, r, s2, m * m, tau * tau, abs(tau))
        self.total *= math.exp(self.shift - shift)
        self.total += [w.sum(), *(np.vdot(w, np.broadcast_to(c, w.shape)) for c in columns)]
        self.shift = shift

    def averages(self, ln_volume: float) -> Averages:
        """The averages; ln_volume belongs to the volume element that the weights left out."""
        out = dict(zip(OBSERVABLES, (self.total[1:] / self.total[0]).tolist(), strict=True))
        out["var_m"] = out["m2"] - out["m"] ** 2
        out["ln_z"] = self.shift + math.log(self.total[0]) + ln_volume
        return out


def _kept(x: np.ndarray, ln_marginal: np.ndarray, bounds: list[float]) -> list[float]:
    """Bounds within which the nodes x carry weight, linearly interpolated."""
    cut = ln_marginal.max() + math.log(NEGLIGIBLE)
    keep = np.flatnonzero(ln_marginal > cut)
    height = np.maximum(ln_marginal, cut - 10)  # a steep fall must not draw the bound too near
    low, high = bounds
    if (i := keep[0]) > 0:
        low = float(np.interp(cut, height[i - 1 : i + 1], x[i - 1 : i + 1]))
    if (i := keep[-1]) < len(x) - 1:
        high = float(np.interp(cut, height[i : i + 2][::-1], x[i : i + 2][::-1]))
    return [low, high]


# --- softmax: F sees a row only through (m_a, q_a), and its mean score is Gaussian -----------
# In an orthonormal basis of a row's scores, copied position first, x is the coordinate along
# (L - 1, -1, ...) and, for L = 3, y the one along (0, 1, -1); (m_a, q_a) is even in y, so y > 0
# suffices. The midpoint rule converges exponentially: the weight vanishes at the bounds.


ORDERS = {2: np.log([1, 2]), 3: np.log([1, 3, 6])}  # by how many of the L rows differ


def _softmax_box(problem: Problem) -> list[float]:
    return [-problem.reach, problem.reach, problem.reach]


def _softmax(problem: Problem, box: list[float], n: int) -> tuple[Averages, list[float]]:
    """Averages over the L - 1 score differences of all rows, and the box that carries weight."""
    L, variance = problem.model.L, problem.model.g_s / problem.chi
    x, y, ln_cell = _row_nodes(L, box, n)
    m, q, s2 = _row_sums(x[:, None], y, L)
    rest = np.stack(np.triu_indices(len(m))) if L == 3 else np.arange(len(m))[None]
    rest = rest[:, s2[rest].sum(axis=0) < problem.reach**2]
    m_rest, q_rest, s2_rest = (c[rest].sum(axis=0) for c in (m, q, s2))
    distinct = (rest[0] != rest[-1]).astype(int)
    table = _Table(problem)
    sums, largest = WeightedSums(), np.full(len(m), -np.inf)
    # Rows are exchangeable: every multiset of nodes once, times its number of orders.
    for a in np.unique(rest[0]):
        some = slice(np.searchsorted(rest[0], a), None)
        m_all, q_all = (m[a] + m_rest[some]) / L, (q[a] + q_rest[some]) / L
        s2_all = s2[a] + s2_rest[some]
        ln_w = -table(m_all, q_all) - s2_all / (2 * variance) - problem.bias(m_all)
        ln_w += ORDERS[L][distinct[some] + (rest[0, some] != a)]
        largest[a] = max(largest[a], ln_w.max())
        for nodes in rest[:, some]:
            np.maximum.at(largest, nodes, ln_w)
        sums.add(ln_w, m_all, q_all, np.ones(1), 1.0, s2_all + L * variance)
    ln_volume = L * (ln_cell + math.log(2 * math.pi * variance) / 2)
    grid = largest.reshape(len(x), len(y))
    box_x = _kept(x, grid.max(axis=1), box[:2])
    box_y = _kept(y, grid.max(axis=0), [0.0, box[2]])
    return sums.averages(ln_volume), [*box_x, box_y[1]]


class _Table:
    """F without the prior, f0 + f1 m + f2 m^2 at tau = r = 1, as cubic splines in q."""

    def __init__(self, problem: Problem) -> None:
        self.q = np.linspace(1 / problem.model.L, 1, 1501)
        f0, mm, mt, tt = problem.terms(self.q, np.ones_like(self.q))
        self.cubics = [list(CubicSpline(self.q, f).c) for f in (f0 + tt, mt, mm)]

    def __call__(self, m: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Value, shape (n,); scipy's own lookup does not know that the knots are equidistant."""
        step = self.q[1] - self.q[0]
        i = np.clip(((q - self.q[0]) / step).astype(int), 0, len(self.q) - 2)
        d = q - self.q[i]
        f0, f1, f2 = (((c[0][i] * d + c[1][i]) * d + c[2][i]) * d + c[3][i] for c in self.cubics)
        return f0 + m * (f1 + m * f2)


def _row_nodes(L: int, box: list[float], n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Nodes of x and of y > 0, and ln of the volume of a cell."""
    hx, hy = (box[1] - box[0]) / n, box[2] / (n // 2)
    x = box[0] + hx * (np.arange(n) + 0.5)
    if L == 2:
        return x, np.zeros(1), math.log(hx)
    return x, hy * (np.arange(n // 2) + 0.5), math.log(2 * hx * hy)


def _row_sums(x: np.ndarray, y: np.ndarray, L: int) -> tuple[np.ndarray, ...]:
    """A_{a,a-1}, sum_b A_ab^2 and the squared zero-mean scores of every node, shape (n,)."""
    copied = x * math.sqrt((L - 1) / L)
    others = [-copied / (L - 1) + sign * y / math.sqrt(2) for sign in (1, -1)[: L - 1]]
    E = np.exp(np.stack(np.broadcast_arrays(copied, *others)))
    A = (E / E.sum(axis=0)).reshape(L, -1)
    return A[0], (A * A).sum(axis=0), (x * x + y * y).ravel()


# --- linear: rotations that leave F alone ----------------------------------------------------
# The scores split into the L constant rows (coordinates t_a/sqrt(L): radius R, R^2 = r) and their
# d = L^2 - L dimensional complement (radius B, R^2 + B^2 = L q). In the first, tau = R cos(phi) is
# the component along 11^T/L; in the second, B cos(psi) is the one along Pi - 11^T/L, whose norm is
# sqrt(L - 1): m = (tau + sqrt(L - 1) B cos(psi))/L. All other directions drop out, which leaves
# the volume R^(L-1) sin(phi)^(L-2) B^(d-1) sin(psi)^(d-2) and the surfaces of two spheres.


def _linear_box(problem: Problem) -> list[float]:
    return [0.0, math.pi / 2, 0.0, problem.reach, 0.0, problem.reach, 0.0, math.pi / 2]


def _linear(problem: Problem, box: list[float], n: int) -> tuple[Averages, list[float]]:
    """Averages over two radii and two angles, axes (phi, R, B, psi), and the box that counts."""
    L, d = problem.model.L, problem.model.L * (problem.model.L - 1)
    phi, R, B, psi = nodes = [_gauss(box[i], box[i + 1], n, i // 2) for i in range(0, 8, 2)]
    r, s2 = R.x**2, R.x**2 + B.x**2
    f0, mm, mt, tt = problem.terms(s2 / L, r)
    base = sum(axis.ln_w for axis in nodes) - f0 - problem.chi * s2 / (2 * problem.model.g_s)
    base = base + (L - 1) * np.log(R.x) + (L - 2) * np.log(np.sin(phi.x))
    base = base + (d - 1) * np.log(B.x) + (d - 2) * np.log(np.sin(psi.x))
    sums, largest = WeightedSums(), np.full_like(base, -np.inf)
    # Angles beyond pi/2 are mirror images; |tau| has its kink at the mirror.
    for sign_phi, sign_psi in itertools.product((1, -1), (1, -1)):
        tau = sign_phi * R.x * np.cos(phi.x)
        m = (tau + sign_psi * math.sqrt(L - 1) * B.x * np.cos(psi.x)) / L
        ln_w = base - m * (mm * m + mt * tau) - tt * tau**2 - problem.bias(m)
        largest = np.maximum(largest, ln_w)
        sums.add(ln_w, m, s2 / L, tau, r, s2)
    kept = []
    for axis, node in enumerate(nodes):
        others = tuple(k for k in range(4) if k != axis)
        kept += _kept(node.x.ravel(), largest.max(axis=others), box[2 * axis : 2 * axis + 2])
    return sums.averages(_ln_sphere(L - 1) + _ln_sphere(d - 1)), kept


class _Nodes(NamedTuple):
    """Nodes and ln of their weights, shaped to vary along one of four axes."""

    x: np.ndarray
    ln_w: np.ndarray


def _gauss(low: float, high: float, n: int, axis: int) -> _Nodes:
    """Gauss-Legendre nodes between two bounds."""
    x, w = np.polynomial.legendre.leggauss(n)
    shape = [n if k == axis else 1 for k in range(4)]
    half = (high - low) / 2
    return _Nodes((low + half * (x + 1)).reshape(shape), np.log(half * w).reshape(shape))


def _ln_sphere(dimension: int) -> float:
    """ln of the surface of the unit sphere in that many dimensions."""
    return math.log(2) + dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2)
