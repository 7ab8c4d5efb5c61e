"""Single-score Metropolis under the exact action, for one pattern: the check of data_hmc.

A new score at (a, b) turns row a of the pattern into g A_a + h e_b. With this row's
H_b = (1/L) sum_b' A_ab' T^bb' at hand, its part of G becomes
g^2 G_a + g h (H_b + H_b^T) + (h^2/L) T^bb, so an update costs one elimination of a V x V matrix
and no pass over the counts. A bias acts on m.

Arrays: `S`, `A` (a, b); `T` (b, b', v, v'), all counts; `G`, `C` (v, v'), as in theory.md.
"""

import math

import numpy as np

from mcattn.kernels.data_action import invert, wide
from mcattn.kernels.data_hmc import BIAS, CENTER, CHI, STEP, P, measure
from mcattn.kernels.jit import jit
from mcattn.kernels.stream import uniform


@jit
def run(S, T, state, words, kappa, g_s, g_w, softmax, out, sweeps, every):
    """Do `sweeps` sweeps; a row after every `every`-th; the number of updates accepted.

    Rows as in data_hmc.run; the arrays S and `words` change.
    """
    L, V = S.shape[0], T.shape[2]
    A = np.empty((L, L))
    H, row_G, row_C = np.empty((L, V, V)), np.empty((V, V)), np.empty((V, V))
    M = np.zeros((V, wide(V)))
    taken, accepted = 0, 0
    for t in range(sweeps):
        _attend(S, A, softmax)
        G, C = _matrices(A, T)
        m = _overlap(A)
        energy, log_det = _action(G, C, S, state, kappa, g_s, g_w, M)
        F = _total(energy, log_det, m, state)
        for a in range(L):
            copied = a - 1 if a > 0 else L - 1
            _row(A[a], T, T[copied], H, row_G, row_C)
            for b in range(L):
                d = state[STEP] * (2.0 * uniform(words) - 1.0)
                g, h = 1.0, d
                if softmax:
                    h = A[a, b] * (math.exp(d) - 1.0)
                    g = 1.0 / (1.0 + h)
                    h *= g
                new_row = g * g * row_G + g * h * (H[b] + H[b].T) + h * h / L * T[b, b]
                new_part = g * row_C + h / L * T[copied, b]
                new_G, new_C = G + (new_row - row_G), C + (new_part - row_C)
                new_m = m + ((g - 1.0) * A[a, copied] + (h if b == copied else 0.0)) / L
                S[a, b] += d
                e, c = _action(new_G, new_C, S, state, kappa, g_s, g_w, M)
                new_F = _total(e, c, new_m, state)
                if uniform(words) < math.exp(min(0.0, F - new_F)):
                    G, C, m, F, energy, log_det = new_G, new_C, new_m, new_F, e, c
                    row_G[:], row_C[:] = new_row, new_part
                    for c in range(L):
                        A[a, c] *= g
                        H[c] = g * H[c] + h / L * T[c, b]
                    A[a, b] += h
                    accepted += 1
                else:
                    S[a, b] -= d
        if (t + 1) % every == 0:
            measure(S, A, out[taken])
            out[taken, 5], out[taken, 6] = energy, log_det
            taken += 1
    return accepted


@jit
def _attend(S, A, softmax):
    for a in range(S.shape[0]):
        A[a] = S[a]
        if softmax:
            A[a] = np.exp(S[a] - S[a].max())
            A[a] /= A[a].sum()


@jit
def _matrices(A, T):
    """G and C of a pattern, from their definition."""
    L, V = A.shape[0], T.shape[2]
    G, C = np.zeros((V, V)), np.zeros((V, V))
    for a in range(L):
        for b in range(L):
            C += A[a, b] / L * T[a - 1 if a > 0 else L - 1, b]
            for c in range(L):
                G += A[a, b] * A[a, c] / L * T[b, c]
    return G, C


@jit
def _row(row, T, U, H, row_G, row_C):
    """H and this row's parts of G and C; U^b are the counts with its copied position."""
    L = row.shape[0]
    H[:] = 0.0
    row_G[:] = 0.0
    row_C[:] = 0.0
    for b in range(L):
        for c in range(L):
            H[b] += row[c] / L * T[b, c]
        row_G += row[b] * H[b]
        row_C += row[b] / L * U[b]


@jit
def _overlap(A):
    m = 0.0
    for a in range(A.shape[0]):
        m += A[a, a - 1 if a > 0 else A.shape[0] - 1]
    return m / A.shape[0]


@jit
def _action(G, C, S, state, kappa, g_s, g_w, M):
    """Energy and log_det."""
    V, ridge = G.shape[0], kappa / g_w
    M[:, :V] = G
    for v in range(V):
        M[v, v] += ridge
    log_det = invert(M) - V * np.log(ridge)
    explained = 0.0
    for v in range(V):
        for w in range(V):
            x = 0.0
            for u in range(V):
                x += C[v, u] * M[u, w]
            explained += x * C[v, w]
    energy = (S * S).sum() / (2.0 * g_s) + (state[P] - explained) / (2.0 * kappa)
    return energy, 0.5 * V * log_det


@jit
def _total(energy, log_det, m, state):
    """F with the bias."""
    return state[CHI] * energy + log_det + state[BIAS] * (m - state[CENTER]) ** 2
