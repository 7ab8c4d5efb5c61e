"""The command line: arguments, messages and exit codes. Decisions are made elsewhere."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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


JobFile = Annotated[Path, typer.Argument(help="Job file (TOML).", show_default=False)]
RunFile = Annotated[Path, typer.Argument(help="Run file (HDF5).", show_default=False)]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--walltime",
        help="Be done, with everything committed, within MINUTES, H:M:S or D-H:M:S; by default "
        "within what Slurm granted the job.",
        show_default=False,
    ),
]
RunFiles = Annotated[list[Path], typer.Argument(help="Run files (HDF5).", show_default=False)]
ViewName = Annotated[
    Literal["transition", "sizes", "planes", "onset", "stages", "precursors", "verify"] | None,
    typer.Option(
        "--view",
        help="Ask a question of one run or of several together: transition (by every route), "
        "sizes (its order, from several L), planes (P* against L and V), onset (of linear "
        "attention), stages (of learning, on the way up), precursors (fluctuations below the "
        "transition), verify (theory, minima, sampling and training of one model).",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a setting, such as model.L=12; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


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


def _single(paths: list[Path]) -> Path:
    from mcattn.errors import JobError

    if len(paths) > 1:
        raise JobError(f"{len(paths)} run files are given; say with --view what to ask of them")
    return paths[0]


@app.command()
def theory(
    L: Annotated[int, typer.Option("--L", help="Sequence length.")] = 16,
    V: Annotated[int, typer.Option("--V", help="Vocabulary size.")] = 16,
    kappa: Annotated[float, typer.Option("--kappa", help="Ridge.")] = 1.0,
    g_s: Annotated[
        float, typer.Option("--g-s", help="Prior variance of a score, times chi.")
    ] = 3.0,
    g_w: Annotated[
        float, typer.Option("--g-w", help="Prior variance of a weight, times chi.")
    ] = 0.03,
    chi: Annotated[float, typer.Option("--chi", help="Inverse temperature.")] = float("inf"),
    attention: Annotated[
        Literal["softmax", "linear"], typer.Option("--attention", help="Kind of attention.")
    ] = "softmax",
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", help="V token probabilities, such as 0.5,0.3,0.2; else uniform."),
    ] = None,
    fluctuations: Annotated[
        bool,
        typer.Option(
            "--fluctuations",
            help="Softmax at finite chi: also with the fluctuations of the scores (2 seconds).",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print where theory puts the transition: P_lo, P*, P_hi or P_c, and what changes there."""
    from mcattn import theory as theory_room
    from mcattn import theorytext
    from mcattn.errors import ModelError
    from mcattn.model import CopyModel

    if not chi > 0:
        raise ModelError(f"chi is {chi}; it must be > 0, or inf")
    model = CopyModel(L, V, attention, kappa, g_s, g_w, _probabilities(tokens))
    values = theory_room.report(model, chi)
    if fluctuations:
        from mcattn import coexistence

        found = coexistence.coexistence(model, chi)
    if as_json:
        more = coexistence.plain(found) if fluctuations else {}
        print(json.dumps({**values, **more}, indent=2))
        return
    theorytext.show(model, chi, values)
    if fluctuations:
        theorytext.show_fluctuations(found)


@app.command()
def plan(
    P: Annotated[float, typer.Option("--P", help="Training sequences.", show_default=False)],
    L: Annotated[int, typer.Option("--L", help="Sequence length.")] = 16,
    V: Annotated[int, typer.Option("--V", help="Vocabulary size.")] = 16,
    attention: Annotated[
        Literal["softmax", "linear"], typer.Option("--attention", help="Kind of attention.")
    ] = "softmax",
    kappa: Annotated[float, typer.Option("--kappa", help="Ridge.")] = 1.0,
    g_s: Annotated[
        float, typer.Option("--g-s", help="Prior variance of a score, times chi.")
    ] = 3.0,
    g_w: Annotated[
        float, typer.Option("--g-w", help="Prior variance of a weight, times chi.")
    ] = 0.03,
    chi: Annotated[float, typer.Option("--chi", help="Inverse temperature.")] = float("inf"),
    weight_decay: Annotated[
        float | None,
        typer.Option(
            "--weight-decay",
            help="Instead of kappa, g_s, g_w, chi: decay of a recipe whose loss is the mean square "
            "error plus decay |theta|^2 / 2.",
            show_default=False,
        ),
    ] = None,
    score_decay: Annotated[
        float | None,
        typer.Option("--score-decay", help="Decay of the scores, if another.", show_default=False),
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", help="Temperature of Langevin noise in a recipe.")
    ] = 0.0,
    reduction: Annotated[
        Literal["position", "element"],
        typer.Option("--reduction", help="A recipe's error: sum over outputs, or mean over them."),
    ] = "position",
    compare: Annotated[
        bool, typer.Option("--compare", help="The other kind of attention beside it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what training with P sequences will end in, what comes next, and what it would take.

    For instance: mcattn plan --L 64 --V 32 --P 800 --compare
    """
    from mcattn import plan as plan_room
    from mcattn import plantext
    from mcattn.analysis import terminal
    from mcattn.errors import ModelError
    from mcattn.model import CopyModel

    model, recipe = CopyModel(L, V, attention, kappa, g_s, g_w), None
    if not chi > 0:
        raise ModelError(f"chi is {chi}; it must be > 0, or inf")
    if weight_decay is not None:
        recipe = {"weight decay": weight_decay, "P": P, "noise": noise}
        if score_decay is not None:
            recipe["score decay"] = score_decay
        model, chi = plan_room.from_recipe(model, P, weight_decay, score_decay, noise, reduction)
    elif score_decay is not None or noise:
        raise ModelError("a recipe is given without --weight-decay")
    outlooks = [
        plan_room.outlook(one, P, chi) for one in plan_room.kinds(model)[: 2 if compare else 1]
    ]
    if as_json:
        print(json.dumps([plan_room.plain(one) for one in outlooks], indent=2))
    else:
        plantext.show(outlooks, terminal.console(), recipe)


@app.command()
def order(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Attention arrays (.npy, .npz, .h5).", show_default=False),
    ],
    name: Annotated[
        str, typer.Option("--name", help="Array to read where a file holds several.")
    ] = "attention",
    offset: Annotated[
        str, typer.Option("--offset", help="How far back a copy head looks, or any.")
    ] = "1",
    kind: Annotated[
        Literal["causal", "periodic"] | None,
        typer.Option("--kind", help="If not given: causal where nothing later is attended to."),
    ] = None,
    mean: Annotated[
        list[int] | None,
        typer.Option("--mean", help="Average over this leading axis, such as 0; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure alpha, beta, m, q and entropy of attention patterns (..., L, L) that anyone has.

    For instance, of an array (step, layer, head, batch, L, L): mcattn order maps.npy --mean 3
    """
    from mcattn import attention, attentiontext
    from mcattn.analysis import terminal

    found = {
        str(path): attention.averaged(
            attention.order(attention.load(path, name), kind, _offset(offset)), mean or []
        )
        for path in paths
    }
    if as_json:
        print(json.dumps({path: attention.plain(one) for path, one in found.items()}, indent=2))
        return
    for path, one in found.items():
        attentiontext.show(path, one, terminal.console())


def _offset(text: str) -> int | None:
    from mcattn.errors import JobError

    if text == "any":
        return None
    if not text.isdigit():
        raise JobError(f"--offset is {text!r}; it must be a whole number or any")
    return int(text)


@app.command()
def minima(
    job: JobFile,
    settings: Settings = None,
    chi: Annotated[
        float | None,
        typer.Option("--chi", help="Inverse temperature; by default the job's largest."),
    ] = None,
    starts: Annotated[
        int,
        typer.Option("--starts", min=1, help="Random starts at each P without two branches."),
    ] = 8,
    as_json: AsJson = False,
) -> None:
    """Find the minima of a job's action at its values of P, for its data sets too.

    Both branches of softmax attention with their ends and crossing, or the lowest minimum that
    random starts find; over all scores, without a Markov chain.
    """
    from mcattn import jobtext, minimareport
    from mcattn.analysis import terminal
    from mcattn.errors import ModelError

    if chi is not None and not chi > 0:
        raise ModelError(f"chi is {chi}; it must be > 0, or inf")
    result = minimareport.report(jobtext.load(job, settings)[0], chi, starts)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        minimareport.show(result, terminal.console())


def _probabilities(text: str | None) -> tuple[float, ...] | None:
    from mcattn.errors import ModelError

    if text is None:
        return None
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ModelError(f"tokens is {text!r}; it must be numbers such as 0.5,0.3,0.2") from None


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
