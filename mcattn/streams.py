"""Random streams: each is a function of the seed, the replica and a purpose, never of a rank."""

from __future__ import annotations

import numpy as np

from mcattn.errors import JobError

_UPDATES, _START, _EXCHANGES = 0, 1, 2


def check_seed(seed: int) -> int:
    """The seed as an int; JobError if it is not a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise JobError(f"seed is {seed!r}; it must be an integer >= 0")
    return int(seed)


def update_words(seed: int, replica: int, loop: int) -> np.ndarray:
    """Initial state, shape (4,) uint64, of the xoshiro stream that drives a replica's updates."""
    key = (replica, _UPDATES, loop)
    return np.random.SeedSequence(seed, spawn_key=key).generate_state(4, np.uint64)


def start_generator(seed: int, replica: int, loop: int) -> np.random.Generator:
    """Generator that draws a replica's starting pattern, a new one for each loop of a path."""
    key = (replica, _START, loop)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def exchange_generator(seed: int, ladder: int, stretch: int) -> np.random.Generator:
    """Generator of the numbers that decide the swaps of a ladder in one stretch of exchanges."""
    key = (ladder, _EXCHANGES, stretch)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
