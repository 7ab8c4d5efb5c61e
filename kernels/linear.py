"""Single-score Metropolis for linear attention (A = S), all lanes in lockstep, O(1) per update.

Arrays (lane index last): `scores`, flat (a, b, lane); `rows`, shape (1, a * lane), holds the row
sums t; `sums`, shape (4, lane), holds m, q, tau, r; `work`, shape (8, lane), is scratch.
"""

from mcattn.kernels.jit import jit
from mcattn.kernels.moves import MODULI, fresh_step, new_moduli, random_sign, with_sign
from mcattn.kernels.simd import W, blend, distance, exp, keep, larger, load, negative, store
from mcattn.kernels.stream import draw, one_to_two
from mcattn.kernels.weight import PRIOR, any_tokens, uniform_linear

WORK = 8


@jit
def run(
    scores, rows, sums, coupling, stream, moduli, work, accepted, out,
    visits, p, n, L, V, sweeps, every, done,
):  # fmt: skip
    """Do `sweeps` sweeps and measure, as `mcattn.kernels.softmax.run` does."""
    table = moduli.shape[0] > 0
    step, luck, change, row, new = work[0], work[1], work[2], work[3], work[4:8]
    lanes = accepted.shape[0]
    taken = 0
    for t in range(sweeps):
        update = 0
        if table:
            new_moduli(coupling, stream, moduli)
        for a in range(L):
            copy = a - 1 if a > 0 else L - 1
            r = a * lanes
            for v in range(visits.shape[0]):
                offset = visits[v]
                b = copy + offset if copy + offset < L else copy + offset - L
                s = (a * L + b) * lanes
                k = update & (MODULI - 1)
                update += 1
                is_copy = 1.0 if offset == 0 else 0.0
                if table:
                    _propose(stream, moduli[k], step, luck)
                else:
                    _propose_fresh(stream, coupling, step, luck)
                _sums_after(
                    scores, rows, sums, coupling, s, r, is_copy, 1.0 / L, step, row, new, change
                )
                if p.shape[0] == 1:
                    uniform_linear(coupling, sums, new, change, V)
                else:
                    any_tokens(coupling, sums, new, change, V, 0, p, n)
                _commit(scores, rows, sums, s, r, step, luck, change, row, new, accepted)
        if every > 0 and (done + t + 1) % every == 0:
            measure(sums, L, out[taken])
            taken += 1
    return taken


@jit
def _propose(stream, modulus, step, luck):
    """Signed step and acceptance number of every lane."""
    for r in range(0, step.shape[0], W):
        random = draw(stream, r)
        store(step, r, with_sign(load(modulus, r), random_sign(random)))
        store(luck, r, one_to_two(random))


@jit
def _propose_fresh(stream, coupling, step, luck):
    """The same with a step of its own for every update."""
    for r in range(0, step.shape[0], W):
        store(step, r, fresh_step(coupling, stream, r))
        store(luck, r, one_to_two(draw(stream, r)))


@jit
def _sums_after(scores, rows, sums, coupling, s, r, is_copy, share, step, row, new, change):
    """Row sum and the four sums after the step, and the prior's part of -dF."""
    for i in range(0, step.shape[0], W):
        d, t = load(step, i), load(rows[0], r + i)
        square = d * (d + load(scores, s + i) * 2.0)
        store(row, i, t + d)
        store(new[0], i, load(sums[0], i) + d * (is_copy * share))
        store(new[1], i, load(sums[1], i) + square * share)
        store(new[2], i, load(sums[2], i) + d * share)
        store(new[3], i, load(sums[3], i) + (d * (d + t * 2.0)) * share)
        store(change, i, load(coupling[PRIOR], i) * square * -1.0)


@jit
def _commit(scores, rows, sums, s, r, step, luck, change, row, new, accepted):
    """Take the step in the lanes where luck allows it."""
    for i in range(0, step.shape[0], W):
        u = load(luck, i)
        ok = negative(u - 1.0 - exp(load(change, i)))
        store(scores, s + i, load(scores, s + i) + keep(ok, load(step, i)))
        store(rows[0], r + i, blend(ok, load(row, i), load(rows[0], r + i)))
        for j in range(4):
            store(sums[j], i, blend(ok, load(new[j], i), load(sums[j], i)))
        store(accepted, i, load(accepted, i) + keep(ok, u * 0.0 + 1.0))


@jit
def measure(sums, L, out):
    """The five sums of every lane, |S|^2 = L q; `out` has shape (5, lane)."""
    for i in range(0, sums.shape[1], W):
        for j in range(4):
            store(out[j], i, load(sums[j], i))
        store(out[4], i, load(sums[1], i) * (1.0 * L))


@jit
def refresh(scores, rows, sums, L, drift):
    """Recompute every cache from the scores.

    drift : shape (lane,); receives the largest error of the row sums and of the four sums, each
        relative to the largest of its kind in the lane.
    """
    lanes = sums.shape[1]
    for i in range(0, lanes, W):
        zero = load(scores, i) * 0.0
        m, q, tau, squares, off, top = zero, zero, zero, zero, zero, zero
        for a in range(L):
            copy = a - 1 if a > 0 else L - 1
            t = zero
            for b in range(L):
                x = load(scores, (a * L + b) * lanes + i)
                t = t + x
                q = q + x * x
            off = larger(off, distance(t, load(rows[0], a * lanes + i)))
            top = larger(top, distance(t, zero))
            store(rows[0], a * lanes + i, t)
            m = m + load(scores, (a * L + copy) * lanes + i)
            tau = tau + t
            squares = squares + t * t
        error = off / top
        error = larger(error, _renewed(sums[0], i, m * (1.0 / L)))
        error = larger(error, _renewed(sums[1], i, q * (1.0 / L)))
        error = larger(error, _renewed(sums[2], i, tau * (1.0 / L)))
        store(drift, i, larger(error, _renewed(sums[3], i, squares * (1.0 / L))))


@jit
def _renewed(cache, i, x):
    """Relative error of W entries of a cache, which become x."""
    error = distance(x, load(cache, i)) / distance(x, x * 0.0)
    store(cache, i, x)
    return error
