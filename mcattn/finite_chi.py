"""Softmax attention at finite chi, its score fluctuations included, without a Markov chain.

The density p_L(m, q) of the row averages (`mcattn.rows`) is tabulated once along the path that
the action takes from the uniform to the copy phase; every P is then a sum over cells,

    exp(-Phi(m)) = int dq p_L(m, q) exp(-U(m, q)),

with U the action without its |S|^2. Source: docs/theory.md, "Finite chi, softmax".
Axes: j tilts along the path, c cells of all tables, n lines of cells of equal m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from mcattn import action
from mcattn.errors import ModelError
from mcattn.model import CopyModel
from mcattn.rows import Rows

SPACING = 1.0  # of the tilts, in standard deviations of m
DEPTH = 35.0  # the path ends where p is e^-DEPTH of its top, at every P within a factor RANGE
RANGE = 1.4
FIRST, LAST = 1e-3, 0.998  # of 1/L and of 1: m at which the path ends in any case
SUPPORT = 3.0  # how far a table counts, in spreads of m: the blend with its neighbours is smooth
NEWTON = 50
END = 4  # tables at each end that lack neighbours, and so the blend


@dataclass(frozen=True)
class Tilt:
    """A point of the path: fields h and k, the means m and q there, and what belongs to them.

    spread : standard deviation of m under p_L.
    ln_p : ln of exp(-Phi(m)) by the saddle point in h, k and q with its Gaussian correction.
    """

    h: float
    k: float
    m: float
    q: float
    spread: float
    ln_p: float


class Table:
    """p_L along the path, with the sums over its cells that any P near the path's P needs."""

    def __init__(self, nodes: Rows, model: CopyModel, P: float, chi: float, tilts: list[Tilt]):
        self.model, self.P, self.chi = model, P, chi
        centers = np.array([tilt.m for tilt in tilts])
        widths = SPACING * np.array([tilt.spread for tilt in tilts])
        blocks = [_block(nodes, tilt, j, centers, widths) for j, tilt in enumerate(tilts)]
        counts = np.concatenate([block[3] for block in blocks])
        self._m, self._q, self._ln_p = (
            np.concatenate([block[i] for block in blocks]) for i in range(3)
        )
        self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._lines = [block[4] for block in blocks]
        self._centers, self._widths = centers, widths

    def grid(self, points: int) -> np.ndarray:
        """Values of m along the path, so many from each table's to the next, but for the ends."""
        j = np.arange(len(self._centers))
        inner = np.linspace(END, j[-1] - END, points * (j[-1] - 2 * END) + 1)
        return np.interp(inner, j, self._centers)

    def ln_cells(self, P: float) -> np.ndarray:
        """ln of every cell's weight at P, shape (c,)."""
        return self._ln_p - energy(self.model, self._m, self._q, P, self.chi)

    def ln_z(self, P: float) -> float:
        """ln of int dm dq p_L exp(-U)."""
        cells = self.ln_cells(P)
        top = cells.max()
        return float(top + np.log(np.exp(cells - top).sum()))

    def averages(self, P: float, low: float = 0.0, high: float = 1.0) -> dict[str, float]:
        """ln of the weight, <m>, <q>, <loss>, var(m) of the patterns with low <= m < high."""
        cells = self.ln_cells(P)
        cells = np.where((self._m >= low) & (self._m < high), cells, -np.inf)
        top = cells.max()
        w = np.exp(cells - top)
        total = w.sum()
        loss = action.test_loss(_sums(self._m, self._q), self.model, P)
        m, q, mean_loss, square = (
            float(w @ x / total) for x in (self._m, self._q, loss, self._m**2)
        )
        return {
            "ln_weight": float(top + np.log(total)),
            "m": m,
            "q": q,
            "loss": mean_loss,
            "var_m": square - m * m,
        }

    def profile(self, P: float, m: np.ndarray) -> np.ndarray:
        """Phi(m) = -ln p(m) at P, shape of m; p is normalised over the whole table."""
        return self.ln_z(P) - self.ln_p(P, m)

    def ln_p(self, P: float, m: np.ndarray) -> np.ndarray:
        """ln of int dq p_L(m, q) exp(-U), shape of m; -inf beyond the table."""
        cells = self.ln_cells(P)
        top = np.maximum.reduceat(cells, self._starts)
        counts = np.diff([*self._starts, len(cells)])
        sums = np.add.reduceat(np.exp(cells - np.repeat(top, counts)), self._starts)
        lines = top + np.log(sums)
        ln_p, first = np.full(m.shape, -np.inf), 0
        for line_m, ln_width in self._lines:
            own = lines[first : first + len(line_m)] - ln_width
            first += len(line_m)
            inside = (m >= line_m[0]) & (m <= line_m[-1])
            if len(line_m) > 3 and inside.any():
                # A line holds its share of the blend already: that is smooth, as is the sum.
                ln_p[inside] = np.logaddexp(ln_p[inside], spline(line_m, own)(m[inside]))
        return ln_p


def spline(x: np.ndarray, y: np.ndarray) -> CubicSpline:
    return CubicSpline(x, y)


def energy(model: CopyModel, m: np.ndarray, q: np.ndarray, P: float, chi: float) -> np.ndarray:
    """U(m, q): the action of softmax rows without |S|^2, of the shape of m and q."""
    return action.population(_sums(m, q), model, P, chi)


def path(nodes: Rows, model: CopyModel, P: float, chi: float) -> list[Tilt]:
    """Tilts at rising m, from far below the uniform phase to far above the copy phase.

    At each m the field k is the one at which q is most probable, k = -(dU/dq) / L.

    Raises
    ------
    ModelError : the fields cannot be found: the action is too steep for double precision.
    """
    start = _tilt(nodes, model, P, chi, 1 / model.L, (0.0, 0.0))
    up, down = [start], [start]
    while up[-1].m < LAST and not _ended(up, model, P * RANGE, P, chi):
        up.append(_step(nodes, model, P, chi, up[-1], SPACING))
    while down[-1].m > FIRST / model.L and down[-1].ln_p > start.ln_p - DEPTH:
        down.append(_step(nodes, model, P, chi, down[-1], -SPACING))
    return [*down[:0:-1], *up]


def _ended(tilts: list[Tilt], model: CopyModel, P: float, at: float, chi: float) -> bool:
    """Whether the last of these tilts lies deep below the top, had the path been made at P."""
    m, q = (np.array([getattr(tilt, name) for tilt in tilts]) for name in "mq")
    change = energy(model, m, q, at, chi) - energy(model, m, q, P, chi)
    ln_p = np.array([tilt.ln_p for tilt in tilts]) + change
    return bool(ln_p[-1] < ln_p.max() - DEPTH and ln_p[-1] < ln_p[-2] and m[-1] > 0.5)


def _step(nodes: Rows, model: CopyModel, P: float, chi: float, last: Tilt, spreads: float) -> Tilt:
    """The tilt some standard deviations of m away from another."""
    m = last.m + spreads * last.spread
    if not 0 < m < 1:
        m = (last.m + (spreads > 0)) / 2
    return _tilt(nodes, model, P, chi, m, (last.h, last.k))


def _tilt(
    nodes: Rows, model: CopyModel, P: float, chi: float, m: float, guess: tuple[float, float]
) -> Tilt:
    """Solve K_h = m and k = -(dU/dq)/L by Newton's method, steps limited to a spread or two."""
    h, k = guess
    L = model.L
    for _ in range(NEWTON):
        K, (mean, q), C = nodes.cumulants(h, k)
        slope, curvature, mixed = _slopes(model, mean, q, P, chi)
        error = np.array([mean - m, k + slope / L])
        jacobian = np.array([
            [C[0, 0], C[0, 1]],
            [(mixed * C[0, 0] + curvature * C[0, 1]) / L,
             1 + (mixed * C[0, 1] + curvature * C[1, 1]) / L],
        ])  # fmt: skip
        step = np.linalg.solve(jacobian, error)
        scale = math.sqrt(max(step @ C @ step, 0.0))
        step /= max(1.0, scale / 1.5)
        h, k = h - step[0], k - step[1]
        if abs(error[0]) < 1e-9 + 1e-6 * math.sqrt(C[0, 0] / L) and scale < 1e-6:
            break
    else:
        raise ModelError(
            f"no saddle point at m = {m:.4g} for P = {P:.5g}, chi = {chi:g}: the action is too "
            "steep for this theory"
        )
    inverse = np.linalg.inv(C)
    ln_p = L * (K - h * mean - k * q) + math.log(L / (2 * math.pi))
    ln_p -= np.linalg.slogdet(C)[1] / 2
    ln_p += math.log(2 * math.pi / (L * inverse[1, 1] + curvature)) / 2
    ln_p -= float(energy(model, np.array(mean), np.array(q), P, chi))
    return Tilt(h, k, float(mean), float(q), math.sqrt(C[0, 0] / L), float(ln_p))


def _slopes(
    model: CopyModel, m: float, q: float, P: float, chi: float
) -> tuple[float, float, float]:
    """dU/dq, d2U/dq2 and d2U/dmdq."""
    step = 1e-5 * np.array([[0, 0], [0, q], [0, -q], [m, 0], [-m, 0]])
    x = np.array([m, q]) + step
    slope = chi * action.per_chi_gradient(_sums(x[:, 0], x[:, 1]), model, P, chi)[:, 1]
    return slope[0], (slope[1] - slope[2]) / (2e-5 * q), (slope[3] - slope[4]) / (2e-5 * m)


def _sums(m: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The five sums X of rows with these averages, |S|^2 = 0."""
    m, q = np.broadcast_arrays(m, q)
    one = np.ones(m.shape)
    return np.stack([m, q, one, one, 0 * one], axis=-1)


def _shares(m: np.ndarray, centers: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Share of every table in the blend at m, shape (n,): shape (j, n), sum 1 over j."""
    z = (m - centers[:, None]) / (SUPPORT * widths[:, None])
    w = np.maximum(1 - z**2, 0) ** 6
    return w / np.maximum(w.sum(axis=0), 1e-300)


def _block(nodes, tilt, j, centers, widths):
    """Cells of one table, line after line: m, q, ln of blend times p times area; lines."""
    density = nodes.convolved(tilt.h, tilt.k)
    share = _shares(density.m, centers, widths)[j]
    inside = (density.m > max(0, centers[0])) & (density.m < centers[-1]) & (share > 0)
    known = np.isfinite(density.ln_p) & inside[:, None] & (density.q > 0) & (density.q < 1)
    kept = known.any(axis=1)
    known = known[kept]
    m = np.broadcast_to(density.m[kept, None], known.shape)[known]
    ln_w = density.ln_p[kept] + math.log(density.area) + np.log(share[kept])[:, None]
    width = math.log(density.m[1] - density.m[0])
    return m, density.q[kept][known], ln_w[known], known.sum(axis=1), (density.m[kept], width)
