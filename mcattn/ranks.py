"""Which process holds which replicas, and everything said between processes.

The only file that imports mpi4py. Without an MPI library one process holds all replicas.
Replicas are handed out in whole vector blocks, in order, so that gathering by rank order is
gathering by replica order.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from mcattn.errors import LaunchError, McattnError

T = TypeVar("T")
OPEN_MPI = "Open MPI's mpirun"


class Serial:
    """One process that holds everything: the same calls as `Mpi`, without MPI."""

    rank, size = 0, 1

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum over ranks of an integer array; every rank gets it."""
        return values

    def max(self, values: np.ndarray) -> np.ndarray:
        """Maximum over ranks of a float array; every rank gets it."""
        return values

    def gather(self, local: np.ndarray) -> np.ndarray | None:
        """Stack (r, ...) arrays of all ranks in replica order; None on ranks other than 0."""
        return local

    def gather_everywhere(self, local: np.ndarray) -> np.ndarray:
        """Stack (r, n) float arrays of all ranks in replica order; every rank gets it.

        Every rank must hold as many rows in each call.
        """
        return local

    def gather_lists(self, local: list[T]) -> list[T]:
        """All ranks' lists joined in rank order; empty on ranks other than 0."""
        return local

    def on_root(self, work: Callable[[], T]) -> T:
        """Do something on rank 0 alone; every rank gets the result, or the error."""
        return work()

    def abort(self, code: int) -> NoReturn:
        """End the whole job with an exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Mpi(Serial):
    """The ranks of MPI.COMM_WORLD."""

    def __init__(self, MPI: Any) -> None:
        self._MPI = MPI
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self._rows: list[int] = []  # of every rank in `gather_everywhere`

    def sum(self, values: np.ndarray) -> np.ndarray:
        out = np.empty_like(np.ascontiguousarray(values))
        self._world.Allreduce(np.ascontiguousarray(values), out, op=self._MPI.SUM)
        return out

    def max(self, values: np.ndarray) -> np.ndarray:
        out = np.empty_like(np.ascontiguousarray(values))
        self._world.Allreduce(np.ascontiguousarray(values), out, op=self._MPI.MAX)
        return out

    def gather(self, local: np.ndarray) -> np.ndarray | None:
        local = np.ascontiguousarray(local)
        counts = self._world.gather(local.shape[0])
        if self.rank:
            self._world.Gatherv(local, None)
            return None
        out = np.empty((sum(counts), *local.shape[1:]), dtype=local.dtype)
        row = int(np.prod(local.shape[1:]))
        self._world.Gatherv(local, (out, [n * row for n in counts]))
        return out

    def gather_everywhere(self, local: np.ndarray) -> np.ndarray:
        self._rows = self._rows or self._world.allgather(local.shape[0])
        out = np.empty((sum(self._rows), local.shape[1]))
        counts = [n * local.shape[1] for n in self._rows]
        self._world.Allgatherv(np.ascontiguousarray(local), (out, counts))
        return out

    def gather_lists(self, local: list[T]) -> list[T]:
        lists = self._world.gather(local) or []
        return [item for items in lists for item in items]

    def on_root(self, work: Callable[[], T]) -> T:
        done: tuple[T | None, McattnError | None] = (None, None)
        if self.rank == 0:
            try:
                done = (work(), None)
            except McattnError as err:
                done = (None, err)
        result, error = self._world.bcast(done)
        if error is not None:
            raise error
        return result

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)
        raise SystemExit(code)


def connect(environment: Mapping[str, str] = os.environ) -> tuple[Serial, str]:
    """Join the MPI job this process belongs to.

    Returns
    -------
    ranks : the other processes.
    note : one phrase about the MPI in use, for the log.

    Raises
    ------
    LaunchError : a launcher started several processes that do not see one another.
    """
    promised, launcher = expected_size(environment)
    try:
        with warnings.catch_warnings():
            # mpi4py warns of a foreign launcher and goes on; what follows refuses it.
            warnings.simplefilter("ignore", RuntimeWarning)
            MPI = _loaded()
    except (ImportError, RuntimeError) as err:
        if promised > 1:
            raise LaunchError(
                f"{launcher} started {promised} processes, but no MPI library could be loaded "
                f"({err}); install one, such as `pip install mcattn[mpich]`"
            ) from None
        return Serial(), "no MPI library found: one process"
    version = MPI.Get_library_version().strip("\0")
    library = " ".join(version.splitlines()[0].split())
    # Asked to start under a server that it cannot talk to, MPICH ends the process with rows of
    # its own internals; so the sentence has to come before.
    strangers = launcher == OPEN_MPI and version.startswith("MPICH") and "pmix" not in version
    if not strangers and not MPI.Is_initialized():
        MPI.Init_thread()
    size = 1 if strangers else MPI.COMM_WORLD.size
    if size < promised:
        remedy = (
            "tell srun how that library is started, such as --mpi=pmi2 (srun --mpi=list), or use "
            "the library's own mpiexec"
            if launcher == "srun"
            else "start the job with the launcher of that library, or point MPI4PY_LIBMPI to the "
            "launcher's own library"
        )
        raise LaunchError(
            f"{launcher} started {promised} processes, but the MPI library that mpi4py loaded "
            f"({library}) sees {size}; {remedy}"
        )
    if size == 1:
        return Serial(), f"one process ({library})"
    return Mpi(MPI), f"{size} ranks ({library})"


def _loaded() -> Any:
    """The module mpi4py.MPI, with the library loaded but not started."""
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    return MPI


def expected_size(environment: Mapping[str, str]) -> tuple[int, str]:
    """How many processes the launcher says it started, and which launcher it was.

    Each launcher leaves its own variable; under several of them the largest number counts,
    since one launcher may run inside the allocation of another.
    """
    counts = {
        "an MPICH-like mpiexec (PMI)": environment.get("PMI_SIZE"),
        OPEN_MPI: environment.get("OMPI_COMM_WORLD_SIZE"),
        "srun": environment.get("SLURM_STEP_NUM_TASKS") if "SLURM_STEP_ID" in environment else None,
    }
    sizes = {name: int(n) for name, n in counts.items() if n and n.isdigit()}
    if not sizes:
        return 1, "no launcher"
    launcher = max(sizes, key=lambda name: sizes[name])
    return sizes[launcher], launcher


def launcher_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The rank that the launcher gave this process, 0 if it gave none."""
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return 0


def share(replicas: int, block: int, rank: int, size: int) -> tuple[int, int]:
    """First replica and number of replicas of a rank: whole blocks, as even as they go.

    Raises
    ------
    LaunchError : there are more ranks than blocks.
    """
    blocks = -(-replicas // block)
    if size > blocks:
        raise LaunchError(
            f"{size} ranks for {replicas} replicas: replicas move in blocks of {block}, "
            f"so at most {blocks} ranks have work; use fewer ranks or more replicas"
        )
    first = rank * blocks // size * block
    last = (rank + 1) * blocks // size * block
    return first, min(last, replicas) - first


def abort_on_error(ranks: Serial, error: BaseException) -> NoReturn:
    """Say which rank failed and why, then end the job on all ranks."""
    users = isinstance(error, McattnError)
    text = f" {error}" if users else "\n" + "".join(traceback.format_exception(error))
    where = f"rank {ranks.rank} of {ranks.size}"
    print(f"mcattn: error on {where}:{text}", file=sys.stderr, flush=True)
    ranks.abort(2 if users else 1)
