"""Samples of many states put together: free energies and reweighting by MBAR, from the stored sums.

Every reduced potential u_k = F(X; P_k, chi_k) + bias_k(m) is computed from the five sums X of a
row (theory.md, "Population action"), so that no sampler is needed and any P and chi near those of
the run can be asked for. The equations are solved by pymbar (Shirts and Chodera, J. Chem. Phys.
129, 124105, 2008). Axes: k states, n rows of all replicas together, u units of resampling.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.sparse.csgraph import minimum_spanning_tree

from mcattn import action
from mcattn.analysis import fixed, series
from mcattn.errors import RunFileError, TooFewSamplesError
from mcattn.model import CopyModel
from mcattn.runfile import Run

MOST = 36_000  # rows kept, and
MEMORY = 40_000_000  # reduced potentials: 320 MB of doubles
UNITS = 20  # stretches of time that are resampled
LONG = 4.0  # autocorrelation times that such a stretch should span
LEAST_OVERLAP, GOOD_OVERLAP = 1e-3, 0.03
LEAST_ROWS = 200
REACH = 100.0  # effective rows without which a reweighted state is out of reach
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Pool:
    """Rows of a run, thinned, with their reduced potentials in all of its states.

    X : sums, shape (n, 5); u : shape (k, n); state : shape (n,), in which state each was drawn;
    unit : shape (n,), the stretch of time it belongs to, 0 .. units - 1, of all replicas
    together, since they travel between the states. `stride` rows were thinned to one.
    """

    model: CopyModel
    P: np.ndarray
    chi: np.ndarray
    X: np.ndarray
    u: np.ndarray
    state: np.ndarray
    unit: np.ndarray
    units: int
    stride: int
    tau: float  # longest autocorrelation time in any state, in rows of the run
    unit_rows: int  # rows of the run in a unit


@dataclass(frozen=True)
class Fit:
    """Solved equations: free energies f, shape (k,), f[0] = 0, and what reweighting needs.

    ln_w : ln of each row's weight before the Boltzmann factor of the state asked for, shape (n,).
    """

    model: CopyModel
    X: np.ndarray
    f: np.ndarray
    ln_w: np.ndarray

    def ln_weights(self, P: float, chi: float) -> np.ndarray:
        """ln of the rows' weights in the unbiased state (P, chi), shape (n,), not normalised."""
        return self.ln_w - action.population(self.X, self.model, P, chi)

    def effective(self, P: float, chi: float) -> float:
        """Effective number of rows at (P, chi): (sum w)^2 / sum w^2."""
        ln_w = self.ln_weights(P, chi)
        return float(np.exp(2 * special.logsumexp(ln_w) - special.logsumexp(2 * ln_w)))


def pool(run: Run) -> Pool:
    """The rows of a run of any protocol whose states are visited more than once, thinned.

    Raises
    ------
    TooFewSamplesError : fewer than LEAST_ROWS rows in all, or a state without any.
    """
    rows, replicas = run.state.shape
    if rows * replicas < LEAST_ROWS or rows < UNITS:
        raise TooFewSamplesError(
            f"{run.path} has {rows} rows of {replicas} replicas; free energies need at least "
            f"{LEAST_ROWS} in all and {UNITS} of each"
        )
    table = run.states
    count = len(table["P"])
    most = max(UNITS, min(MOST, MEMORY // count) // replicas)
    stride = max(1, rows // most)
    kept = np.arange(stride - 1, rows, stride)
    state = run.state[kept].ravel().astype(int)
    missing = np.setdiff1d(np.arange(count), state)
    if missing.size:
        raise TooFewSamplesError(f"{run.path} has no rows in state {missing[0]} of {count} yet")
    X = run.X[kept].reshape(-1, 5)
    unit = np.repeat(np.minimum(kept * UNITS // rows, UNITS - 1), replicas)
    return Pool(
        model=run.model,
        P=table["P"],
        chi=table["chi"],
        X=X,
        u=potentials(X, run.model, table),
        state=state,
        unit=unit,
        units=UNITS,
        stride=stride,
        tau=_longest(run),
        unit_rows=rows // UNITS,
    )


def potentials(X: np.ndarray, model: CopyModel, states: dict[str, np.ndarray]) -> np.ndarray:
    """Reduced potentials u, shape (k, n), of the sums X, shape (n, 5), biases included."""
    u = np.empty((len(states["P"]), len(X)))
    names = ("P", "chi", "bias_center", "bias_strength")
    done: dict[tuple[float, float], np.ndarray] = {}
    for k, (P, chi, center, strength) in enumerate(zip(*(states[n] for n in names), strict=True)):
        if (P, chi) not in done:
            done[P, chi] = action.population(X, model, P, chi)
        u[k] = done[P, chi] + strength / 2 * (X[:, 0] - center) ** 2
    return u


def solve(data: Pool, rows: np.ndarray | None = None, guess: np.ndarray | None = None) -> Fit:
    """Solve the MBAR equations for all rows, or for these rows (with repetition).

    Raises
    ------
    RunFileError : the equations have no solution in reach of the solver.
    """
    logging.getLogger("pymbar").setLevel(logging.ERROR)  # it advertises JAX when imported
    import pymbar

    rows = np.arange(len(data.X)) if rows is None else rows
    counts = np.bincount(data.state[rows], minlength=len(data.u))
    u = np.ascontiguousarray(data.u[:, rows])
    try:
        solved = pymbar.MBAR(u, counts, initial_f_k=guess, relative_tolerance=TOLERANCE)
    except pymbar.utils.ParameterError as err:
        raise RunFileError(f"the free energies cannot be solved for: {err}") from None
    f = np.asarray(solved.f_k)
    with np.errstate(divide="ignore"):
        ln_counts = np.log(counts)
    ln_w = -special.logsumexp((f + ln_counts)[:, None] - u, axis=0)
    return Fit(data.model, data.X[rows], f, ln_w)


def overlap(data: Pool, fit: Fit) -> np.ndarray:
    """Overlap matrix, shape (k, k): the chance that a row of state i would be taken for j's."""
    counts = np.bincount(data.state, minlength=len(data.u))
    ln_p = fit.f[:, None] - data.u + fit.ln_w
    p = np.exp(ln_p)
    return (p @ p.T) * counts


def weakest(matrix: np.ndarray) -> tuple[int, int, float]:
    """The link that the states hang together by: its two states and their overlap.

    Of the strongest links that join all states (a spanning tree) it is the weakest.
    """
    mutual = np.minimum(matrix, matrix.T)
    tree = minimum_spanning_tree(-np.maximum(mutual, 1e-300)).tocoo()
    i = int(np.argmax(tree.data))
    return int(tree.row[i]), int(tree.col[i]), float(-tree.data[i])


def expect_connected(run: Run, matrix: np.ndarray) -> None:
    """Refuse states that do not hang together.

    Raises
    ------
    RunFileError : the weakest link is below LEAST_OVERLAP; it is named.
    """
    low, high, value = weakest(matrix)
    if value >= LEAST_OVERLAP:
        return
    raise RunFileError(
        f"{run.path}: states {low} ({_named(run, low)}) and {high} ({_named(run, high)}) overlap "
        f"by {value:.1g} only; free energies across them need at least {LEAST_OVERLAP:g}: put "
        "states between them"
    )


def _named(run: Run, k: int) -> str:
    table = run.states
    bias = f", bias at {table['bias_center'][k]:.3g}" if table["bias_strength"][k] > 0 else ""
    return f"P = {table['P'][k]:.4g}, chi = {table['chi'][k]:.3g}{bias}"


def resampled(data: Pool, seed: int, count: int) -> list[np.ndarray]:
    """Rows of `count` bootstrap samples: units drawn with replacement, whole."""
    rng = np.random.default_rng(seed)
    own = [np.flatnonzero(data.unit == unit) for unit in range(data.units)]
    draws = rng.integers(data.units, size=(count, data.units))
    return [np.concatenate([own[unit] for unit in draw]) for draw in draws]


def half_width(values: np.ndarray, units: int) -> np.ndarray:
    """68 % half-widths from bootstrap values, shape (b, ...), of so many units.

    Few units scatter too little by sqrt(1 - 1/u), and their scatter is itself uncertain: hence
    Student's factor.
    """
    factor = special.stdtrit(units - 1, special.ndtr(1.0)) * math.sqrt(units / (units - 1))
    return factor * values.std(axis=0, ddof=1)


def _longest(run: Run) -> float:
    """Longest autocorrelation time of m, q and |S|^2 in any state, in rows."""
    from mcattn.analysis import tempering

    ladders = run.exchanges["attempted"].shape[0]
    ordered = tempering.by_state(run, ladders)[0] if ladders else run
    times = []
    for k in np.unique(ordered.state[0]):
        X = ordered.X[:, ordered.state[0] == k]
        times += [series.autocorrelation_time(X[..., i]) for i in (0, 1, 4)]
    known = [time for time in times if math.isfinite(time)]
    return max(known, default=math.nan)


def expect_states(run: Run) -> None:
    """Refuse runs whose states cannot be put together: a hysteresis path is no equilibrium."""
    fixed.expect(run, run.protocol)
    if run.protocol == "hysteresis":
        raise RunFileError(
            f"{run.path} is a hysteresis run, whose branches are not in equilibrium with one "
            "another; free energies need an umbrella, tempering or fixed run"
        )
