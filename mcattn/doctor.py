"""What this installation can do, and what is known to go wrong with it, each in one sentence."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py

from mcattn import lock, walltime
from mcattn.errors import LaunchError, RunFileError
from mcattn.model import CopyModel
from mcattn.ranks import Serial, connect, expected_size, launcher_rank

_PACKAGES = ("mcattn", "numpy", "numba", "scipy", "h5py", "mpi4py")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_PATIENCE = 60.0


@dataclass
class Report:
    """Facts by name, and sentences about what does not work (faults) or may hurt (warnings)."""

    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def examine(folder: Path, environment: Mapping[str, str] = os.environ) -> Report | None:
    """Look at everything from this process; the report on rank 0, None elsewhere."""
    report = Report()
    report.facts |= {"python": platform.python_version()} | _versions()
    ranks = _look_at_mpi(report, environment)
    if ranks is None:
        return report if launcher_rank(environment) == 0 else None
    here = (socket.gethostname(), sorted(os.sched_getaffinity(0)))
    places = ranks.gather_lists([here])
    if ranks.rank:
        return None
    report.facts["ranks seen"] = ranks.size
    _look_at_cores(report, places, environment)
    if ranks.size == 1:
        report.warnings += crossed_path(str(report.facts["MPI"]), environment)
    _look_at_files(report, folder)
    _look_at_kernels(report)
    left = walltime.granted(environment)
    if left is not None:
        report.facts["time left by the batch system"] = f"{left / 60:.0f} min"
    return report


def lines(report: Report) -> str:
    """The report for people."""
    width = max(map(len, report.facts))
    out = [f"{name:<{width}}  {value}" for name, value in report.facts.items()]
    out += [f"FAULT: {sentence}" for sentence in report.faults]
    out += [f"warning: {sentence}" for sentence in report.warnings]
    if not report.faults + report.warnings:
        out.append("Nothing is wrong.")
    return "\n".join(out)


def json_text(report: Report) -> str:
    return json.dumps(asdict(report), indent=2)


def _versions() -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found | {"HDF5": h5py.version.hdf5_version}


def _look_at_mpi(report: Report, environment: Mapping[str, str]) -> Serial | None:
    """Join the ranks, or say why that cannot be."""
    promised, launcher = expected_size(environment)
    report.facts["launcher"] = launcher + (f", {promised} processes" if promised > 1 else "")
    watchdog = threading.Timer(_PATIENCE, _hangs, [launcher])
    watchdog.daemon = True
    watchdog.start()
    try:
        ranks, note = connect(environment)
    except LaunchError as err:
        report.facts["MPI"] = "not usable"
        report.faults.append(str(err))
        return None
    finally:
        watchdog.cancel()
    report.facts["MPI"] = note
    if "no MPI library" in note:
        report.warnings.append(
            "No MPI library: runs use one process. For more, load your cluster's MPI module, "
            "or type: pip install 'mcattn[mpich]'"
        )
    report.warnings += list(_bad_settings(note, environment))
    return ranks


def _hangs(launcher: str) -> None:
    print(
        f"mcattn: MPI did not start within {_PATIENCE:.0f} s under {launcher}; with srun, name "
        "the kind of the MPI library (srun --mpi=pmi2 or --mpi=pmix; srun --mpi=list)",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def _bad_settings(note: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Sentences about variables and libraries that are known to mislead."""
    forced = environment.get("MPI4PY_MPIABI")
    if forced:
        yield (
            f"MPI4PY_MPIABI={forced} makes mpi4py load that library whatever the launcher; "
            "unset it unless the launcher is its own"
        )
    version = re.search(r"MPICH Version: (\d+)\.(\d+)", note)
    if version and tuple(map(int, version.groups())) < (4, 3):
        yield (
            f"MPICH {version[1]}.{version[2]} does not notice Open MPI's mpirun and would start "
            "many runs of one rank; use MPICH 4.3 or newer"
        )
    if "Open MPI" in note and os.geteuid() == 0 and "OMPI_ALLOW_RUN_AS_ROOT" not in environment:
        yield (
            "Open MPI's mpirun refuses to work for root; set OMPI_ALLOW_RUN_AS_ROOT=1 and "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user"
        )


def crossed_path(note: str, environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence if the first mpiexec on the PATH belongs to another MPI than the library."""
    library = "MPICH" if "MPICH" in note else "Open MPI" if "Open MPI" in note else None
    path = shutil.which("mpiexec", path=environment.get("PATH"))
    if library is None or path is None:
        return
    # Under a launcher its variables would make mpiexec part of the job that is running.
    clean = {k: v for k, v in environment.items() if not k.startswith(("PMI", "OMPI_"))}
    try:
        done = subprocess.run([path, "--version"], env=clean, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        yield f"{path} does not answer `--version`"
        return
    text = done.stdout.decode(errors="replace")
    owner = "MPICH" if "HYDRA" in text else "Open MPI" if "Open" in text else None
    if owner is not None and owner != library:
        own = Path(sys.executable).parent / "mpiexec"
        hint = f"type {own}" if own.exists() else f"use {library}'s own"
        yield (
            f"{path} is the launcher of {owner}, but mpi4py loads {library}: ranks started "
            f"with it would not see one another; {hint}"
        )


def _look_at_cores(
    report: Report, places: list[tuple[str, list[int]]], environment: Mapping[str, str]
) -> None:
    """Processes and threads against the cores that each host grants them."""
    hosts = {host: [cores for name, cores in places if name == host] for host, _ in places}
    report.facts["hosts"] = ", ".join(f"{host} ({len(own)} ranks)" for host, own in hosts.items())
    set_to = {name: environment[name] for name in _THREADS if environment.get(name, "").isdigit()}
    threads = max([1, *map(int, set_to.values())])
    settings = ", ".join(f"{name}={value}" for name, value in set_to.items())
    report.facts["threads per rank"] = f"1 for sampling; {settings or 'no limit set'}"
    for host, own in hosts.items():
        cores = len({core for granted in own for core in granted})
        report.facts[f"cores on {host}"] = cores
        if len(own) > cores:
            report.warnings.append(
                f"{len(own)} ranks share {cores} cores on {host}: they slow one another down; "
                "start at most one rank for each core"
            )
        elif len(own) * threads > cores:
            report.warnings.append(
                f"{len(own)} ranks with {threads} threads each ({settings}) for {cores} cores on "
                f"{host}; sampling uses one thread for each rank: set these to 1"
            )


def _look_at_files(report: Report, folder: Path) -> None:
    """Whether runs can be written, locked and read in a folder."""
    report.facts["folder"] = str(folder.resolve())
    report.facts["HDF5_USE_FILE_LOCKING"] = os.environ.get("HDF5_USE_FILE_LOCKING", "not set")
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".mcattn-doctor") as name:
            place = Path(name)
            with lock.hold(place / "lock", place):
                held = lock.holder(place / "lock", place) is not None
            with h5py.File(place / "x.h5", "w", locking=False) as f:
                f["x"] = 1
            hdf5 = _hdf5_locks(place / "x.h5")
    except (OSError, RunFileError) as err:
        report.faults.append(f"No run can be written in {folder.resolve()}: {err}")
        return
    report.facts["file locks"] = "work" if held else "are ignored"
    report.facts["HDF5's own locks"] = "work" if hdf5 else "fail; mcattn does not use them"
    if not held:
        report.warnings.append(
            f"Locks on {folder.resolve()} hold nobody off: two runs on one file would not "
            "notice each other; have it mounted with flock"
        )


def _hdf5_locks(path: Path) -> bool:
    try:
        with h5py.File(path, "r", locking=True):
            return True
    except OSError:
        return False


def _look_at_kernels(report: Report) -> None:
    """Where compiled kernels are kept, and how long it takes until they are ready."""
    from mcattn.kernels import jit
    from mcattn.run import compile_kernels

    cache = jit.cache_folder()
    known = cache is not None and any(cache.iterdir())
    report.facts["kernel cache"] = str(cache or "none")
    began = time.monotonic()
    compile_kernels(CopyModel())
    how = "loaded" if known else "compiled"
    report.facts["kernels"] = f"{how} in {time.monotonic() - began:.1f} s"
    if cache is None:
        report.warnings.append(
            "No folder for compiled kernels can be written, so every start compiles them anew; "
            "set NUMBA_CACHE_DIR to a folder that can"
        )
