"""Where the minima of a job's actions lie: of its population and of each of its data sets.

Softmax: both branches at every P of the job, their ends and their crossing. Without two branches,
and for linear attention: the lowest minimum that random starts find, and the share that find it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mcattn import continuation, data, theory
from mcattn.continuation import Branches
from mcattn.jobfile import Job
from mcattn.minima import Minimum, search
from mcattn.problems import DataSet, Population, Problem

_POINTS = ("P_lo", "P_star", "P_hi")
_SHOWN = ("m", "alpha", "beta", "loss", "spread")


def report(job: Job, chi: float | None = None, starts: int = 8) -> dict[str, Any]:
    """Minima of the population and, where the job has data sets, of each of them.

    Parameters
    ----------
    chi : inverse temperature; by default the job's largest.
    starts : random starts at each P where there are no two branches to follow.

    Returns
    -------
    `chi`, None if infinite, and `problems`; of each problem its `name`, `minima` (one dict for
    each P and branch) and, with two branches, `P_lo`, `P_star` and `P_hi`, None where the data end
    before. For data sets the ends lie halfway between whole numbers, the crossing is interpolated.

    Raises
    ------
    JobError : the job's file holds fewer sequences than its P.
    """
    states = job.plan().states
    chi, P = float(states.chi.max() if chi is None else chi), np.unique(states.P)
    boundary = theory.boundary(job.model, chi)
    problems: dict[str, Problem] = {"population": Population(job.model, chi)}
    if job.has_data:
        needed = math.ceil(P[-1])
        tables = data.tables(job.model, job.data, continuation.rows(boundary, needed), needed)
        named = zip(data.names(job.data), tables, strict=True)
        problems |= {name: DataSet(job.model, tokens, chi) for name, tokens in named}
    found = [
        {"name": name}
        | (_branches(problem, P) if boundary else _lowest(problem, P, starts, job.run.seed))
        for name, problem in problems.items()
    ]
    return {"chi": None if math.isinf(chi) else chi, "problems": found}


def show(result: dict[str, Any], console: Console) -> None:
    """Print the points of every problem, and the minima as a mean over data sets."""
    population, *sets = result["problems"]
    if "P_lo" in population:
        console.print(_points(population, sets))
    console.print(_minima(population, sets))
    if len(sets) > 1:
        console.print(f"In brackets: the scatter of {len(sets)} data sets, in the last digits.")


def _branches(problem: Problem, P: np.ndarray) -> dict[str, Any]:
    branches = Branches(problem)
    jump = branches.jump()
    points = {name: _number(getattr(jump, name)) for name in _POINTS}
    rows = zip(*branches.table(P.tolist()), strict=True)
    minima = [
        _entry(branch, one)
        for pair in rows
        for branch, one in zip(("uniform", "copy"), pair, strict=True)
        if one is not None
    ]
    return points | {"minima": minima}


def _lowest(problem: Problem, P: np.ndarray, starts: int, seed: int) -> dict[str, Any]:
    searches = [search(problem, x, starts, seed) for x in P.tolist()]
    return {"minima": [_entry("lowest", one.lowest) | {"share": one.share} for one in searches]}


def _entry(branch: str, one: Minimum) -> dict[str, Any]:
    names = ("P", "F_per_chi", *_SHOWN, "curvature")
    return {"branch": branch, "q": float(one.X[1])} | {name: getattr(one, name) for name in names}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _points(population: dict[str, Any], sets: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in _POINTS:
        table.add_column(name, justify="right")
    for row in (population, *sets):
        values = [row[name] for name in _POINTS]
        table.add_row(row["name"], *("beyond" if x is None else f"{x:.2f}" for x in values))
    if len(sets) > 1:
        columns = [[row[name] for row in sets if row[name] is not None] for name in _POINTS]
        table.add_row("data sets", *(_summary(column, 2) for column in columns))
    return table


def _minima(population: dict[str, Any], sets: list[dict[str, Any]]) -> Table:
    """The population's numbers and below them those over data sets, for each P and branch."""
    names = [*_SHOWN] + ["share"] * ("share" in population["minima"][0])
    table = Table(box=None, pad_edge=False)
    for name in ("P", "branch", "action", "sets", *names):
        left = name in ("branch", "action")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    groups: dict[tuple[float, str], list[list[dict[str, Any]]]] = {}
    for k, problems in enumerate(([population], sets)):
        for one in (one for problem in problems for one in problem["minima"]):
            groups.setdefault((one["P"], one["branch"]), [[], []])[k].append(one)
    order = ("uniform", "copy", "lowest")
    for P, branch in sorted(groups, key=lambda key: (key[0], order.index(key[1]))):
        for action, rows in zip(("population", "exact"), groups[P, branch], strict=True):
            if rows:
                count = f"{len(rows)}/{len(sets)}" if action == "exact" else ""
                columns = [_summary([row[name] for row in rows], 4) for name in names]
                table.add_row(f"{P:g}", branch, action, count, *columns)
    return table


def _summary(values: list[float], digits: int) -> str:
    """Mean, and in brackets the standard deviation in units of the last digit."""
    if not values:
        return "beyond"
    mean = f"{np.mean(values) + 0.0:.{digits}f}"
    return f"{mean}({np.std(values, ddof=1) * 10**digits:.0f})" if len(values) > 1 else mean
