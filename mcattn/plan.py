"""Planning a training run: which phase it is in, what comes next, and what it would take.

Answers are those of the population landscape (mcattn.theory). Source: theory.md, points 1 to 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from mcattn import action, theory
from mcattn.errors import ModelError
from mcattn.model import CopyModel, positive

_FAR = 1e4  # how many times the onset a crossover is looked for
REDUCTIONS = ("position", "element")


@dataclass(frozen=True)
class Threshold:
    """A value of P at which something changes.

    more : sequences still needed; 0 where it lies behind.
    decay : factor on all weight decay that brings it to the P there is, at chi = inf, where the
        landscape depends on P and decay through their ratio alone.
    """

    name: str
    P: float
    meaning: str
    more: int
    decay: float


@dataclass(frozen=True)
class Branch:
    """A minimum that training can end in; `deepest` if none is deeper."""

    name: str
    deepest: bool
    m: float
    alpha: float
    beta: float
    loss: float


@dataclass(frozen=True)
class Outlook:
    """What one kind of attention does at this P.

    order : "first", "second", or "none" where nothing is sharp.
    phase : one of PHASES.
    jump : of m at the transition; 0 where it is continuous.
    warning : whether a fluctuation or an order parameter announces what comes.
    """

    model: CopyModel
    P: float
    chi: float
    order: str
    phase: str
    jump: float
    warning: bool
    thresholds: tuple[Threshold, ...]
    branches: tuple[Branch, ...]


PHASES = {
    "uniform": "uniform attention; there is no copy head to be found",
    "uniform, copying possible": "a copy head would last, but from scratch none appears, and the "
    "uniform state is the deeper minimum",
    "copying favoured": "a copy head is the deeper minimum, but training from scratch stays "
    "uniform: it would have to cross a barrier",
    "copy": "training ends in a copy head from every start",
    "smooth": "one minimum at every P: a copy head grows without any transition",
    "silent": "no attention: all scores vanish",
    "uniform head": "a head that attends to everything alike, alpha > beta",
    "copy head": "a copy head has taken over, beta > alpha",
}
_WHAT = {
    "P_lo": "a copy head lasts, once it is there",
    "P_star": "a copy head is the deeper minimum",
    "P_hi": "training from scratch ends in a copy head",
    "P_c": "attention sets in, continuously",
    "P_x": "copying overtakes uniform attention, smoothly",
}


def outlook(model: CopyModel, P: float, chi: float = math.inf) -> Outlook:
    """The phase at P, what lies ahead, and every minimum there is.

    Raises
    ------
    ModelError : P or chi is not > 0.
    """
    P = positive("P", P)
    jump = theory.boundary(model, chi)
    places = _places(model, chi, jump)
    cold = places
    if math.isfinite(chi):
        cold = _places(model, math.inf, theory.boundary(model))
    return Outlook(
        model=model,
        P=P,
        chi=chi,
        order=_order(model, places),
        phase=_phase(model, places, P),
        jump=jump.m_plus - jump.m_minus if jump else 0.0,
        warning=model.attention == "linear" or not places,
        thresholds=tuple(
            Threshold(
                name=name,
                P=at,
                meaning=_WHAT[name],
                more=max(0, math.ceil(at - P)),
                decay=P / cold[name] if name in cold else math.nan,
            )
            for name, at in places.items()
        ),
        branches=_branches(model, P, chi, jump),
    )


def kinds(model: CopyModel) -> list[CopyModel]:
    """The model, and the same with the other kind of attention."""
    softmax = model.attention == "softmax"
    return [model, replace(model, attention="linear" if softmax else "softmax")]


def from_recipe(
    model: CopyModel,
    P: float,
    weight_decay: float,
    score_decay: float | None = None,
    noise: float = 0.0,
    reduction: str = "position",
) -> tuple[CopyModel, float]:
    """The model and chi whose minima are those of a training recipe, with kappa = 1.

    The recipe's loss is the mean square error plus decay |theta|^2 / 2, as optimisers of common
    frameworks have it: with H of theory.md and reduction "position" it is 2 kappa H / P if
    g_w = 2 kappa / (P weight_decay), likewise g_s. Langevin noise at temperature T samples
    exp(-loss/T), so chi = 2 kappa / (P T).

    Parameters
    ----------
    weight_decay, score_decay : of W and of the scores; the second is the first if not given.
    noise : temperature T of Langevin dynamics on this loss; 0 for none.
    reduction : the error of a position is a sum over the V outputs ("position"), or a mean over
        them too ("element"), which makes decay and noise V times stronger.

    Raises
    ------
    ModelError : a decay is not > 0, noise is < 0, or the reduction is not known.
    """
    if reduction not in REDUCTIONS:
        raise ModelError(f"reduction is {reduction!r}; it must be one of {', '.join(REDUCTIONS)}")
    if not 0 <= noise < math.inf:
        raise ModelError(f"noise is {noise}; it must be >= 0")
    scale = 2.0 / positive("P", P) / (model.V if reduction == "element" else 1)
    of_W = positive("weight_decay", weight_decay)
    of_S = of_W if score_decay is None else positive("score_decay", score_decay)
    chi = scale / noise if noise else math.inf
    return replace(model, kappa=1.0, g_w=scale / of_W, g_s=scale / of_S), chi


def _places(model: CopyModel, chi: float, jump: theory.Boundary | None) -> dict[str, float]:
    """The thresholds in P, by name, rising."""
    if model.attention == "linear":
        onset = theory.critical_P(model, chi)
        found = {"P_c": onset}
        crossing = _crossover(model, chi, onset)
        return found | ({} if crossing is None else {"P_x": crossing})
    names = ("P_lo", "P_star", "P_hi")
    return {} if jump is None else {name: getattr(jump, name) for name in names}


def _crossover(model: CopyModel, chi: float, onset: float) -> float | None:
    """P at which beta = alpha in the deepest minimum; None if it is nowhere within _FAR."""

    def excess(ln_P: float) -> float:
        X = theory.branches(model, chi, [math.exp(ln_P)]).lowest
        alpha, beta = action.alpha_beta(X, model.L)
        return float(beta[0] - alpha[0])

    grid = math.log(onset) + np.linspace(0.01, math.log(_FAR), 120)
    signs = np.array([excess(x) for x in grid]) > 0
    if not signs.any() or signs[0]:
        return None
    k = int(signs.argmax())
    return math.exp(brentq(excess, grid[k - 1], grid[k], xtol=1e-10))


def _order(model: CopyModel, places: dict[str, float]) -> str:
    if model.attention == "linear":
        return "second"
    return "first" if places else "none"


def _phase(model: CopyModel, places: dict[str, float], P: float) -> str:
    passed = sum(at < P for at in places.values())
    if model.attention == "linear":
        return ("silent", "uniform head", "copy head")[passed]
    if not places:
        return "smooth"
    return ("uniform", "uniform, copying possible", "copying favoured", "copy")[passed]


def _branches(
    model: CopyModel, P: float, chi: float, jump: theory.Boundary | None
) -> tuple[Branch, ...]:
    """The minima at P, the deepest first; those of linear attention with beta < 0 are traps."""
    found = theory.minima(model, P, chi)
    middle = (jump.m_minus + jump.m_plus) / 2 if jump else math.inf
    return tuple(
        Branch(_name(one, model, middle), k == 0, one.m, one.alpha, one.beta, one.loss)
        for k, one in enumerate(found)
    )


def _name(one: theory.Minimum, model: CopyModel, middle: float) -> str:
    if model.attention == "softmax":
        return "copy" if one.m > middle else "uniform"
    if not one.alpha and not one.beta:
        return "silent"
    if one.beta < 0:
        return "trap"
    return "copy head" if one.beta > one.alpha else "uniform head"


def plain(found: Outlook) -> dict[str, Any]:
    """Plain values for JSON: None for what is not there."""

    def value(x: Any) -> Any:
        return None if isinstance(x, float) and not math.isfinite(x) else x

    own = {name: value(getattr(found, name)) for name in ("P", "chi", "order", "phase", "jump")}
    return {
        "model": vars(found.model),
        **own,
        "warning": found.warning,
        "thresholds": [{k: value(v) for k, v in vars(one).items()} for one in found.thresholds],
        "branches": [vars(one) for one in found.branches],
    }
