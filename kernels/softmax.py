"""Single-score Metropolis for softmax attention, all lanes in lockstep, O(1) per update.

Arrays (lane index last): `scores` and `weights` = e^scores, flat (a, b, lane); `rows`, shape
(3, a * lane), holds each row's Z = sum e^S, Q = sum e^2S and 1/Z; `sums`, shape (4, lane), holds
m, q, tau, r, of which the last two stay 1; `work`, shape (11, lane), is scratch.

The scratch of a move lies vector by vector, so that one address leads to all of it: W numbers
each of the step d, the new weight e^(S + d), the acceptance number and the row's new Z, Q, 1/Z.
"""

from mcattn.kernels.jit import jit
from mcattn.kernels.moves import MODULI, fresh_step, new_growths, new_moduli, random_sign, with_sign
from mcattn.kernels.simd import (
    W,
    bits,
    blend,
    distance,
    exp,
    keep,
    larger,
    load,
    negative,
    store,
)
from mcattn.kernels.stream import draw, one_to_two
from mcattn.kernels.weight import PRIOR, any_tokens, uniform_softmax

WORK = 11
_SLOTS = 6  # vectors in a lane group of `move`: d, weight, luck and, from _ROW on, the row
_WEIGHT, _LUCK, _ROW = W, 2 * W, 3 * W


@jit
def run(
    scores, weights, rows, sums, coupling, stream, moduli, growth, work, accepted, out,
    visits, p, n, L, V, terms, sweeps, every, done,
):  # fmt: skip
    """Do `sweeps` sweeps; write X after those whose count from the stage's start hits `every`.

    A sweep goes through the rows; in each row it visits the columns copy column + visits[i].
    `done` sweeps of the stage lie behind; `every` = 0 measures nothing. `out` has shape
    (row, 5, lane); `accepted`, shape (lane,), counts. Without `moduli`, shape (0, lane), every
    update draws the size of its step anew.
    """
    change, new = work[0], work[1:5]
    move, table = work[5:].reshape(-1), moduli.shape[0] > 0
    new[2:4] = 1.0
    lanes = accepted.shape[0]
    taken = 0
    for t in range(sweeps):
        update = 0
        if table:
            new_moduli(coupling, stream, moduli)
            new_growths(moduli, growth)
        for a in range(L):
            copy = a - 1 if a > 0 else L - 1
            r = a * lanes
            c = (a * L + copy) * lanes
            for v in range(visits.shape[0]):
                offset = visits[v]
                b = copy + offset if copy + offset < L else copy + offset - L
                s = (a * L + b) * lanes
                k = update & (MODULI - 1)
                update += 1
                if table:
                    _propose(stream, moduli[k], growth[k], growth[MODULI + k], weights, s, move)
                else:
                    _propose_fresh(stream, coupling, scores, s, move)
                is_copy = 1.0 if offset == 0 else 0.0
                _sums_after(
                    scores, weights, rows, sums, coupling, s, c, r, is_copy, 1.0 / L,
                    move, new, change,
                )  # fmt: skip
                if p.shape[0] == 1:
                    uniform_softmax(coupling, sums, new, change, V, terms)
                else:
                    any_tokens(coupling, sums, new, change, V, terms, p, n)
                _commit(scores, weights, rows, sums, s, r, move, change, new, accepted)
        if every > 0 and (done + t + 1) % every == 0:
            measure(scores, sums, out[taken])
            taken += 1
    return taken


@jit
def _propose(stream, modulus, up, down, weights, s, move):
    """Signed step, new weight e^(S + d) and acceptance number of every lane."""
    for r in range(0, stream.shape[1], W):
        i = r * _SLOTS
        random = draw(stream, r)
        sign = random_sign(random)
        store(move, i, with_sign(load(modulus, r), sign))
        factor = blend(negative(bits(sign)), load(down, r), load(up, r))
        store(move, i + _WEIGHT, load(weights, s + r) * factor)
        store(move, i + _LUCK, one_to_two(random))


@jit
def _propose_fresh(stream, coupling, scores, s, move):
    """The same with a step of its own, uniform in (-step, step), for every update."""
    for r in range(0, stream.shape[1], W):
        i = r * _SLOTS
        d = fresh_step(coupling, stream, r)
        store(move, i, d)
        store(move, i + _WEIGHT, exp(load(scores, s + r) + d))
        store(move, i + _LUCK, one_to_two(draw(stream, r)))


@jit
def _sums_after(scores, weights, rows, sums, coupling, s, c, r, is_copy, share, move, new, change):
    """Row sums, m and q after the step, and the prior's part of -dF."""
    for i in range(0, sums.shape[1], W):
        x = i * _SLOTS
        d, e1 = load(move, x), load(move, x + _WEIGHT)
        e0, n0 = load(weights, s + i), load(weights, c + i)
        q0, i0 = load(rows[1], r + i), load(rows[2], r + i)
        de = e1 - e0
        z1 = load(rows[0], r + i) + de
        q1 = q0 + de * (e1 + e0)
        i1 = 1.0 / z1
        n1 = n0 + de * is_copy
        store(move, x + _ROW, z1)
        store(move, x + _ROW + W, q1)
        store(move, x + _ROW + 2 * W, i1)
        store(new[0], i, load(sums[0], i) + (n1 * i1 - n0 * i0) * share)
        store(new[1], i, load(sums[1], i) + (q1 * i1 * i1 - q0 * i0 * i0) * share)
        store(change, i, load(coupling[PRIOR], i) * (d * (d + load(scores, s + i) * 2.0)) * -1.0)


@jit
def _commit(scores, weights, rows, sums, s, r, move, change, new, accepted):
    """Take the step in the lanes where luck allows it."""
    one = load(move, _LUCK) * 0.0 + 1.0
    for i in range(0, sums.shape[1], W):
        x = i * _SLOTS
        u = load(move, x + _LUCK)
        ok = negative(u - 1.0 - exp(load(change, i)))
        store(scores, s + i, load(scores, s + i) + keep(ok, load(move, x)))
        store(weights, s + i, blend(ok, load(move, x + _WEIGHT), load(weights, s + i)))
        for j in range(3):
            store(rows[j], r + i, blend(ok, load(move, x + _ROW + j * W), load(rows[j], r + i)))
        for j in range(2):
            store(sums[j], i, blend(ok, load(new[j], i), load(sums[j], i)))
        store(accepted, i, load(accepted, i) + keep(ok, one))


@jit
def measure(scores, sums, out):
    """The five sums of every lane; `out` has shape (5, lane)."""
    lanes = sums.shape[1]
    for i in range(0, lanes, W):
        for j in range(4):
            store(out[j], i, load(sums[j], i))
        s2 = load(sums[0], i) * 0.0
        for s in range(0, scores.shape[0], lanes):
            x = load(scores, s + i)
            s2 = s2 + x * x
        store(out[4], i, s2)


@jit
def refresh(scores, weights, rows, sums, L, drift):
    """Recompute every cache from the scores.

    drift : shape (lane,); receives the largest error of the weights, Z, m and q, each relative
        to the largest of its kind in the lane.
    """
    lanes = sums.shape[1]
    for i in range(0, lanes, W):
        m = load(scores, i) * 0.0
        q, z_off, z_top, e_off, e_top = m, m, m, m, m
        for a in range(L):
            copy = a - 1 if a > 0 else L - 1
            z = m * 0.0
            zz = z
            for b in range(L):
                s = (a * L + b) * lanes + i
                e = exp(load(scores, s))
                e_off, e_top = larger(e_off, distance(e, load(weights, s))), larger(e_top, e)
                store(weights, s, e)
                z = z + e
                zz = zz + e * e
            inverse = 1.0 / z
            z_off = larger(z_off, distance(z, load(rows[0], a * lanes + i)))
            z_top = larger(z_top, z)
            store(rows[0], a * lanes + i, z)
            store(rows[1], a * lanes + i, zz)
            store(rows[2], a * lanes + i, inverse)
            m = m + load(weights, (a * L + copy) * lanes + i) * inverse
            q = q + zz * inverse * inverse
        m, q = m * (1.0 / L), q * (1.0 / L)
        error = larger(distance(m, load(sums[0], i)) / m, distance(q, load(sums[1], i)) / q)
        store(drift, i, larger(error, larger(z_off / z_top, e_off / e_top)))
        store(sums[0], i, m)
        store(sums[1], i, q)
        store(sums[2], i, m * 0.0 + 1.0)
        store(sums[3], i, m * 0.0 + 1.0)
