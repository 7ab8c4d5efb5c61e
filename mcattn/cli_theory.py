"""Commands that sample nothing: theory, planning, minima, and attention from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from mcattn.cli_options import (
    AsJson,
    Attention,
    Chi,
    JobFile,
    Kappa,
    Length,
    ScoreVariance,
    Settings,
    Vocabulary,
    WeightVariance,
)


def theory(
    L: Length = 16,
    V: Vocabulary = 16,
    kappa: Kappa = 1.0,
    g_s: ScoreVariance = 3.0,
    g_w: WeightVariance = 0.03,
    chi: Chi = float("inf"),
    attention: Attention = "softmax",
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
    from mcattn.model import CopyModel

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


def plan(
    P: Annotated[float, typer.Option("--P", help="Training sequences.", show_default=False)],
    L: Length = 16,
    V: Vocabulary = 16,
    attention: Attention = "softmax",
    kappa: Kappa = 1.0,
    g_s: ScoreVariance = 3.0,
    g_w: WeightVariance = 0.03,
    chi: Chi = float("inf"),
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
    from mcattn import plantext, terminal
    from mcattn.errors import ModelError
    from mcattn.model import CopyModel

    model, recipe = CopyModel(L, V, attention, kappa, g_s, g_w), None
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
    from mcattn import attention, attentiontext, terminal

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
    from mcattn import jobtext, minimareport, terminal

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
