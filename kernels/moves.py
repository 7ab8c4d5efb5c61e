"""What softmax and linear sweeps share: the symmetric proposal and its moduli.

The size |d| of a move comes from a table that each replica redraws from its own stream before
every sweep; the sign is a fresh random bit in each update. Given the table, +|d| and -|d| are
equally likely from every pattern, so each update obeys detailed balance and the sweep leaves
the distribution invariant whatever the table holds. The table may therefore be used in any
fixed order, and e^|d| needs to be computed once per sweep and not once per update.

The plain alternative draws each step anew from [-step, step) (`fresh_step`): the same acceptance
on average and the same distribution, at twice the random numbers and exponentials.
"""

from mcattn.kernels.jit import jit
from mcattn.kernels.simd import W, bits, exp, load, store
from mcattn.kernels.stream import draw, one_to_two
from mcattn.kernels.weight import STEP

MODULI = 8  # a power of two
SIGN = -0x8000000000000000


@jit
def new_moduli(coupling, stream, moduli):
    """Draw |d| uniform in [0, step) for every lane; `moduli` has shape (MODULI, lane)."""
    for k in range(MODULI):
        for r in range(0, stream.shape[1], W):
            u = one_to_two(draw(stream, r)) - 1.0
            store(moduli[k], r, load(coupling[STEP], r) * u)


@jit
def new_growths(moduli, growth):
    """e^|d| and e^-|d| of every modulus; `growth` has shape (2 MODULI, lane)."""
    for k in range(MODULI):
        for r in range(0, moduli.shape[1], W):
            d = load(moduli[k], r)
            store(growth[k], r, exp(d))
            store(growth[MODULI + k], r, exp(d * -1.0))


@jit
def fresh_step(coupling, stream, r):
    """A step uniform in [-step, step) for the lanes from r on."""
    return load(coupling[STEP], r) * (one_to_two(draw(stream, r)) * 2.0 - 3.0)


@jit
def random_sign(random):
    """One random bit in the sign position; bit 11, which the uniform number does not use."""
    return (random << 52) & SIGN


@jit
def with_sign(x, sign):
    """The positive doubles x, negated where the sign bit is set."""
    return bits(bits(x) ^ sign)
