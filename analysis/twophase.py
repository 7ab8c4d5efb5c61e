"""Two phases in pooled samples: where in P they coexist, and what is read off them there.

Everything is a function of the samples' weights, so that the whole and every resampled draw are
treated alike. Axes: n sample, in rising order of m; b draw; j point in P; i bin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mcattn import action
from mcattn.analysis import mbar, profile, resample
from mcattn.analysis.mbar import Pool
from mcattn.analysis.profile import Bins, Extremum, Wells
from mcattn.analysis.resample import Draws
from mcattn.analysis.series import NAN

SCAN = 20_000  # samples that suffice to look for two phases
STEPS = 60  # of the scan, to each side
POINTS = np.arange(-2, 3)  # in P round the transition, between which numbers are interpolated


@dataclass(frozen=True)
class Reader:
    """What is read off weighted samples: where the phases part, and fits at the extrema."""

    bins: Bins
    split: int  # first sample of the copy phase
    low: Extremum
    top: Extremum
    high: Extremum

    def read(self, m: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Shape (b, 6): ln of the weights' ratio, heights of wells and top, means of m."""
        parts = weights[:, : self.split], weights[:, self.split :]
        total = [part.sum(axis=1) for part in parts]
        mean = [
            part @ x / w
            for part, x, w in zip(parts, (m[: self.split], m[self.split :]), total, strict=True)
        ]
        phi = self.bins.phi(weights)
        heights = [e.value(phi) for e in (self.low, self.top, self.high)]
        return np.stack([np.log(total[1] / total[0]), *heights, *mean], axis=1)


def scan(pool: Pool, chi: float) -> tuple[tuple[float, Wells] | str, tuple[float, float]]:
    """P of about equal height and the wells there, or in words why there are none; the reach."""
    every = -(-len(pool.X) // SCAN)
    pool = replace(pool, X=pool.X[::every], ln_mixture=pool.ln_mixture[::every])
    into = profile.bins(pool.u, profile.BINS // 2)
    here = pool.states.chi == chi
    sampled = pool.states.P[here] if here.any() else pool.states.P
    step = 1 / _contrast(pool, chi, float(np.median(sampled)))
    beyond = step * np.arange(1, STEPS)
    inside = np.linspace(sampled.min(), sampled.max(), 1 + min(STEPS, int(np.ptp(sampled) / step)))
    seen: list[tuple[float, Wells | None, float]] = []
    for P in (*inside, *inside[-1] + beyond, *inside[0] - beyond):
        if P <= 0:
            break
        weights = pool.weights(P, chi)
        if mbar.effective(weights) * every < profile.REACH:
            continue
        phi = into.phi(weights)
        pair = profile.wells(phi, into.noise(weights))
        seen.append((P, pair, phi[pair.high] - phi[pair.low] if pair else NAN))
    if not seen:
        return f"chi = {chi:g} is beyond the reach of the samples.", (NAN, NAN)
    seen.sort(key=lambda item: item[0])
    reach = seen[0][0], seen[-1][0]
    two = [(P, pair, tilt) for P, pair, tilt in seen if pair]
    if not two:
        return "", reach
    for before, after in pairwise(two):
        if before[2] >= 0 > after[2]:
            P, pair, _ = min(before, after, key=lambda item: abs(item[2]))
            return (P, pair), reach
    side = "above" if two[-1][2] > 0 else "below"
    return (
        f"Two phases at chi = {chi:g}, not equally deep at any P within reach, {reach[0]:.5g} to "
        f"{reach[1]:.5g}: the transition lies {side}; sample there."
    ), reach


def reader_at(pool: Pool, chi: float, P: float) -> Reader | None:
    """How to read off the phases at a P where both show; None where they do not."""
    m = pool.u
    into = profile.bins(m)
    weights = pool.weights(P, chi)
    phi = into.phi(weights)
    pair = profile.wells(phi, into.noise(weights))
    if pair is None:
        return None
    fits = [
        profile.extremum(into.m, phi, at, sign)
        for at, sign in ((pair.low, 1), (pair.top, -1), (pair.high, 1))
    ]
    return Reader(into, int(into.starts[pair.top]), *fits)


def centre(pool: Pool, chi: float, P: float, reader: Reader) -> np.ndarray:
    """Points in P, shape (j,), round the two transition points."""
    step = 0.5 / _contrast(pool, chi, P)
    for _ in range(3):
        points = P + step * POINTS
        table = np.stack([read(pool, chi, x, reader) for x in points])
        x = _roots(np.stack([table[:, 0], table[:, 3] - table[:, 1]]))
        x = np.clip(np.nan_to_num(x), -4, 4)
        P = P + step * float(x.mean())
        slope = abs(table[-1, 0] - table[0, 0]) / (points[-1] - points[0])
        step = max(1 / slope, 0.6 * step * abs(float(x[1] - x[0])))
    return P + step * POINTS


def influence(pool: Pool, chi: float, P: float, reader: Reader) -> np.ndarray:
    """Influence of every sample on the ln of the weights' ratio, shape (n,)."""
    direct = pool.weights(P, chi)
    direct[: reader.split] /= -direct[: reader.split].sum()
    direct[reader.split :] /= direct[reader.split :].sum()
    return resample.influence(pool, direct, -(pool.shares @ direct))


def read(pool: Pool, chi: float, P: float, reader: Reader) -> np.ndarray:
    """What the reader reads at P from the whole, shape (6,)."""
    return reader.read(pool.u, pool.weights(P, chi)[None])[0]


def drawn(pool: Pool, draws: Draws, chi: float, P: np.ndarray, reader: Reader) -> np.ndarray:
    """What the reader reads at every P in every draw, shape (b, j, 6)."""
    middle = P[len(P) // 2]
    base = pool.weights(middle, chi)
    ratio = [np.exp(pool.ln_weights(x, chi) - pool.ln_weights(middle, chi)) for x in P]
    out = []
    for part in draws.chunks():
        weights = draws.weights(base, part)
        out.append(np.stack([reader.read(pool.u, weights * r) for r in ratio], axis=1))
    return np.concatenate(out)


def numbers(table: np.ndarray, P: np.ndarray) -> dict[str, np.ndarray]:
    """The numbers of VALUES, shape (b,) each, from tables, shape (b, j, 6)."""
    ratio, low, top, high, m_low, m_high = np.moveaxis(table, -1, 0)
    weight, height = _roots(ratio), _roots(high - low)
    step, middle = P[1] - P[0], P[len(P) // 2]
    minus, plus = _at(m_low, weight), _at(m_high, weight)
    return {
        "P_equal_weight": middle + step * weight,
        "P_equal_height": middle + step * height,
        "barrier": _at(top - (low + high) / 2, height),
        "m_minus": minus,
        "m_plus": plus,
        "dm": plus - minus,
    }


def weights_along(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Weight of the copy phase, shape (b, p), at x, shape (p,), in units of POINTS."""
    ratio = _coefficients(table[..., 0]) @ np.vander(x, len(POINTS), increasing=True).T
    return 1 / (1 + np.exp(-ratio))


def _contrast(pool: Pool, chi: float, P: float) -> float:
    """How differently the samples' actions change with P: the scale of the weights' ratio."""
    below, above = (action.population(pool.X, pool.model, P * x, chi) for x in (0.999, 1.001))
    low, high = np.quantile((above - below) / (0.002 * P), (0.05, 0.95))
    return float(high - low)


def _coefficients(values: np.ndarray) -> np.ndarray:
    """Of the polynomial in x = POINTS through values, shape (..., j), lowest order first."""
    inverse = np.linalg.inv(np.vander(POINTS, increasing=True).astype(float))
    return values @ inverse.T


def _roots(values: np.ndarray) -> np.ndarray:
    """x where the polynomial through values, shape (..., j), is zero; nan if not near."""
    c = _coefficients(values)
    x = -c[..., 0] / c[..., 1]
    for _ in range(20):
        powers = x[..., None] ** np.arange(len(POINTS))
        slope = (c[..., 1:] * np.arange(1, len(POINTS)) * powers[..., :-1]).sum(axis=-1)
        x = x - (c * powers).sum(axis=-1) / slope
    return np.where(np.abs(x) < 2 * POINTS[-1], x, NAN)


def _at(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The polynomial through values, shape (..., j), at x, shape (...,)."""
    return (_coefficients(values) * x[..., None] ** np.arange(len(POINTS))).sum(axis=-1)
