"""Random streams: each is a function of the seed, the replica and a purpose, never of a rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from mcattn.errors import JobError

_UPDATES, _START, _EXCHANGES, _TRAINING, _DATA, _SEARCH = 0, 1, 2, 3, 4, 5
_WORD = 2**64 - 1


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


def training_generator(seed: int, replica: int, loop: int) -> np.random.Generator:
    """Generator of a network's start and of what its training draws."""
    key = (replica, _TRAINING, loop)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def data_generator(seed: int) -> np.random.Generator:
    """Generator that draws the data set of this seed."""
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=(0, _DATA))
    return np.random.default_rng(sequence)


def search_generator(seed: int, start: int) -> np.random.Generator:
    """Generator of the scores from which a search for minima begins."""
    key = (start, _SEARCH)
    return np.random.default_rng(np.random.SeedSequence(check_seed(seed), spawn_key=key))


def pcg_words(rng: np.random.Generator) -> np.ndarray:
    """State of a PCG64 generator, shape (4,) uint64; it must have drawn doubles only."""
    state: Any = rng.bit_generator.state
    parts = (state["state"]["state"], state["state"]["inc"])
    return np.array([w >> s & _WORD for w in parts for s in (0, 64)], dtype=np.uint64)


def pcg_generator(words: np.ndarray) -> np.random.Generator:
    """The generator with this state, shape (4,) uint64."""
    low, high, inc_low, inc_high = (int(w) for w in words)
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": inc_low | inc_high << 64},
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.random.Generator(bits)
