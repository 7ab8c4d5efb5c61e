"""Samples of states whose free energies and phases are known: harmonic ones, and two phases.

The two-phase toy lives on a line: m alone moves, with weight exp(-F(X(m)) - bias) dm, where X(m)
are the sums of equal rows; all answers are sums over a fine grid of m. Phi is then the landscape
itself: the toy has equal heights at the landscape's P*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from synthetic_runs import SOFTMAX, ar1, no_exchanges, run, softmax_sums, states

from mcattn import action, theory, windows
from mcattn.analysis import mbar
from mcattn.runfile import Run

GRID = np.linspace(0.01, 0.97, 20_001)


class Harmonic(mbar.States):
    """States u_k = strength_k (m - center_k)^2 / 2: -ln Z_k = ln(strength_k / 2 pi) / 2."""

    def potentials(self, X, model):
        return self.bias_strength[:, None] / 2 * (X[:, 0] - self.bias_center[:, None]) ** 2


def harmonic(rng, center, strength, rows, columns=4, a=0.0):
    """AR(1) samples of harmonic states, as arguments of mbar.solve, and the exact f."""
    center, strength = np.asarray(center, float), np.asarray(strength, float)
    count, zero = len(center), np.zeros(len(center))
    x = np.stack([ar1(a, rows, columns, rng) for _ in range(count)], axis=1)
    X = np.zeros((rows, count, columns, 5))
    X[..., 0] = center[:, None] + x / np.sqrt(strength)[:, None]
    row, state, column = np.indices(X.shape[:3])
    table = Harmonic(zero, zero, center, strength)
    arrays = (X.reshape(-1, 5), state.ravel(), row.ravel(), column.ravel())
    return (SOFTMAX, table, *arrays), np.log(strength / strength[0]) / 2


@dataclass(frozen=True)
class Toy:
    """Windows in m at one P and chi, on the line."""

    chi: float = 5.0
    P: float = 330.0

    def ln_p(self, P: float, bias=(0.0, 0.0)) -> np.ndarray:
        """ln p(m) on GRID up to a constant, with a bias (center, strength)."""
        F = action.population(softmax_sums(GRID), SOFTMAX, P, self.chi)
        return -F - bias[1] / 2 * (GRID - bias[0]) ** 2

    def wells(self, P: float) -> tuple[int, int, int]:
        """Grid points of the two maxima of p and of the minimum between them."""
        ln_p = self.ln_p(P)
        turns = np.flatnonzero(np.diff(np.sign(np.diff(ln_p)))) + 1
        low, top, high = turns
        return int(low), int(top), int(high)

    def answers(self) -> dict[str, float]:
        """The numbers of a Transition, exactly."""

        def ratio(P):
            top, p = self.wells(P)[1], np.exp(self.ln_p(P) - self.ln_p(P).max())
            return np.log(p[top:].sum() / p[:top].sum())

        def tilt(P):
            low, _, high = self.wells(P)
            return self.ln_p(P)[high] - self.ln_p(P)[low]

        P_star = theory.boundary(SOFTMAX, self.chi).P_star
        ends = 0.99 * P_star, 1.01 * P_star
        weight, height = brentq(ratio, *ends), brentq(tilt, *ends)
        low, top, _ = self.wells(height)
        p, split = np.exp(self.ln_p(weight) - self.ln_p(weight).max()), self.wells(weight)[1]
        minus, plus = (np.average(GRID[part], weights=p[part]) for part in _halves(split))
        return {
            "P_equal_weight": weight,
            "P_equal_height": height,
            "barrier": float(self.ln_p(height)[low] - self.ln_p(height)[top]),
            "m_minus": float(minus),
            "m_plus": float(plus),
            "dm": float(plus - minus),
        }

    def run(self, seed: int, rows=200, ladders=2, a=0.3, **changes) -> Run:
        """An umbrella run whose every window is an AR(1) series with the exact distribution."""
        rng = np.random.default_rng(seed)
        path = windows.place(SOFTMAX, self.chi, self.P, "m", (0.08, 0.62))
        center = np.interp(np.linspace(0, 100, path.count), np.arange(101), path.center)
        count, strength = len(center), path.strength
        m = np.empty((rows, ladders, count))
        for k in range(count):
            ln_p = self.ln_p(self.P, (center[k], strength))
            p = np.exp(ln_p - ln_p.max())
            cdf = np.cumsum(p) / p.sum()
            m[..., k] = np.interp(ndtr(ar1(a, rows, ladders, rng)), cdf, GRID)
        X = softmax_sums(m.reshape(rows, -1))
        table = states(np.full(count, self.P), *np.zeros((3, count), int))
        table |= {
            "chi": np.full(count, self.chi),
            "bias_center": center,
            "bias_strength": np.full(count, strength),
        }
        state = np.tile(np.tile(np.arange(count), ladders), (rows, 1))
        exchanges = no_exchanges(count) | {
            "low": np.arange(count - 1),
            "high": np.arange(1, count),
            **{
                name: np.full((ladders, count - 1), value, kind)
                for name, value, kind in (
                    ("attempted", 1000, int),
                    ("accepted", 500, int),
                    ("chance", 500, float),
                )
            },
            "place": np.linspace(0, 100, count),
        }
        whole = run(X, state, table, protocol="umbrella", switch=None, exchanges=exchanges)
        return replace(whole, **changes)


def _halves(split: int) -> tuple[slice, slice]:
    return slice(None, split), slice(split, None)
