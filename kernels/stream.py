"""One xoshiro256+ random stream for each replica, advanced W lanes at a time.

A stream is four 64-bit words, row 0..3 of an array (4, lane), and moves with its replica: the
numbers a replica draws do not depend on its lane or on the other replicas. Only the high bits
are used; the generator's lowest bits are weak. Source: Blackman and Vigna, "Scrambled linear
pseudorandom number generators" (2021).
"""

import numpy as np

from mcattn.kernels.jit import jit
from mcattn.kernels.simd import bits, load, shift_right, store

WORDS = 4


@jit
def draw(stream, r):
    """The next 64 random bits of the lanes that start at r; `stream` has shape (4, lane)."""
    a, b = load(stream[0], r), load(stream[1], r)
    c, d = load(stream[2], r), load(stream[3], r)
    out = a + d
    t = b << 17
    c = c ^ a
    d = d ^ b
    b = b ^ c
    a = a ^ d
    c = c ^ t
    d = (d << 45) | shift_right(d, 19)
    store(stream[0], r, a)
    store(stream[1], r, b)
    store(stream[2], r, c)
    store(stream[3], r, d)
    return out


@jit
def one_to_two(x):
    """Random bits as a uniform double in [1, 2): the top 52 bits are its mantissa."""
    return bits(shift_right(x, 12) | 0x3FF0000000000000)


@jit
def uniform(words):
    """The next uniform double in [0, 1) of one stream; `words` has shape (4,), uint64."""
    a, b, c, d = words[0], words[1], words[2], words[3]
    out = a + d
    c ^= a
    d ^= b
    words[1] = b ^ c
    words[0] = a ^ d
    words[2] = c ^ (b << np.uint64(17))
    words[3] = (d << np.uint64(45)) | (d >> np.uint64(19))
    return np.float64(out >> np.uint64(12)) * 2.0**-52
