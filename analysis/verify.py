"""One model by every way there is: theory, minima on data, Monte Carlo, SGLD and training.

Each way is compared with the one that it should agree with, at the same P, phase and data sets:

- minima of the data sets with the landscape's: what finite data change;
- training without temperature with the minima of the same data sets;
- Monte Carlo with theory at the same chi;
- SGLD with Monte Carlo at the same chi and on the same data sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcattn import continuation, data, phases, theory
from mcattn.analysis import differences, expected, reading, series
from mcattn.analysis.differences import QUANTITIES, Comparison, Minima, Turn
from mcattn.analysis.expected import Expected
from mcattn.analysis.reading import MONTE_CARLO, Method
from mcattn.continuation import Branches, Jump
from mcattn.data import Data
from mcattn.errors import RunFileError
from mcattn.model import CopyModel
from mcattn.problems import DataSet
from mcattn.runfile import Run

STARTS = 8  # of the search for the lowest minimum where there are no two branches
LINE_POINTS = 60


@dataclass(frozen=True)
class VerifyResult:
    """Everything about one model.

    P : where the minima were looked for.
    minima : of each data set; jumps : ends and crossing of its branches, for softmax.
    lines : theory by chi.
    """

    model: CopyModel
    methods: tuple[Method, ...]
    P: tuple[float, ...]
    minima: tuple[Minima, ...]
    jumps: tuple[Jump, ...]
    comparisons: tuple[Comparison, ...]
    turns: tuple[Turn, ...]
    lines: dict[float, Expected]
    theory: dict[str, float | None]
    versions: dict[str, str]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Comparisons and turns as plain values."""
        names = ("model", "comparisons", "turns", "theory", "versions", "warnings")
        ways = [{"name": m.name, "chi": m.chi, "reached": m.reached} for m in self.methods]
        return series.plain({name: getattr(self, name) for name in names} | {"methods": ways})


def analyze(runs: Sequence[Run]) -> list[VerifyResult]:
    """One result for each model among the runs.

    Raises
    ------
    RunFileError : a run of another kind, or runs of one model on different data sets.
    JobError : the file of a data set is gone or too short.
    """
    models = dict.fromkeys(run.model for run in runs)
    return [_one(model, [run for run in runs if run.model == model]) for model in models]


def _one(model: CopyModel, runs: Sequence[Run]) -> VerifyResult:
    methods = tuple(reading.read(run) for run in runs)
    for run, method in zip(runs, methods, strict=True):
        if method.data != methods[0].data:
            raise RunFileError(
                f"{run.path} has {_named(method.data)}, {runs[0].path} {_named(methods[0].data)}; "
                "expected the same data sets"
            )
    cold = [method for method in methods if not method.sampled]
    P = sorted({one.P for method in cold or methods for one in method.readings})
    most = math.ceil(P[-1])
    rows = continuation.rows(theory.boundary(model), most)
    tables = data.tables(model, methods[0].data, rows, most)
    minima, jumps = _minima(model, tables, P)
    known = theory.report(model)
    at = _all_P([one.P for method in methods for one in method.readings], known)
    chis = dict.fromkeys([math.inf, *(method.chi for method in methods)])
    lines = {chi: expected.expected(model, chi, at) for chi in chis}
    return VerifyResult(
        model=model,
        methods=methods,
        P=tuple(P),
        minima=minima,
        jumps=jumps,
        comparisons=tuple(
            _comparisons(QUANTITIES[model.attention], methods, minima, jumps, P, lines)
        ),
        turns=tuple(turn for m in cold if not m.scratch for turn in differences.turns(m, jumps)),
        lines=lines,
        theory=known,
        versions=runs[0].versions,
        warnings=tuple(_warnings(runs, methods)),
    )


def _all_P(P: Sequence[float], known: dict[str, float | None]) -> np.ndarray:
    """Those of the readings, and more for lines, the ends of branches and the onset among them."""
    low, high = min(P), max(P)
    ends = [known.get(name) for name in ("P_lo", "P_hi", "P_c")]
    inside = [x for x in ends if x is not None and low < x < high]
    return np.concatenate([P, np.linspace(low, high, LINE_POINTS), inside])


def _named(source: Data) -> str:
    if source.file:
        return f"the data of {source.file}"
    return f"{source.sets} data set(s) from seed {source.seed} on"


def _minima(
    model: CopyModel, tables: Sequence[np.ndarray], P: Sequence[float]
) -> tuple[tuple[Minima, ...], tuple[Jump, ...]]:
    """At chi = inf: both branches where softmax has two, else the lowest minimum."""
    if model.attention == "softmax" and theory.boundary(model) is not None:
        branches = [Branches(DataSet(model, table)) for table in tables]
        jumps = tuple(one.jump() for one in branches)
        rows = [one.table(P) for one in branches]
        minima = [
            {
                phases.UNIFORM: dict(zip(P, uniform, strict=True)),
                phases.COPY: dict(zip(P, copy, strict=True)),
            }
            for uniform, copy in rows
        ]
        return tuple(minima), jumps
    found = [continuation.lowest(DataSet(model, table), P, STARTS) for table in tables]
    return tuple({phases.UNIFORM: dict(zip(P, one, strict=True))} for one in found), ()


def _comparisons(
    names: Sequence[str],
    methods: Sequence[Method],
    minima: Sequence[Minima],
    jumps: Sequence[Jump],
    P: Sequence[float],
    lines: dict[float, Expected],
) -> list[Comparison]:
    found = [differences.minima_and_theory(names, P, minima, lines[math.inf].at(P), jumps)]
    found += [
        differences.trained_and_minima(method, names, minima, jumps)
        for method in methods
        if not method.sampled
    ]
    for chain in (method for method in methods if method.way == MONTE_CARLO):
        known = lines[chain.chi].at([one.P for one in chain.readings])
        found.append(differences.sampled_and_theory(chain, names, known))
        found += [
            differences.sampled_and_sampled(method, chain, names)
            for method in methods
            if method.sampled and method.way != chain.way and method.chi == chain.chi
        ]
    return found


def _warnings(runs: Sequence[Run], methods: Sequence[Method]) -> list[str]:
    found = [
        f"{run.path}: unfinished, {int(run.sweep[-1])} of {run.planned_sweeps} sweeps; the rows so "
        "far are used"
        for run in runs
        if not run.complete
    ]
    for method in methods:
        stray = [
            f"{one.P:g} ({share:.0%})"
            for one, share in zip(method.readings, method.reached, strict=True)
            if share < 1
        ]
        if stray:
            found.append(
                f"{method.name}: share of members that reach the lowest H of their data set, where "
                f"it is not all: {', '.join(stray)}"
            )
    return found
