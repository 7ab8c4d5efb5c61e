"""How networks are trained: which network, which optimiser, at which rate, on which data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """What a training run does besides its path in P.

    network : "positional" (scores S) or "full" (scores from W_G on tokens and positions).
    optimiser : "adam", "flow" (gradient flow) or "sgld" (Langevin dynamics at 1/chi).
    rate : Adam's rate, the flow's time step, or the first step of sgld.
    schedule : "constant", or "cosine" from the rate to zero within the steps at one P.
    batch : sequences of a step, drawn with replacement; None takes all of them.
    """

    network: str = "positional"
    optimiser: str = "adam"
    rate: float = 0.01
    schedule: str = "constant"
    batch: int | None = None

    @property
    def adjusted(self) -> bool:
        """Whether steps are accepted or rejected, so that sgld samples exp(-chi H) exactly."""
        return self.optimiser == "sgld" and self.batch is None
