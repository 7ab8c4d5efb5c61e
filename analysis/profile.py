"""The profile Phi(m) = -ln p(m) from weighted samples: its wells, the top between them.

Axes: n sample, in rising order of m; b draw; i bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from mcattn.analysis import mbar
from mcattn.analysis.mbar import Pool
from mcattn.analysis.resample import Draws
from mcattn.errors import TooFewSamplesError

BINS = 150
FILLED = 40  # samples in a bin, at least
REACH = 100.0  # effective samples that reweighting must leave
SMOOTH = 1.5  # bins; only to find the wells
DEPTH = 1.0  # kT from an extremum within which a polynomial is fitted to Phi
DEGREE, FEWEST = 3, 7  # of that polynomial; bins that it is fitted to
DIP = 0.2  # kT; shallower wells are not looked for
SIGNIFICANT = 3.0  # standard errors of a bin that a barrier must exceed


@dataclass(frozen=True)
class Profile:
    """Phi at the middles m of bins, with its error, shape (i,) each; inf where no sample is.

    n : effective samples behind it.
    """

    P: float
    chi: float
    m: np.ndarray
    phi: np.ndarray
    error: np.ndarray
    n: float


@dataclass(frozen=True)
class Bins:
    """Bins in m, halfway between equally wide and of equally many pooled samples.

    Narrow where windows are stiff, and not too wide in the tails.

    starts : first sample of every bin, shape (i,); edges, shape (i + 1,), in m.
    """

    starts: np.ndarray
    edges: np.ndarray

    @property
    def m(self) -> np.ndarray:
        return (self.edges[1:] + self.edges[:-1]) / 2

    def noise(self, weights: np.ndarray) -> np.ndarray:
        """Standard error of Phi, shape (i,), from the scatter of the weights, shape (n,)."""
        squares = np.add.reduceat(weights**2, self.starts)
        with np.errstate(invalid="ignore"):
            return np.sqrt(squares) / np.add.reduceat(weights, self.starts)

    def phi(self, weights: np.ndarray) -> np.ndarray:
        """Phi of samples with these weights, shape (..., n): shape (..., i)."""
        share = np.add.reduceat(weights, self.starts, axis=-1)
        share = share / share.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            return -np.log(share / np.diff(self.edges))


def bins(m: np.ndarray, count: int = BINS) -> Bins:
    """At most `count` bins of m, shape (n,), rising."""
    count = max(4, min(count, len(m) // FILLED))
    share = (np.arange(len(m)) / len(m) + (m - m[0]) / (m[-1] - m[0])) / 2
    starts = _spaced(np.searchsorted(share, np.arange(count) / count), len(m))
    inner = (m[starts[1:] - 1] + m[starts[1:]]) / 2
    return Bins(starts, np.concatenate([m[:1], inner, m[-1:]]))


def _spaced(starts: np.ndarray, end: int) -> np.ndarray:
    """Those of the starts that leave every bin FILLED samples."""
    kept = [0]
    for start in starts.tolist():
        if start - kept[-1] >= FILLED and end - start >= FILLED:
            kept.append(start)
    return np.array(kept)


@dataclass(frozen=True)
class Wells:
    """The two deepest-cut wells of a profile and the top between them, as numbers of bins."""

    low: int
    top: int
    high: int
    barrier: float  # of the shallower well, smoothed


def wells(phi: np.ndarray, noise: np.ndarray | None = None) -> Wells | None:
    """The pair of minima with the highest top between them; None if there is one minimum.

    noise : standard error of Phi in every bin, which the barrier has to exceed.
    """
    smooth = _smoothed(phi)
    rising = np.diff(smooth, prepend=np.inf, append=np.inf) > 0
    minima = np.flatnonzero(~rising[:-1] & rising[1:])
    best = None
    for a, low in enumerate(minima):
        for high in minima[a + 1 :]:
            top = int(low + smooth[low : high + 1].argmax())
            barrier = float(smooth[top] - max(smooth[low], smooth[high]))
            worst = 0.0 if noise is None else float(noise[[low, top, high]].max())
            if barrier > max(best.barrier if best else DIP, SIGNIFICANT * worst):
                best = Wells(int(low), top, int(high), barrier)
    return best


def _smoothed(phi: np.ndarray) -> np.ndarray:
    density = np.exp(phi.min() - phi)
    return -np.log(ndimage.gaussian_filter1d(density, SMOOTH, mode="nearest") + 1e-300)


@dataclass(frozen=True)
class Extremum:
    """A polynomial fit to Phi around a minimum (sign 1) or maximum (sign -1).

    fit : from Phi in the bins `span` to the polynomial on a fine grid, shape (grid, bins).
    """

    span: slice
    fit: np.ndarray
    sign: int

    def value(self, phi: np.ndarray) -> np.ndarray:
        """Extreme value of Phi, shape (...,), of profiles, shape (..., i)."""
        return self.sign * (self.sign * (phi[..., self.span] @ self.fit.T)).min(axis=-1)


def extremum(m: np.ndarray, phi: np.ndarray, at: int, sign: int) -> Extremum:
    """The fit around bin `at`, over the bins within DEPTH of it, to both sides without a gap."""
    smooth = _smoothed(phi)
    near = sign * (smooth - smooth[at]) < DEPTH
    first, last = at, at
    while first > 0 and (near[first - 1] or last - first < FEWEST // 2):
        first -= 1
    while last < len(phi) - 1 and (near[last + 1] or last - at < FEWEST // 2):
        last += 1
    x = (m[first : last + 1] - m[at]) / (m[last] - m[first])
    degree = min(DEGREE, last - first)
    grid = np.linspace(x[0], x[-1], 101)
    fit = np.vander(grid, degree + 1) @ np.linalg.pinv(np.vander(x, degree + 1))
    return Extremum(slice(first, last + 1), fit, sign)


def at(pool: Pool, draws: Draws, P: float, chi: float, count: int = BINS) -> Profile:
    """The profile without a bias at any P and chi within reach of the samples.

    Raises
    ------
    TooFewSamplesError : reweighting to there leaves fewer than 100 effective samples.
    """
    weights = pool.weights(P, chi)
    n = mbar.effective(weights)
    if n < REACH:
        raise TooFewSamplesError(
            f"P = {P:g}, chi = {chi:g} is beyond the reach of the samples: reweighting leaves "
            f"{n:.2g} of {len(weights)}, needed {REACH:g}; sample nearer to it"
        )
    into = bins(pool.u, count)
    drawn = np.concatenate([into.phi(draws.weights(weights, part)) for part in draws.chunks()])
    phi = into.phi(weights)
    with np.errstate(invalid="ignore"):
        error = draws.widened(drawn.std(axis=0, ddof=1))
    return Profile(P, chi, into.m, phi, error, n)
