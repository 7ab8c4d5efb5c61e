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
from typing import NamedTuple

import numpy as np
from scipy import fft, special

from mcattn.model import CopyModel

SAMPLES = 2**15  # of the deviations, gathered in cells of so many standard deviations
GATHER = 1 / 4
STEP = 1 / 5  # of the grid of d, in its standard deviations
REACH = 8.0  # standard deviations of d that the grid covers at least
CERTAIN = 9.0  # score gap, beyond that of m = 1/2, up to which the grid of d reaches
CELL = (0.4, 0.1)  # largest cell, in standard deviations of one row and of the sum of all rows
WINDOW = 16.0  # width of a table in standard deviations of the sum
FLOOR = 1e-11  # share of the largest cell below which rounding sets in


class Cumulants(NamedTuple):
    """K = ln E exp(h m_a + k q_a), its gradient, shape (2,), and its Hessian, shape (2, 2)."""

    K: float
    mean: np.ndarray
    covariance: np.ndarray


class Density(NamedTuple):
    """ln p_L on lines of equal m: m of shape (x,), q and ln_p of shape (x, y); -inf if unknown."""

    m: np.ndarray
    q: np.ndarray
    ln_p: np.ndarray
    area: float  # of a cell


@dataclass(frozen=True)
class Rows:
    """Weighted nodes of one row's (m_a, q_a): logarithms of the weights, shape (i,), sum 1."""

    L: int
    m: np.ndarray
    q: np.ndarray
    ln_w: np.ndarray

    def _tilted(self, h: float, k: float) -> tuple[float, np.ndarray]:
        """K and the weights of the nodes times exp(h m + k q), sum 1."""
        w = self.ln_w + h * self.m + k * self.q
        top = w.max()
        w = np.exp(w - top)
        total = float(w.sum())
        return float(top) + math.log(total), w / total

    def cumulants(self, h: float, k: float) -> Cumulants:
        """Generating function of one row at the tilt (h, k)."""
        K, w = self._tilted(h, k)
        x = np.stack([self.m, self.q])
        mean = x @ w
        d = x - mean[:, None]
        return Cumulants(K, mean, (d * w) @ d.T)

    def convolved(self, h: float, k: float) -> Density:
        """p_L near its mean at the tilt (h, k), exact but for the cells and the nodes.

        The tilted nodes are shared out among four cells each; dividing the transform by that of
        the sharing undoes its smoothing, its L-th power adds up L rows, and the known
        K undoes the tilt, so that densities at different tilts need no matching.
        """
        K, w = self._tilted(h, k)
        m_mean, q_mean = w @ self.m, w @ self.q
        m, q = self.m - m_mean, self.q - q_mean
        # Sheared until uncorrelated: m and q are so much alike that square cells would be coarse.
        shear = (w @ (m * q)) / (w @ m**2)
        v = q - shear * m
        step = min(CELL[0], CELL[1] * math.sqrt(self.L))
        size = fft.next_fast_len(math.ceil(WINDOW * math.sqrt(self.L) / step))
        cell = [step * math.sqrt(w @ x**2) for x in (m, v)]
        wave = fft.fft2(_shared(m / cell[0], v / cell[1], w, size))
        smooth = np.sinc(fft.fftfreq(size)) ** 2
        wave = (wave / np.outer(smooth, smooth)) ** self.L
        area = cell[0] * cell[1] / self.L**2
        p = fft.fftshift(fft.ifft2(wave).real) / area
        steps = (np.arange(size) - size // 2) / self.L
        m = steps * cell[0]
        q = q_mean + shear * m[:, None] + steps * cell[1]
        m += m_mean
        with np.errstate(divide="ignore", invalid="ignore"):
            ln_p = np.where(p > FLOOR * p.max(), np.log(p), -np.inf)
        return Density(m, q, ln_p + self.L * (K - h * m[:, None] - k * q), area)

    def gaussian(self, h: float, k: float) -> float:
        """ln p_L at the mean of the tilt (h, k): saddle point and Gaussian correction."""
        K, mean, covariance = self.cumulants(h, k)
        exponent = self.L * (K - h * mean[0] - k * mean[1])
        return exponent + math.log(self.L / (2 * math.pi)) - np.linalg.slogdet(covariance)[1] / 2


def sample(model: CopyModel, chi: float, seed: int, gather: float = GATHER) -> Rows:
    """Nodes of one row; seeds differ in the scrambling of the Sobol sequence."""
    variance, others = model.g_s / chi, model.L - 1
    z, square, weight = _deviations(others, variance, seed, gather)
    spread = math.sqrt(variance * model.L / others)
    low, high = -REACH * spread, max(REACH * spread, math.log(others) + CERTAIN)
    d = np.linspace(low, high, 2 + math.ceil((high - low) / (STEP * spread)))[:, None]
    copied = np.exp(d)
    total = copied + z
    ln_w = np.log(weight) - (d / spread) ** 2 / 2
    ln_w -= special.logsumexp(ln_w)
    q = (copied**2 + square) / total**2
    return Rows(model.L, (copied / total).ravel(), q.ravel(), ln_w.ravel())


def _deviations(
    others: int, variance: float, seed: int, gather: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of e^x and e^2x over the other scores' deviations x from their mean, and weights.

    Samples whose sums are nearly equal are replaced by their mean.
    """
    if others == 1:
        return np.ones(1), np.ones(1), np.ones(1)
    from scipy.stats import qmc  # takes most of a second to import

    x = special.ndtri(np.clip(qmc.Sobol(others, seed=seed).random(SAMPLES), 1e-12, 1 - 1e-12))
    x *= math.sqrt(variance)
    x -= x.mean(axis=1, keepdims=True)
    sums = np.stack([np.exp(x).sum(axis=1), np.exp(2 * x).sum(axis=1)])
    u, v = np.log(sums)
    v = v - np.polyfit(u, v, 1)[0] * u
    cells = np.stack([np.floor((y - y.mean()) / (gather * y.std())) for y in (u, v)], axis=1)
    _, cell, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    z, square = (np.bincount(cell.ravel(), y) / count for y in sums)
    return z, square, count / SAMPLES


def _shared(x: np.ndarray, y: np.ndarray, w: np.ndarray, size: int) -> np.ndarray:
    """Weights w on a periodic grid, shape (x, y), each among the four cells around its place."""
    grid = np.zeros(size * size)
    i, j = np.floor(x).astype(int), np.floor(y).astype(int)
    f, g = x - i, y - j
    for right, along in ((0, 1 - f), (1, f)):
        for up, across in ((0, 1 - g), (1, g)):
            cell = ((i + right) % size) * size + (j + up) % size
            grid += np.bincount(cell, w * along * across, size * size)
    return grid.reshape(size, size)
