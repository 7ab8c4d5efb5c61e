"""Where two phases have equal weight or equal height, from pooled samples, with errors.

All numbers come from one pool of samples by reweighting in P at fixed chi.
Axes: n sample, in rising order of m; b draw; j point in P; p point for the figure; i bin.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mcattn import theory
from mcattn.analysis import mbar, peak, profile, resample, series, twophase
from mcattn.analysis.mbar import Pool
from mcattn.analysis.peak import Peak
from mcattn.analysis.profile import Profile
from mcattn.analysis.resample import Draws
from mcattn.analysis.series import NAN, Estimate
from mcattn.model import CopyModel

CURVE = 41  # points in P for the figure
NAME = {"m": "m", "tau": "|tau|", "beta": "|beta|"}
VALUES = ("P_equal_weight", "P_equal_height", "barrier", "m_minus", "m_plus", "dm")


@dataclass(frozen=True)
class Transition:
    """The transition in P at one chi; for linear attention m stands for |tau| or |beta|.

    along : the order parameter u, one of `action.COORDINATES`.
    P_equal_weight : both phases, parted at the top between them, have probability 1/2.
    P_equal_height : the two maxima of p(m) are equally high.
    barrier : Phi at the top over Phi of the wells at P_equal_height, in kT.
    m_minus, m_plus, dm : mean m of the phases at P_equal_weight, and its jump.
    peak : where in P the order parameter fluctuates most; None if beyond reach.
    phases : 2, or 1 where p(m) has a single maximum at every P within reach; 0 if undecided.
    reach : lowest and highest P looked at.
    profiles : at P_equal_height and at P_equal_weight; of one phase at the peak.
    P, weight, weight_error : weight of the copy phase against P, shape (p,) each.
    overlap : of the states, shape (k, l); weakest : the pair at its weakest link, and its value.
    samples, stride, blocks : samples used, one row of `stride`; blocks of the bootstrap.
    """

    chi: float
    along: str
    phases: int
    verdict: str
    reach: tuple[float, float]
    P_equal_weight: Estimate | None
    P_equal_height: Estimate | None
    barrier: Estimate | None
    m_minus: Estimate | None
    m_plus: Estimate | None
    dm: Estimate | None
    peak: Peak | None
    split: float
    profiles: tuple[Profile, ...]
    P: np.ndarray
    weight: np.ndarray
    weight_error: np.ndarray
    overlap: np.ndarray
    weakest: tuple[int, int, float]
    samples: int
    stride: int
    blocks: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, without the curves of the figure."""
        left_out = ("profiles", "P", "weight", "weight_error", "overlap")
        names = [field.name for field in fields(self) if field.name not in left_out]
        return {name: series.plain(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Route:
    """One way to the transition point, for a table of all: its key, its name, its answer."""

    key: str
    name: str
    P: Estimate


def routes(found: Transition, model: CopyModel) -> tuple[Route, ...]:
    """The transition points from windows or tempering, and the landscape's beside them."""
    known = (
        ("P_equal_weight", "equal weight", found.P_equal_weight),
        ("P_equal_height", "equal height", found.P_equal_height),
    )
    out = [Route(key, name, P) for key, name, P in known if P is not None]
    jump = theory.boundary(model, found.chi)
    if jump is not None:
        name = "landscape, without score fluctuations"
        out.append(Route("P_landscape", name, series.exactly(jump.P_star)))
    return tuple(out)


def estimate(pool: Pool, chi: float | None = None, seed: int = 0) -> Transition:
    """The transition in P at chi, by default at the largest chi of the pooled states.

    Raises
    ------
    TooFewSamplesError, SamplingError : too few samples for errors; see `resample.draw`.
    """
    chi = float(pool.states.chi.max()) if chi is None else chi
    found, reach = twophase.scan(pool, chi)
    if isinstance(found, str):
        return _without(pool, chi, reach, found, seed)
    reader = twophase.reader_at(pool, chi, found[0])
    if reader is None:
        return _without(pool, chi, reach, "", seed)
    P = twophase.centre(pool, chi, found[0], reader)
    middle = float(P[len(P) // 2])
    reader = twophase.reader_at(pool, chi, middle) or reader
    draws = resample.draw(pool, twophase.influence(pool, chi, middle, reader), seed)
    whole = np.stack([twophase.read(pool, chi, x, reader) for x in P])
    table = twophase.drawn(pool, draws, chi, P, reader)
    best, drawn = twophase.numbers(whole[None], P), twophase.numbers(table, P)
    values: dict[str, Any] = {
        name: draws.estimate(float(best[name][0]), drawn[name]) for name in VALUES
    }
    barrier = values["barrier"]
    if not barrier.value > 2 * barrier.error:
        said = series.short(barrier.value, barrier.error)
        why = f"Undecided at chi = {chi:g}: a barrier of {said} kT, not beyond its error."
        return _without(pool, chi, reach, why, seed)
    x = np.linspace(twophase.POINTS[0], twophase.POINTS[-1], CURVE)
    weight = twophase.weights_along(table, x)
    return Transition(
        chi=chi,
        along=pool.states.along,
        phases=2,
        verdict=_verdict(chi, values),
        reach=reach,
        **values,
        peak=peak.estimate(pool, draws, chi, _most(pool, chi, reach) or middle),
        split=float(pool.u[reader.split]),
        profiles=tuple(
            profile.at(pool, draws, values[name].value, chi)
            for name in ("P_equal_height", "P_equal_weight")
        ),
        P=middle + x * (P[1] - P[0]),
        weight=twophase.weights_along(whole[None], x)[0],
        weight_error=draws.widened(weight.std(axis=0, ddof=1)),
        **_of_pool(pool),
        blocks=draws.counts.shape[1],
        warnings=_warnings(pool, draws),
    )


def _most(pool: Pool, chi: float, reach: tuple[float, float]) -> float | None:
    """P of the largest fluctuations; None if there is no peak within reach."""
    return peak.place(pool, chi, reach) if np.isfinite(reach[0]) else None


def _verdict(chi: float, values: dict[str, Estimate]) -> str:
    said = {name: series.short(value.value, value.error) for name, value in values.items()}
    return (
        f"Two phases at chi = {chi:g}: equal weight at P = {said['P_equal_weight']}, equal height "
        f"at P = {said['P_equal_height']}, barrier {said['barrier']} kT; m jumps from "
        f"{said['m_minus']} to {said['m_plus']}."
    )


def _without(pool: Pool, chi: float, reach: tuple[float, float], why: str, seed: int) -> Transition:
    """The answer where there is no transition to be told; `why`, or that there is one phase."""
    name = NAME[pool.states.along]
    one = (
        f"One phase at chi = {chi:g}: p({name}) has a single maximum at every P within reach, "
        f"{reach[0]:.5g} to {reach[1]:.5g}"
    )
    most, draws, top = _most(pool, chi, reach), None, None
    profiles: tuple[Profile, ...] = ()
    if most is not None:
        draws = resample.draw(pool, peak.influence(pool, chi, most), seed)
        top = peak.estimate(pool, draws, chi, most)
        profiles = (profile.at(pool, draws, most, chi),)
        said = [series.short(value.value, value.error) for value in (top.P, top.var)]
        one += f"; var {name} is largest at P = {said[0]}, {said[1]}"
    nothing: dict[str, Any] = dict.fromkeys(VALUES)
    return Transition(
        chi=chi,
        along=pool.states.along,
        phases=0 if why else 1,
        verdict=why or f"{one}.",
        reach=reach,
        **nothing,
        peak=top,
        split=NAN,
        profiles=profiles,
        P=np.empty(0),
        weight=np.empty(0),
        weight_error=np.empty(0),
        **_of_pool(pool),
        blocks=draws.counts.shape[1] if draws else 0,
        warnings=_warnings(pool, draws),
    )


def _of_pool(pool: Pool) -> dict[str, Any]:
    return {
        "overlap": pool.overlap,
        "weakest": mbar.weakest(pool.overlap),
        "samples": len(pool.X),
        "stride": pool.stride,
    }


def _warnings(pool: Pool, draws: Draws | None) -> tuple[str, ...]:
    found = []
    low, high, value = mbar.weakest(pool.overlap)
    if value < mbar.THIN:
        found.append(
            f"{pool.states.name(low)} and {pool.states.name(high)} overlap by {value:.2g} only: "
            f"below {mbar.THIN:g} errors are hard to trust; put a state between them"
        )
    if draws is not None and draws.short:
        rows = int(pool.row.max()) + 1
        found.append(
            f"too few samples: the blocks of the bootstrap are shorter than {resample.TAUS:g} "
            f"autocorrelation times ({draws.tau:.3g} of {rows} rows); errors are too small"
        )
    return tuple(found)
