"""The command line: arguments, messages and exit codes. Decisions are made elsewhere."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcattn import cli_theory
from mcattn.cli_options import AsJson, JobFile, RunFile, RunFiles, Settings, TimeLimit, ViewName
from mcattn.errors import LaunchError, McattnError, SamplingError

if TYPE_CHECKING:
    from mcattn.ranks import Serial
    from mcattn.run import Outcome

EXIT_WRONG_INPUT = 2
EXIT_STOPPED = 75  # stopped with everything committed; `mcattn resume` goes on

app = typer.Typer(
    help="Monte Carlo of attention patterns: when and how a copy head appears.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the `mcattn` command."""
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is no error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _one_thread(os.environ)
    try:
        app()
    except McattnError as err:
        from mcattn.ranks import launcher_rank

        if launcher_rank():  # its rank 0 says it
            sys.exit(EXIT_WRONG_INPUT)
        _fail(err)


def _one_thread(environment: MutableMapping[str, str]) -> None:
    """One BLAS thread unless the user asks for more; to be called before NumPy is imported.

    Matrices here are small. Threads that wait for one another on shared cores, several ranks on
    them, made placing windows ten times slower.
    """
    if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & environment.keys():
        environment["OPENBLAS_NUM_THREADS"] = "1"


def _fail(err: McattnError) -> None:
    _say(f"error: {err}")
    sys.exit(EXIT_WRONG_INPUT)


@app.command()
def run(
    job: JobFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Run file to write; JOB.h5 if not given."),
    ] = None,
    settings: Settings = None,
    time_limit: TimeLimit = None,
) -> None:
    """Carry out a job: sample, and store the trajectories.

    Alone or under mpirun, for instance: mpirun -n 4 mcattn run jobs/hysteresis.toml

    Exit codes: 0 all planned sweeps are in the file; 2 wrong input; 75 stopped by a signal
    or the time limit with everything committed (go on with `mcattn resume`); 1 a fault.
    """
    stop = _stop_rule(time_limit)
    path = output or Path(job.stem + ".h5")

    def work(ranks: Serial) -> Outcome:
        from mcattn import jobtext
        from mcattn import run as runs

        checked, text = ranks.on_root(lambda: jobtext.load(job, settings))
        return runs.start(checked, text, path, ranks, _watch(ranks, path, stop))

    _under_mpi(work, path)


@app.command()
def resume(
    path: RunFile,
    more: Annotated[
        int | None,
        typer.Option(
            "--extend",
            help="Plan this many sweeps more first: measured ones in the same states, or "
            "another hysteresis loop with so many at each point.",
            show_default=False,
        ),
    ] = None,
    time_limit: TimeLimit = None,
) -> None:
    """Go on with an interrupted run, on any number of ranks, up to the planned end."""
    stop = _stop_rule(time_limit)

    def work(ranks: Serial) -> Outcome:
        from mcattn import run as runs

        return runs.resume(path, ranks, _watch(ranks, path, stop), more)

    _under_mpi(work, path)


@app.command()
def status(
    path: RunFile,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Tell it again every two seconds until the run ends.")
    ] = False,
) -> None:
    """Tell how far a run is, how fast, how well, and who writes it; never disturbs it."""
    from mcattn import status as status_room

    for now in status_room.follow(path) if watch else [status_room.read(path)]:
        print(status_room.json_text(now) if as_json else status_room.lines(now), flush=True)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Examine the installation, alone or under mpiexec: MPI, cores, files, kernels.

    Exit codes: 0 runs would work (there may be warnings); 2 they would not.
    """
    from mcattn import doctor as doctor_room

    report = doctor_room.examine(Path())
    if report is None:
        return
    print(doctor_room.json_text(report) if as_json else doctor_room.lines(report), flush=True)
    if report.faults:
        sys.exit(EXIT_WRONG_INPUT)


@app.command()
def analyze(paths: RunFiles, view: ViewName = None, as_json: AsJson = False) -> None:
    """Print what run files say, with errors: loop, switching points, averages, or a view of them.

    For instance: mcattn analyze --view precursors softmax.h5 linear.h5
    """
    if view is None:
        from mcattn.analysis import report

        result = report.analyze_file(_single(paths))
        if as_json:
            print(report.json_text(result))
        else:
            report.print_tables(result)
        return
    from mcattn.analysis import views

    results = views.read(paths, view)
    if as_json:
        print(views.json_text(results))
    else:
        views.print_tables(results, view)


@app.command()
def plot(
    paths: RunFiles,
    view: ViewName = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Figure (.png, .pdf or .svg); if not given RUN.png, or with a view VIEW.png "
            "beside the first run.",
        ),
    ] = None,
) -> None:
    """Draw a run's figure, or a view's; for a hysteresis run the loop, with the theory on it."""
    if view is None:
        from mcattn.analysis import report

        path = _single(paths)
        figure = output or Path(str(path).removesuffix(path.suffix) + ".png")
        report.plot_file(path, figure)
    else:
        from mcattn.analysis import views

        figure = output or paths[0].with_name(f"{view}.png")
        views.plot(paths, view, figure)
    print(figure)


for command in (cli_theory.theory, cli_theory.plan, cli_theory.minima, cli_theory.order):
    app.command()(command)


def _single(paths: list[Path]) -> Path:
    from mcattn.errors import JobError

    if len(paths) > 1:
        raise JobError(f"{len(paths)} run files are given; say with --view what to ask of them")
    return paths[0]


def _version(show: bool) -> None:
    if show:
        from importlib import metadata

        names = ("mcattn", "numpy", "numba", "scipy", "h5py", "mpi4py")
        print("\n".join(f"{name} {metadata.version(name)}" for name in names))
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print versions."),
    ] = False,
) -> None:
    pass


def _stop_rule(time_limit: str | None) -> Callable[[], bool]:
    """Whether to stop: asked to by a signal from now on, or by the time limit."""
    from mcattn import interrupts

    interrupts.install()
    from mcattn import walltime

    limit = walltime.limit(time_limit)
    return lambda: limit.reached() or interrupts.requested()


def _watch(ranks: Serial, path: Path, stop: Callable[[], bool]) -> Any:
    from mcattn import progress
    from mcattn.run import Watch
    from mcattn.status import Pulse

    if ranks.rank:
        return Watch(stop)
    show, pulse = progress.reporter(str(path)), Pulse(path, ranks.size)

    def tell(done: int, planned: int) -> None:
        show(done, planned)
        pulse(done, planned)

    return Watch(stop, tell, _say)


def _say(text: str) -> None:
    print(f"mcattn: {text}", file=sys.stderr, flush=True)


def _under_mpi(work: Any, path: Path) -> None:
    """Do the work as one rank of the MPI job, and end the whole job if this rank fails."""
    from mcattn import ranks as rank_room

    try:
        ranks, note = rank_room.connect()
    except LaunchError as err:
        if rank_room.launcher_rank() == 0:
            _fail(err)
        sys.exit(EXIT_WRONG_INPUT)
    if ranks.rank == 0:
        _say(note)
    try:
        outcome = work(ranks)
    except SamplingError as err:
        rank_room.abort_on_error(ranks, err)
    except McattnError as err:  # raised alike on all ranks
        if ranks.rank == 0:
            _fail(err)
        sys.exit(EXIT_WRONG_INPUT)
    except Exception as err:
        rank_room.abort_on_error(ranks, err)
    if ranks.rank == 0:
        before = " were there already" if outcome.nothing_done else ""
        _say(f"{path}: {outcome.sweep} of {outcome.planned} sweeps{before}")
    if not outcome.complete:
        if ranks.rank == 0:
            _say(f"stopped; go on with: mcattn resume {path}")
        sys.exit(EXIT_STOPPED)


if __name__ == "__main__":
    main()
