"""Hamiltonian Monte Carlo of one pattern under the exact action; a sweep is one trajectory.

Velocities are drawn anew for every trajectory, which then follows the force by leapfrog steps
and is accepted or rejected as a whole (Duane, Kennedy, Pendleton and Roweth 1987). The step is
drawn within 20 % of its value, so that no trajectory length is in step with an oscillation.
Scores and velocities have shape (a, wide(b)) and are zero beyond L.
"""

import math

import numpy as np

from mcattn.kernels.data_action import evaluate, losses, slope, wide
from mcattn.kernels.jit import jit
from mcattn.kernels.simd import W, load, store, total
from mcattn.kernels.stream import uniform

# Of a state. The bias is BIAS (u - CENTER)^2 with u = ALONG_M m + ALONG_TAU tau, or |u| if FOLD
# is not zero.
P, CHI, BIAS, CENTER, STEP, ALONG_M, ALONG_TAU, FOLD = 0, 1, 2, 3, 4, 5, 6, 7
STATE = 8
COLUMNS = 9  # of a row: m, q, tau, r, |S|^2, energy, log_det, loss, drawn_loss
JITTER = 0.2


@jit
def motion(L):
    """Scratch of a trajectory: scores, velocities, slopes at its start and where it is."""
    return np.zeros((4, L, wide(L)))


@jit
def run(
    S, table, p, state, words, kappa, g_s, g_w, softmax, leapfrogs, rooms, paths, out,
    sweeps, every, done,
):  # fmt: skip
    """Do `sweeps` trajectories; write a row after those whose count from the stage's start hits
    `every`; the number accepted.

    `done` of the stage lie behind; `every` = 0 measures nothing. `p` are the probabilities of the
    tokens, `out` has shape (row, COLUMNS).
    """
    place, v, old, new = paths[0], paths[1], paths[2], paths[3]
    taken, accepted = 0, 0
    data = (state, kappa, g_s, g_w, softmax)
    row = np.zeros(COLUMNS)
    energy, log_det, F = force(S, table, data, rooms, old)
    describe(S, p, state[CHI], kappa, energy, log_det, rooms, row)
    for t in range(sweeps):
        step = state[STEP] * (1.0 + JITTER * (2.0 * uniform(words) - 1.0))
        draw_velocities(v, words)
        before = F + kinetic(v)
        place[:] = S
        new[:] = old
        e, d, F1 = energy, log_det, F
        push(v, new, -0.5 * step)
        for i in range(leapfrogs):
            push(place, v, step)
            e, d, F1 = force(place, table, data, rooms, new)
            push(v, new, -0.5 * step if i == leapfrogs - 1 else -step)
        # A comparison with a number that is none is false: such a trajectory is rejected.
        if uniform(words) < math.exp(min(0.0, before - F1 - kinetic(v))):
            S[:] = place
            old[:] = new
            energy, log_det, F = e, d, F1
            accepted += 1
            describe(S, p, state[CHI], kappa, energy, log_det, rooms, row)
        if every > 0 and (done + t + 1) % every == 0:
            out[taken] = row
            taken += 1
    return accepted


@jit
def force(S, table, data, rooms, grad):
    """Energy, log_det and F with the bias; `grad` gets the gradient of the latter."""
    state, kappa, g_s, g_w, softmax = data
    energy, log_det = evaluate(S, table, state[P], kappa, g_s, g_w, softmax, rooms)
    A = rooms[0][0]
    u = state[ALONG_M] * copy_overlap(A) + state[ALONG_TAU] * A.sum() / A.shape[0]
    sign = -1.0 if state[FOLD] != 0.0 and u < 0.0 else 1.0
    away = sign * u - state[CENTER]
    pull = 2.0 * state[BIAS] * away * sign
    of_m, of_tau = state[ALONG_M] * pull, state[ALONG_TAU] * pull
    slope(S, table, state[CHI], kappa, g_s, of_m, of_tau, softmax, rooms, grad)
    return energy, log_det, state[CHI] * energy + log_det + state[BIAS] * away**2


@jit
def parts(S, table, p, sequences, chi, kappa, g_s, g_w, softmax, rooms, row):
    """The row of these scores on that many sequences, shape (COLUMNS,)."""
    energy, log_det = evaluate(S, table, sequences, kappa, g_s, g_w, softmax, rooms)
    describe(S, p, chi, kappa, energy, log_det, rooms, row)


@jit
def describe(S, p, chi, kappa, energy, log_det, rooms, row):
    """Fill a row, shape (COLUMNS,), for the scores evaluated last."""
    measure(S, rooms[0][0], row)
    row[5], row[6] = energy, log_det
    row[7], scatter = losses(rooms[3], p, row)
    row[8] = row[7] + kappa / chi * scatter


@jit
def copy_overlap(A):
    """m of the pattern."""
    m = 0.0
    for a in range(A.shape[0]):
        m += A[a, a - 1 if a > 0 else A.shape[0] - 1]
    return m / A.shape[0]


@jit
def measure(S, A, row):
    """The five sums of scores and pattern."""
    L = A.shape[0]
    row[:5] = 0.0
    row[0] = copy_overlap(A)
    for a in range(L):
        t = 0.0
        for b in range(L):
            t += A[a, b]
            row[1] += A[a, b] * A[a, b] / L
            row[4] += S[a, b] * S[a, b]
        row[2] += t / L
        row[3] += t * t / L


@jit
def draw_velocities(v, words):
    """Standard normal velocities, by the polar form of Box and Muller."""
    L = v.shape[0]
    for a in range(L):
        for b in range(0, L, 2):
            # 1 - u is in (0, 1]: its logarithm is finite.
            size = math.sqrt(-2.0 * math.log(1.0 - uniform(words)))
            angle = 2.0 * math.pi * uniform(words)
            v[a, b] = size * math.cos(angle)
            if b + 1 < L:
                v[a, b + 1] = size * math.sin(angle)


@jit
def kinetic(v):
    """Half the sum of the squared velocities."""
    out = 0.0
    for a in range(v.shape[0]):
        x = load(v[a], 0) * load(v[a], 0)
        for b in range(W, v.shape[1], W):
            x = x + load(v[a], b) * load(v[a], b)
        out += total(x)
    return 0.5 * out


@jit
def push(x, y, factor):
    """x += factor y."""
    for a in range(x.shape[0]):
        for b in range(0, x.shape[1], W):
            store(x[a], b, load(x[a], b) + load(y[a], b) * factor)
