"""Run records with known truth, as a finished or stopped job would have left them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
from scipy.signal import lfilter

from mcattn import landscape, protocols, schema
from mcattn.action import SUMS
from mcattn.model import CopyModel
from mcattn.runfile import Run

SOFTMAX = CopyModel()
LINEAR = CopyModel(L=32, V=4, attention="linear", kappa=1, g_s=1, g_w=0.1)
SWITCH = (0.2, 0.4)
LOW_M, HIGH_M = 0.08, 0.6
GRID = np.arange(200.0, 501.0, 10.0)


def ar1(a: float, rows: int, replicas: int, rng: np.random.Generator) -> np.ndarray:
    """Stationary AR(1) series of variance 1, shape (t, r), with tau = (1 + a) / (1 - a)."""
    noise = rng.standard_normal((rows, replicas))
    noise[1:] *= np.sqrt(1 - a * a)
    return lfilter([1], [1, -a], noise, axis=0)


def softmax_sums(m: np.ndarray) -> np.ndarray:
    """The five sums, shape (..., 5), of equal rows with copy overlap m, shape (...)."""
    L = SOFTMAX.L
    return landscape.softmax_sums(np.log(m * (L - 1) / (1 - m)), L)


def linear_sums(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The five sums, shape (..., 5), of A = (alpha / L) 1 1^T + beta Pi."""
    L = LINEAR.L
    m, tau = alpha / L + beta, alpha + beta
    q = alpha**2 / L + 2 * alpha * beta / L + beta**2
    return np.stack([m, q, tau, tau**2, L * q], axis=-1)


def states(P: np.ndarray, branch: np.ndarray, loop: np.ndarray, sweeps: np.ndarray) -> dict:
    """State table, one array of shape (k,) for each name of the schema."""
    table = {field.name: np.zeros(len(P), field.dtype) for field in schema.STATES}
    table |= {"P": P.astype(float), "branch": branch, "loop": loop, "sweeps": sweeps}
    table["chi"] = np.full(len(P), 10.0)
    table["thermalize"] = sweeps // 4
    table["attempted"] = np.full(len(P), 1000)
    table["accepted"] = np.full(len(P), 450)
    return table


def no_exchanges(states: int) -> dict:
    """What a run without a ladder has in /exchanges."""
    lengths = {schema.STATE: states, schema.LADDER: 0, schema.PAIR: 0}
    shapes = {f.name: tuple(lengths[axis] for axis in f.axes) for f in schema.EXCHANGES}
    return {f.name: np.zeros(shapes[f.name], f.dtype) for f in schema.EXCHANGES}


def run(X: np.ndarray, state: np.ndarray, table: dict, **changes) -> Run:
    """A finished softmax hysteresis run with these sums, (t, r, 5), and states, (t, r)."""
    empty = {field.name: np.empty(0, field.dtype) for field in schema.PATTERNS}
    sweep = 10 * np.arange(1, len(X) + 1)
    fields = {
        "path": Path("run.h5"),
        "model": SOFTMAX,
        "protocol": "hysteresis",
        "seed": 1,
        "job": "",
        "switch": SWITCH,
        "planned_sweeps": 10 * len(X),
        "bias_along": "m",
        "complete": True,
        "versions": {"mcattn": "0.1.0"},
        "sweep": sweep,
        "state": state,
        "X": X,
        "states": table,
        "patterns": empty,
        "exchanges": no_exchanges(len(table["P"])),
    }
    return Run(**(fields | changes))


def path(grid: np.ndarray, sweeps: tuple[int, ...] = (400,)) -> dict:
    """States of an up-and-down path over the grid, once for each number of sweeps."""
    there = protocols.there_and_back(grid)
    count, loops = len(there), len(sweeps)
    return states(
        np.tile(there, loops),
        np.tile(protocols.branches(there), loops),
        np.repeat(np.arange(loops), count),
        np.repeat(np.asarray(sweeps), count),
    )


def switching_run(
    P_up: np.ndarray, P_down: np.ndarray, table: dict, rows: int, rng: np.random.Generator
) -> Run:
    """Replicas that are in the copy phase from P >= P_up on, and no more at P <= P_down.

    P_up, P_down : shape (loop, r). m is AR(1) noise around LOW_M or HIGH_M in `rows` rows a state.
    """
    loop, P = table["loop"], table["P"]
    up = table["branch"] >= 0
    in_copy = np.where(up[:, None], P[:, None] >= P_up[loop], P[:, None] > P_down[loop])
    state = np.repeat(np.arange(len(P)), rows)
    level = np.where(in_copy[state], HIGH_M, LOW_M)
    m = level * (1 + 0.05 * ar1(0.5, len(state), P_up.shape[1], rng))
    return run(softmax_sums(m), np.tile(state[:, None], P_up.shape[1]), table)


def known_run(replicas=32, sweeps=(400,), rows=12, seed=1) -> tuple[Run, np.ndarray, np.ndarray]:
    """A run with switches scattered around 420 on the way up and 290 down, and its truth."""
    rng = np.random.default_rng(seed)
    shape = (len(sweeps), replicas)
    P_up, P_down = rng.normal(420, 15, shape), rng.normal(290, 8, shape)
    return switching_run(P_up, P_down, path(GRID, sweeps), rows, rng), P_up, P_down


def one_way(grid: np.ndarray, branch: int) -> dict:
    """States of a path without return."""
    count = len(grid)
    return states(grid, np.full(count, branch), np.zeros(count, int), np.full(count, 100))


def linear_run(rng: np.random.Generator, rows=40, replicas=16) -> Run:
    """Known alpha and beta at every P, each row and replica with a sign of its own."""
    P = np.linspace(12, 40, 8)
    table = path(P)
    state = np.repeat(np.arange(16), rows)
    alpha = np.sqrt(table["P"][state] - 11)[:, None] + 0.1 * ar1(0.5, len(state), replicas, rng)
    beta = 0.02 * table["P"][state][:, None] + 0.02 * ar1(0.5, len(state), replicas, rng)
    X = linear_sums(alpha, beta)
    sign = rng.choice([-1.0, 1.0], alpha.shape)
    X[..., 0] *= sign
    X[..., 2] *= sign
    return run(X, np.tile(state[:, None], replicas), table, model=LINEAR, switch=None)


def fixed_run(rng: np.random.Generator, rows=300, replicas=10) -> Run:
    """Two states, around LOW_M and HIGH_M, each with replicas of its own."""
    table = states(np.array([250.0, 450.0]), np.zeros(2, int), np.zeros(2, int), np.full(2, rows))
    state = np.tile(np.repeat([0, 1], replicas), (rows, 1))
    level = np.where(state == 0, LOW_M, HIGH_M)
    m = level + 0.01 * ar1(0.6, rows, 2 * replicas, rng)
    return run(softmax_sums(m), state, table, protocol="fixed")


def write(data: Run, target: Path) -> Path:
    """A run file with the content of the record."""
    with h5py.File(target, "w") as f:
        f.attrs["format"], f.attrs["format_version"] = schema.FORMAT, schema.FORMAT_VERSION
        for name in ("job", "protocol", "seed", "planned_sweeps", "complete"):
            f.attrs[name] = getattr(data, name)
        f.attrs["model"] = json.dumps(data.model.to_dict())
        f.attrs["versions"] = json.dumps(data.versions)
        f.attrs["switch"] = data.switch or (np.nan, np.nan)
        for field in schema.STATES + schema.PATTERNS + schema.EXCHANGES:
            f[field.path] = getattr(data, field.group)[field.name]
        f["samples/sweep"], f["samples/state"] = data.sweep, data.state
        for i, name in enumerate(SUMS):
            f[f"samples/{name}"] = data.X[..., i]
    return target


def first_rows(whole: Run, rows: int) -> Run:
    """The run as it was when only so many rows had been taken."""
    cut = {name: getattr(whole, name)[:rows] for name in ("X", "state", "sweep")}
    kept = {name: value for name, value in vars(whole).items() if name not in cut}
    return Run(**(kept | cut | {"complete": False}))
