"""One step of training, for each way of training: Adam, gradient flow, Langevin dynamics.

All of them move flat weights theta, shape (n,), in place, and see the loss H through one call
that returns its value and gradient at given weights, exact or estimated from a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mcattn.kernels import network as kernel

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]


def adam(loss: Loss, theta: np.ndarray, memory: np.ndarray, rate: float, step: int) -> None:
    """A step of Adam with the decay of H inside the gradient, so that its rests are H's minima.

    memory : both moments, shape (2 n,); step : counts from 1 since they were zero.
    """
    n = len(theta)
    kernel.adam(theta, loss(theta)[1], memory[:n], memory[n:], rate, step)


def flow(loss: Loss, theta: np.ndarray, dt: float) -> None:
    """Gradient flow d theta/dt = -grad H over a time dt, by the classical Runge-Kutta step."""
    first = loss(theta)[1]
    second = loss(theta - dt / 2 * first)[1]
    third = loss(theta - dt / 2 * second)[1]
    fourth = loss(theta - dt * third)[1]
    theta -= dt / 6 * (first + 2 * (second + third) + fourth)


def cosine(rate: float, done: int, steps: int) -> float:
    """Rate after `done` of `steps`, on half a period of a cosine from `rate` to zero."""
    return rate * (1 + math.cos(math.pi * done / steps)) / 2


class Langevin:
    """Langevin dynamics of one network with stationary law exp(-chi H).

    theta' = theta - h D grad H + sqrt(2 h D / chi) xi

    with a diagonal D. Adjusted, a step is a Metropolis proposal, so that the law is exact
    whatever h (MALA: Roberts and Tweedie 1996, Bernoulli 2, 341). Not adjusted, as it has to be
    when gradients come from batches (SGLD: Welling and Teh, ICML 2011), it is off by order h.

    Parameters
    ----------
    scale : D, shape (n,).
    """

    def __init__(self, scale: np.ndarray, chi: float, adjusted: bool) -> None:
        self._scale, self._chi, self._adjusted = scale, chi, adjusted
        self._here: tuple[float, np.ndarray] | None = None

    def forget(self) -> None:
        """Evaluate the loss anew before the next step: the weights or the data have changed."""
        self._here = None

    def step(self, loss: Loss, theta: np.ndarray, h: float, rng: np.random.Generator) -> bool:
        """Do one step; whether it was accepted."""
        here = self._here or loss(theta)
        noise = rng.standard_normal(len(theta))
        move = np.sqrt(2 * h * self._scale / self._chi) * noise - h * self._scale * here[1]
        if not self._adjusted:
            theta += move
            return True
        there = loss(theta + move)
        back = -move + h * self._scale * there[1]
        cost = float((back * back / self._scale).sum()) * self._chi / (4 * h) - noise @ noise / 2
        accepted = bool(math.log1p(-rng.random()) < self._chi * (here[0] - there[0]) - cost)
        if accepted:
            theta += move
        self._here = there if accepted else here
        return accepted
