"""Where linear attention at finite chi changes its stage: exact marks of rounded transitions."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from mcattn.linear_exact import Averages, averages
from mcattn.linear_landscape import origin_instability
from mcattn.model import CopyModel


def onset(model: CopyModel, chi: float) -> float:
    """P at which the cumulant `Averages.binder` is 1/3, halfway from no order to order.

    Finite chi rounds the second-order transition; this mark tends to `theory.critical_P` as
    chi grows. Source: theory.md, point 5.

    Raises
    ------
    ModelError : as `linear_exact.averages`.
    """
    return _crossing(model, chi, lambda at: float(at.binder) - 1 / 3)


def crossover(model: CopyModel, chi: float) -> float:
    """P at which copying overtakes uniform attention, <sgn(tau) beta> = <sgn(tau) alpha>.

    Raises
    ------
    ModelError : as `linear_exact.averages`.
    """
    return _crossing(model, chi, lambda at: float(at.signed_beta - at.signed_alpha))


def _crossing(model: CopyModel, chi: float, excess: Callable[[Averages], float]) -> float:
    """Smallest P above the onset of chi = inf, or half of it, at which `excess` turns positive."""
    high = origin_instability(model, math.inf) / 2
    while excess(averages(model, high, chi, rtol=1e-4)) < 0:
        high *= 1.5
    low = high / 1.5
    return float(brentq(lambda P: excess(averages(model, P, chi, rtol=1e-5)), low, high, rtol=1e-6))
