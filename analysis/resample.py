"""Errors of everything that comes from pooled samples: a bootstrap over blocks in time.

Replicas travel between the states, so that a block holds the rows of all states of one column
(an independent ladder) over a stretch of time longer than the autocorrelation time; blocks are
drawn anew with replacement. A draw enters as a count for each block, no sample is copied, and
its free energies are found by Newton's method from those of the whole.
Axes: k state, n sample, u block, b draw, t row, c column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcattn.analysis import mbar, series
from mcattn.analysis.mbar import Pool
from mcattn.analysis.series import TOO_SHORT, Estimate
from mcattn.errors import SamplingError, TooFewSamplesError

DRAWS = 200
MOST, LEAST = 40, 8  # blocks in all
TAUS = 10.0  # length of a block in autocorrelation times
_CHUNK = 2**23  # numbers that are worked on at a time
_CONVERGED, _STEPS = 1e-6, 60


@dataclass(frozen=True)
class Draws:
    """Resampled data: `counts` of every block, shape (b, u), and what they do to the states.

    blocks : block of every sample, shape (n,).
    ratio, change : N_k of every draw over that of the whole, and f_k less that of the whole,
        shape (k, b) each.
    tau : autocorrelation time, in rows used, of the quantity that decided the blocks.
    short : whether the blocks had to be shorter than wanted.
    """

    pool: Pool
    blocks: np.ndarray
    counts: np.ndarray
    ratio: np.ndarray
    change: np.ndarray
    tau: float
    short: bool

    def weights(self, weights: np.ndarray, draws: slice) -> np.ndarray:
        """Weights, shape (b, n), in some draws, of those in the whole, shape (n,)."""
        factors = self.ratio[:, draws] * np.exp(self.change[:, draws])
        mixture = factors.T @ self.pool.shares
        return self.counts[draws][:, self.blocks] * weights / mixture

    def free_energies(self) -> tuple[Estimate, ...]:
        """Free energies of the pooled states, less that of the first."""
        pairs = zip(self.pool.f[1:], self.change[1:], strict=True)
        return series.exactly(0.0), *(self.estimate(float(f), f + d) for f, d in pairs)

    def chunks(self) -> list[slice]:
        """Slices of the draws that are small enough to work on at once."""
        size = max(1, _CHUNK // len(self.blocks))
        return [slice(i, i + size) for i in range(0, len(self.counts), size)]

    def widened(self, spread: np.ndarray) -> np.ndarray:
        """Half-width of the 68 % interval, given the standard deviation of the draws."""
        units = self.counts.shape[1]
        return spread * np.sqrt(units / (units - 1)) * series.student(units - 1.0)

    def estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        """A value of the whole with the error that its draws, shape (b,), show.

        A draw without an answer (nan) makes the error unknown.
        """
        n = len(np.unique(self.pool.row)) * len(np.unique(self.pool.column)) / max(self.tau, 1.0)
        flag = TOO_SHORT if self.short else None
        return Estimate(value, float(self.widened(np.std(drawn, ddof=1))), self.tau, n, flag)


def draw(pool: Pool, influence: np.ndarray, seed: int = 0, draws: int = DRAWS) -> Draws:
    """Blocks for a quantity with this influence of every sample, shape (n,), and their draws.

    Raises
    ------
    TooFewSamplesError : not even two blocks.
    SamplingError : a draw left states without overlap.
    """
    blocks, tau, short = cut(pool, influence)
    units = int(blocks.max()) + 1
    if units < 2:
        raise TooFewSamplesError(
            f"too few samples for an error: {len(np.unique(pool.row))} rows of "
            f"{len(np.unique(pool.column))} ladder, autocorrelation time {tau:.3g} rows"
        )
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(units, np.full(units, 1 / units), size=draws).astype(float)
    return Draws(pool, blocks, counts, *_solved(pool, blocks, counts), tau, short)


def cut(pool: Pool, influence: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """Block of every sample, shape (n,), the autocorrelation time, and whether it is too long."""
    rows, columns = int(pool.row.max()) + 1, int(pool.column.max()) + 1
    summed = np.zeros((rows, columns))
    np.add.at(summed, (pool.row, pool.column), influence)
    tau = series.autocorrelation_time(summed)
    tau = rows / TAUS if np.isnan(tau) else max(tau, 1.0)
    wanted = int(rows // (TAUS * tau))
    most = max(1, MOST // columns)
    least = -(-LEAST // columns)
    each = min(max(wanted, least), most, rows)
    return pool.row * each // rows + each * pool.column, tau, each > max(wanted, 1)


def of_ends(pool: Pool) -> np.ndarray:
    """Influence of every sample, shape (n,), on the last state's free energy less the first's."""
    ends = np.zeros(len(pool.f))
    ends[-1], ends[0] = 1, -1
    return influence(pool, -(ends / pool.counts)[pool.state], ends)


def influence(pool: Pool, direct: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """What one more of each sample does to a quantity, shape (n,), through f as well.

    Parameters
    ----------
    direct : its effect at fixed f, shape (n,).
    slope : derivative of the quantity with respect to f, shape (k,).
    """
    weights = mbar.newton_step(mbar.hessian(pool.shares), slope)
    return direct + weights[pool.state] - weights @ pool.shares


def _solved(pool: Pool, blocks: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`ratio` and `change` of the draws, shape (k, b) each."""
    states, units = len(pool.f), counts.shape[1]
    own = np.zeros((states, units))
    np.add.at(own, (pool.state, blocks), 1)
    wanted = own @ counts.T
    if not wanted.all():
        raise SamplingError("too few samples: some blocks hold no sample of a state")
    ratio = wanted / pool.counts[:, None]
    curvature = mbar.hessian(pool.shares)
    change = np.zeros_like(wanted)
    size = max(1, _CHUNK // len(blocks))
    for first in range(0, len(counts), size):
        part = slice(first, first + size)
        weight = counts[part][:, blocks]
        for _ in range(_STEPS):
            factor = ratio[:, part] * np.exp(change[:, part])
            found = factor * (pool.shares @ (weight / (factor.T @ pool.shares)).T)
            gradient = wanted[:, part] - found
            if np.abs(gradient / wanted[:, part]).max() < _CONVERGED:
                break
            change[:, part] += mbar.newton_step(curvature, gradient)
        else:
            raise SamplingError("the resampled free energies did not converge: too few samples")
    return ratio, change
