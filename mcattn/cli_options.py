"""Arguments and options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
Length = Annotated[int, typer.Option("--L", help="Sequence length.")]
Vocabulary = Annotated[int, typer.Option("--V", help="Vocabulary size.")]
Kappa = Annotated[float, typer.Option("--kappa", help="Ridge.")]
ScoreVariance = Annotated[
    float, typer.Option("--g-s", help="Prior variance of a score, times chi.")
]
WeightVariance = Annotated[
    float, typer.Option("--g-w", help="Prior variance of a weight, times chi.")
]
Chi = Annotated[float, typer.Option("--chi", help="Inverse temperature.")]
Attention = Annotated[
    Literal["softmax", "linear"], typer.Option("--attention", help="Kind of attention.")
]
