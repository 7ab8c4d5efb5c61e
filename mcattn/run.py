"""One job from settings to a complete run file: restore or start, loop, commit, stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from mcattn import exact_sampler, exchange, extend, jobtext, schema, theory, training
from mcattn.errors import RunFileError
from mcattn.jobfile import Job, RunSettings
from mcattn.layout import Commit, Header
from mcattn.model import CopyModel
from mcattn.protocols import Plan
from mcattn.ranks import Serial, share
from mcattn.records import Block, Checkpoint, Tables
from mcattn.replicas import LANES, Replicas
from mcattn.sampler import Sampler
from mcattn.store import (
    Store,
    attributes_of,
    has_parts,
    parts_folder,
    remove_leftovers,
)

_BUFFER_BYTES = 256e6  # rows that wait on all ranks together; rank 0 has to hold them


@dataclass(frozen=True)
class Outcome:
    """How a run ended: sweeps done of those planned, and whether all were there before."""

    sweep: int
    planned: int
    nothing_done: bool = False

    @property
    def complete(self) -> bool:
        return self.sweep == self.planned


@dataclass
class Watch:
    """What a run asks and tells while it goes on.

    stop : whether this process was told to stop; checked after every block.
    progress : told the sweeps done and planned, on rank 0.
    say : told one sentence about the run before it begins, on rank 0.
    """

    stop: Callable[[], bool] = lambda: False
    progress: Callable[[int, int], None] = lambda done, planned: None
    say: Callable[[str], None] = lambda text: None


def start(job: Job, text: str, path: Path, ranks: Serial, watch: Watch) -> Outcome:
    """Begin a new run in `path`; a finished run of the same job is left as it is.

    Raises
    ------
    RunFileError : something else is in the way; the sentence says what to type.
    LaunchError : there are more ranks than blocks of replicas.
    """
    plan = job.plan()
    _shared(plan, ranks)
    path = _target(path)
    if ranks.on_root(lambda: _finished_already(path, text)):
        return Outcome(plan.total_sweeps, plan.total_sweeps, nothing_done=True)
    return _carry_out(job, text, None, path, ranks, watch)


def resume(path: Path, ranks: Serial, watch: Watch, more: int | None = None) -> Outcome:
    """Go on with the run in `path`, on any number of ranks, to its planned end.

    more : sweeps to add to the plan first; see mcattn.extend.
    """
    path = _target(path)
    attributes = ranks.on_root(lambda: attributes_of(path))
    held = text = str(attributes["job"])
    if more is not None:
        text = extend.longer(text, more, str(path))
    job = jobtext.parse_text(text, str(path))
    plan = job.plan()
    _shared(plan, ranks)
    if attributes["complete"] and more is None:
        ranks.on_root(lambda: remove_leftovers(path))
        return Outcome(plan.total_sweeps, plan.total_sweeps, nothing_done=True)
    ranks.on_root(lambda: _same_versions(path, attributes))
    return _carry_out(job, text, held, path, ranks, watch)


def _target(path: Path) -> Path:
    """The run's own file: a link to it must lead to the same parts and the same lock."""
    return path.resolve() if path.is_symlink() else path


def compile_kernels(model: CopyModel) -> None:
    """Compile the model's kernels, or load them from the cache, by a short run of a tiny one."""
    tiny = Replicas(replace(model, L=2), 0, 0, 1)
    tiny.start("uniform", np.ones(1))
    tiny.set_states(*np.ones((5, 1)))
    tiny.advance(1, every=1)
    tiny.sums()


def versions() -> dict[str, str]:
    """Versions of everything that decides a run's numbers."""
    from mcattn.kernels.jit import digest

    names = ("mcattn", "numpy", "numba", "llvmlite", "h5py")
    return {name: metadata.version(name) for name in names} | {"kernels": digest()}


def _finished_already(path: Path, text: str) -> bool:
    """Whether `path` holds this job's finished run; refuse anything else that is there."""
    if not path.parent.is_dir():
        raise RunFileError(f"{path.parent} is not a folder; create it or choose another output")
    if not path.exists():
        if has_parts(path):
            raise RunFileError(f"{parts_folder(path)} is in the way: parts of a run without {path}")
        return False
    attributes = attributes_of(path)
    if attributes["job"] != text:
        raise RunFileError(f"{path} holds another job; choose another output or remove it")
    if not attributes["complete"]:
        raise RunFileError(f"{path} holds this job unfinished; type: mcattn resume {path}")
    remove_leftovers(path)
    return True


def _same_versions(path: Path, attributes: dict[str, Any]) -> None:
    old, new = json.loads(attributes["versions"]), versions()
    if old["kernels"] != new["kernels"]:
        raise RunFileError(
            f"{path} was begun with other kernels (mcattn {old['mcattn']}); resume it with "
            "that version, or begin again"
        )


def _switch_thresholds(job: Job, plan: Plan) -> tuple[float, float] | None:
    """Where a replica counts as switched: a quarter of the jump at P* away from each phase.

    None where there are no two phases to tell apart: no jump, or a barrier below 1 kT.
    """
    chi = float(plan.states.chi.max())
    boundary = theory.boundary(job.model, chi)
    if boundary is None or chi * boundary.barrier < 1:
        return None
    jump = boundary.m_plus - boundary.m_minus
    return boundary.m_minus + jump / 4, boundary.m_plus - jump / 4


def _summary(job: Job, plan: Plan) -> str:
    """What the run will do and keep, in one line."""
    rows = sum(stage.rows for stage in plan.stages)
    patterns = sum(stage.keep_patterns for stage in plan.stages)
    megabytes = rows * plan.replicas * 44 / 1e6
    return (
        f"{plan.kind}, {plan.replicas} replicas, {len(plan.states)} states, "
        f"{plan.total_sweeps} sweeps each; keeps {rows} rows (up to {megabytes:.0f} MB) and "
        f"{patterns} chosen patterns, commits every {job.run.commit_seconds:g} s"
    )


def _header(job: Job, text: str, plan: Plan, switch: tuple[float, float] | None) -> Header:
    attributes = {
        "format": schema.FORMAT,
        "format_version": schema.FORMAT_VERSION,
        "job": text,
        "model": json.dumps(asdict(job.model)),
        "protocol": plan.kind,
        "seed": job.run.seed,
        "switch": switch or (np.nan, np.nan),
        "planned_sweeps": plan.total_sweeps,
        "bias_along": plan.along,
        "versions": json.dumps(versions()),
    }
    extra = schema.TRAINING if plan.recipe else schema.EXACT if plan.sets else ()
    set_of = plan.set_of() if plan.sets else None
    return Header(attributes, plan.states, plan.replicas, job.model.L, plan.ladder, extra, set_of)


def _carry_out(
    job: Job, text: str, held: str | None, path: Path, ranks: Serial, watch: Watch
) -> Outcome:
    """Sample what is left of the job; `held` is the job that `path` holds by now."""
    plan = job.plan()
    switch = _switch_thresholds(job, plan)
    stores: list[Store] = []  # filled on rank 0 only: a store holds a lock and cannot be sent

    def open_store() -> Checkpoint | None:
        stores.append(Store(path, _header(job, text, plan, switch), held))
        return stores[0].latest()

    # The other ranks find the kernels compiled.
    ranks.on_root(lambda: _compile(job.model, plan))
    sampler = _sampler(job, plan, ranks, switch)  # may refuse its data: before any file is made
    checkpoint = ranks.on_root(open_store)
    if ranks.rank == 0:
        watch.say(_summary(job, plan))
    if checkpoint is not None:
        sampler.restore(checkpoint)
    try:
        tail = _loop(sampler, job.run, stores, ranks, watch)
        if sampler.finished:
            ranks.on_root(lambda: stores[0].finish(tail))  # type: ignore[arg-type]
    finally:
        for store in stores:
            store.close()
    return Outcome(sampler.sweep, plan.total_sweeps)


def _compile(model: CopyModel, plan: Plan) -> None:
    """Compile what the plan needs, or load it from the cache; one process at a time compiles."""
    from mcattn.kernels.jit import first

    if plan.recipe:
        with first("training"):
            training.compile_kernels()
    elif plan.sets:
        with first("exact"):
            exact_sampler.compile_kernels()
    else:
        with first(f"{model.attention}-{'exchange' if plan.ladder else 'alone'}"):
            compile_kernels(model)
            if plan.ladder:
                exchange.compile_kernels(plan.ladder, model)


def _shared(plan: Plan, ranks: Serial) -> tuple[int, int]:
    """First replica and number of replicas of this rank; what knows data moves one by one."""
    block = 1 if plan.recipe or plan.sets else LANES
    return share(plan.replicas, block, ranks.rank, ranks.size)


def _sampler(job: Job, plan: Plan, ranks: Serial, switch: tuple[float, float] | None) -> Sampler:
    first, count = _shared(plan, ranks)
    if plan.recipe:
        return training.trainer(job, plan, ranks, first, count, switch)
    if plan.sets:
        return exact_sampler.exact_sampler(job, plan, ranks, first, count, switch)
    return Sampler(plan, job.model, job.run.seed, ranks, first, count, switch)


def _loop(
    sampler: Sampler, settings: RunSettings, stores: list[Store], ranks: Serial, watch: Watch
) -> Commit | None:
    """Blocks until the plan ends or a rank is told to stop; commits as they become due.

    All but the plan's last block is committed here. That block is returned, on rank 0.
    """
    blocks: list[Block] = []
    last = time.monotonic(), sampler.sweep
    stopped = False
    while not (sampler.finished or stopped):
        blocks.append(sampler.advance())
        if ranks.rank == 0:
            watch.progress(sampler.sweep, sampler.plan.total_sweeps)
        if sampler.finished:
            break
        wishes = np.array([watch.stop(), _due(sampler, settings, stores, blocks, last, ranks.size)])
        stop, commit = ranks.max(wishes.astype(float))
        stopped = bool(stop)
        if commit or stopped or sampler.at_last_block:
            gathered = _gather(sampler, blocks, ranks)
            ranks.on_root(lambda gathered=gathered: stores[0].append(gathered))  # type: ignore[misc]
            blocks, last = [], (time.monotonic(), sampler.sweep)
    return _gather(sampler, blocks, ranks) if sampler.finished else None


def _due(
    sampler: Sampler,
    settings: RunSettings,
    stores: list[Store],
    blocks: list[Block],
    last: tuple[float, int],
    size: int,
) -> bool:
    """Whether this rank, one of `size`, wants a commit; `last` is when and where the last was."""
    seconds, sweeps = time.monotonic() - last[0], sampler.sweep - last[1]
    return (
        any(store.pending or seconds > settings.commit_seconds for store in stores)
        or (settings.commit_sweeps is not None and sweeps >= settings.commit_sweeps)
        or sum(block.X.nbytes for block in blocks) > _BUFFER_BYTES / size
    )


def _gather(sampler: Sampler, blocks: list[Block], ranks: Serial) -> Commit | None:
    """Rows, patterns and state of all ranks, brought to rank 0; None elsewhere."""
    tables = sampler.tables
    rows = [len(block.sweep) for block in blocks]
    X = ranks.gather(np.concatenate([block.X for block in blocks]).swapaxes(0, 1))
    state = ranks.gather(
        np.stack([np.repeat(column, rows) for column in np.transpose([b.state for b in blocks])])
    )
    patterns = ranks.gather_lists([pattern for block in blocks for pattern in block.patterns])
    scores = ranks.gather(sampler.replicas.scores())
    words = ranks.gather(sampler.replicas.stream_words())
    memory = ranks.gather(sampler.replicas.memory())
    phase = ranks.gather(sampler.phase)
    switched = ranks.gather(sampler.switched)
    counts = ranks.sum(np.stack([tables.attempted, tables.accepted]))
    drift = ranks.max(tables.drift)
    if X is None:
        return None
    assert state is not None
    assert scores is not None
    assert words is not None
    assert memory is not None
    assert phase is not None
    assert switched is not None
    return Commit(
        sweep=np.concatenate([block.sweep for block in blocks]),
        state=state.T,
        X=X.swapaxes(0, 1),
        patterns=sorted(patterns, key=lambda p: (p.found_at, p.replica, p.sweep, p.reason)),
        checkpoint=Checkpoint(
            stage=sampler.stage,
            done=sampler.done,
            sweep=sampler.sweep,
            tables=Tables(tables.step, counts[0], counts[1], drift),
            exchanged=sampler.exchanged,
            phase=phase,
            switched=switched,
            scores=scores,
            words=words,
            memory=memory,
        ),
    )
