"""One row of softmax attention under the prior: its two sums, tilted, and the L-fold sum of them.

Given the Gaussian weight of the scores the L rows of a pattern are independent and alike, and
the action depends on them through the averages m and q of the rows' own (m_a, q_a) alone. So
the density p_L(m, q) of these averages holds all that the scores do (docs/theory.md, "Finite
chi, softmax"). A row depends on the difference d of its copied score and the mean of its
others, and on the others' deviations from their mean: d is integrated on a grid, the deviations
by a scrambled Sobol sequence. Axes: i nodes (d and deviations together), x, y cells of m, q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import fft, special

from mcattn.errors import ModelError
from mcattn.model import CopyModel

SAMPLES = 2**15  # of the deviations, gathered in cells of so many standard deviations
GATHER = 1 / 4
STEP = 1 / 4  # of the grid of d, in its standard deviations
REACH = 8.0  # standard deviations of d that the grid covers at least
CERTAIN = 9.0  # score gap, beyond that of m = 1/2, up to which the grid of d reaches
CELL = 0.6  # largest cell, in standard deviations of a row that is on or off for certain
SHORT, REFINE = 3, 4  # L up to which all of the above is so many times finer
WINDOW = 16.0  # width of a table in standard deviations of the sum
MOST = 4_000_000  # nodes of a row
FLOOR = 1e-11  # share of the largest cell below which rounding sets in


class Cumulants(NamedTuple):
    """K = ln E exp(h m_a + k q_a), its gradient, shape (2,), and its Hessian, shape (2, 2)."""

    K: float
    mean: np.ndarray
    covariance: np.ndarray


class Line(NamedTuple):
    """p_L(m, q) dq at one m: q, ln of its size and its sign, all of shape (y,); 0 if unknown."""

    m: float
    q: np.ndarray
    ln_p: np.ndarray
    sign: np.ndarray
    cumulants: Cumulants


@dataclass(frozen=True)
class Rows:
    """Weighted nodes of one row's (m_a, q_a): logarithms of the weights, shape (i,), sum 1."""

    L: int
    m: np.ndarray
    q: np.ndarray
    ln_w: np.ndarray

    def cumulants(self, h: float, k: float) -> Cumulants:
        """Generating function of one row at the tilt (h, k)."""
        return self._moments(h, k)[0]

    def _moments(self, h: float, k: float) -> tuple[Cumulants, np.ndarray]:
        """The cumulants, and the weights of the nodes times exp(h m + k q), sum 1."""
        w = self.ln_w + h * self.m + k * self.q
        top = float(w.max())
        w = np.exp(w - top)
        total = float(w.sum())
        w /= total
        mean = np.array([w @ self.m, w @ self.q])
        x, y = self.m - mean[0], self.q - mean[1]
        wx = w * x
        xy = wx @ y
        covariance = np.array([[wx @ x, xy], [xy, (w * y) @ y]])
        return Cumulants(top + math.log(total), mean, covariance), w

    def line(self, h: float, k: float) -> Line:
        """p_L at the mean m of the tilt (h, k), exact but for the nodes and the cells in q.

        The tilted nodes are shared out among four cells each; dividing the transform by that of
        the sharing undoes its smoothing, its L-th power adds up L rows, and the known K undoes
        the tilt, so that densities at different tilts need no matching.
        """
        cumulants, w = self._moments(h, k)
        K, (m_mean, q_mean), C = cumulants
        # Sheared until uncorrelated: m and q are so much alike that square cells would be coarse.
        shear = C[0, 1] / C[0, 0]
        m, v = self.m - m_mean, self.q - q_mean - shear * (self.m - m_mean)
        cell = CELL / 2 if self.L <= SHORT else CELL
        cell_m, cell_v = (cell * _width(w, y, m > 0) for y in (m, v))
        sizes, waves = [], []
        for y, cell in ((m, cell_m), (v, cell_v)):
            reach = WINDOW * math.sqrt(self.L * (w @ y**2))
            sizes.append(fft.next_fast_len(math.ceil(reach / cell)))
            waves.append(np.sinc(fft.fftfreq(sizes[-1])) ** 2)
        wave = fft.fft2(_shared(m / cell_m, v / cell_v, w, *sizes)) / np.outer(*waves)
        wave **= self.L
        # The sum over the waves of m is p_L at the mean m; 1 / cell makes it a density in m.
        p = fft.fftshift(fft.ifft(wave.mean(axis=0)).real) * self.L / cell_m
        q = q_mean + (np.arange(sizes[1]) - sizes[1] // 2) * cell_v / self.L
        # Short sequences have sharp edges in q, at which the division overshoots: signs must stay.
        p[(np.abs(p) < FLOOR * p.max()) | (q <= 0) | (q >= 1)] = 0
        with np.errstate(divide="ignore"):
            ln_p = np.log(np.abs(p)) + self.L * (K - h * m_mean - k * q)
        return Line(m_mean, q, ln_p, np.sign(p), cumulants)

    def gaussian(self, cumulants: Cumulants, h: float, k: float) -> float:
        """ln p_L at the mean of the tilt (h, k): saddle point and Gaussian correction."""
        K, mean, covariance = cumulants
        exponent = self.L * (K - h * mean[0] - k * mean[1])
        return exponent + math.log(self.L / (2 * math.pi)) - np.linalg.slogdet(covariance)[1] / 2


def sample(
    model: CopyModel, chi: float, seed: int, gather: float = GATHER, samples: int = SAMPLES
) -> Rows:
    """Nodes of one row; seeds differ in the scrambling of the Sobol sequence.

    samples : number of deviations, a power of two, gathered in cells of `gather` standard
    deviations.

    Raises
    ------
    ModelError : chi is so large that the grid would not fit in memory.
    """
    variance, others = model.g_s / chi, model.L - 1
    # The sum of two or three rows is hardly smoother than one: its nodes must be denser.
    refine = REFINE if model.L <= SHORT else 1
    z, square, weight = _deviations(others, variance, seed, gather / refine, samples)
    spread = math.sqrt(variance * model.L / others)
    low, high = -REACH * spread, max(REACH * spread, math.log(others) + CERTAIN)
    steps = 2 + math.ceil((high - low) * refine / (STEP * spread))
    if steps * len(z) > MOST:
        raise ModelError(
            f"chi = {chi:g} lets scores fluctuate so little that rows of L = {model.L} need "
            f"{steps * len(z):.1g} nodes, more than {MOST:.1g}: the landscape is the answer there"
        )
    d = np.linspace(low, high, steps)[:, None]
    copied = np.exp(d)
    total = copied + z
    ln_w = np.log(weight) - (d / spread) ** 2 / 2
    ln_w -= special.logsumexp(ln_w)
    q = (copied**2 + square) / total**2
    return Rows(model.L, (copied / total).ravel(), q.ravel(), ln_w.ravel())


def _deviations(
    others: int, variance: float, seed: int, gather: float, samples: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of e^x and e^2x over the other scores' deviations x from their mean, and weights.

    Samples whose sums are nearly equal are replaced by their mean.
    """
    if others == 1:
        return np.ones(1), np.ones(1), np.ones(1)
    sums = _sampled(others, variance, seed, samples)
    u, v = np.log(sums)
    v = v - np.polyfit(u, v, 1)[0] * u
    cells = np.stack([np.floor((y - y.mean()) / (gather * y.std())) for y in (u, v)], axis=1)
    _, cell, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    z, square = (np.bincount(cell.ravel(), y) / count for y in sums)
    return z, square, count / samples


@lru_cache(maxsize=1)
def _sampled(others: int, variance: float, seed: int, samples: int) -> np.ndarray:
    """The sums of `_deviations` for every sample, shape (2, samples)."""
    from scipy.stats import qmc  # takes most of a second to import

    x = special.ndtri(np.clip(qmc.Sobol(others, seed=seed).random(samples), 1e-12, 1 - 1e-12))
    x *= math.sqrt(variance)
    x -= x.mean(axis=1, keepdims=True)
    np.exp(x, out=x)
    return np.stack([x.sum(axis=1), (x * x).sum(axis=1)])


def _width(w: np.ndarray, y: np.ndarray, on: np.ndarray) -> float:
    """Standard deviation of y within the two groups `on` and not `on`, of total weight 1.

    A tilted row can be either on or off; sums of rows then have steps, as wide as the sum of
    the deviations within each state.
    """
    total = 0.0
    for group in (on, ~on):
        u, z = w[group], y[group]
        if u.sum() > 0:
            total += u @ (z - u @ z / u.sum()) ** 2
    return math.sqrt(total)


def _shared(x: np.ndarray, y: np.ndarray, w: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Weights w on a periodic grid, shape (x, y), each among the four cells around its place."""
    grid = np.zeros(rows * columns)
    i, j = np.floor(x).astype(int), np.floor(y).astype(int)
    f, g = x - i, y - j
    for right, along in ((0, 1 - f), (1, f)):
        for up, across in ((0, 1 - g), (1, g)):
            cell = ((i + right) % rows) * columns + (j + up) % columns
            grid += np.bincount(cell, w * along * across, rows * columns)
    return grid.reshape(rows, columns)
