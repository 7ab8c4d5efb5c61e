"""The exact action of one pattern on one data set, and its gradient, from pair counts.

F = chi energy + log_det, rho = kappa/g_w (theory.md, "Exact effective action"):

    energy = |S|^2/(2 g_s) + P/(2 kappa) - tr(C (G + rho)^-1 C^T)/(2 kappa)
    log_det = (V/2) ln det(1 + G/rho)

The pattern (a, b) is contracted with the counts T^bb' and the derivatives are expanded again,
each in one pass over T. T^b'b is the transpose of T^bb', so only pairs b <= b' are kept, and
counts are whole numbers, so single precision holds them exactly up to 2^24: the table of L = V =
16 has 136 KB and stays in the second-level cache. Nothing depends on other replicas.

Rows of positions and of tokens are padded to whole vectors: `wide` gives their length. A V x V
matrix lies flat, row after row, padded to n numbers; `table` has shape (pair, n).
"""

import numpy as np

from mcattn.kernels.jit import jit
from mcattn.kernels.simd import W, exp, load, load_singles, store, total

CHUNK = 2 * W


@jit
def wide(length):
    """The length padded to whole vectors."""
    return (length + W - 1) // W * W


@jit
def space(L, V):
    """Scratch for one pattern: all that the functions below share."""
    n = (V * wide(V) + CHUNK - 1) // CHUNK * CHUNK
    pairs = L * (L + 1) // 2
    pairs += pairs & 1
    return (
        np.zeros((4, L, wide(L))),  # pattern, its overlap, derivatives of both
        np.zeros((3, pairs)),  # weights of the pairs, then derivatives
        np.zeros((3, n)),  # contracted counts, then the matrices they are expanded with
        np.zeros((4, V, wide(V))),  # inverse of G + rho, C, mean weights, their square
    )


@jit
def evaluate(S, table, P, kappa, g_s, g_w, softmax, rooms):
    """Energy and log_det of the scores S, shape (a, wide(b)), zero beyond L."""
    positions, weights, flat, tokens = rooms
    L, V = S.shape[0], tokens.shape[1]
    A, overlap = positions[0], positions[1]
    attend(S, A, softmax)
    gram(A, overlap)
    weigh(A, overlap, weights)
    contract(table, weights, flat)
    explained, log_det = _solve(flat, tokens, kappa / g_w)
    square = S[0, 0] * 0.0
    for a in range(L):
        x = load(S[a], 0) * load(S[a], 0)
        for b in range(W, S.shape[1], W):
            x = x + load(S[a], b) * load(S[a], b)
        square += total(x)
    energy = square / (2.0 * g_s) + (P - explained) / (2.0 * kappa)
    return energy, 0.5 * V * log_det


@jit
def slope(S, table, chi, kappa, g_s, pull_m, pull_tau, softmax, rooms, grad):
    """Gradient of F at the scores evaluated last, shape (a, wide(b)).

    pull_m, pull_tau : derivatives of a further term, a function of m and tau.
    """
    positions, weights, flat, tokens = rooms
    L = S.shape[0]
    A, Q, R = positions[0], positions[2], positions[3]
    _duals(flat, tokens, chi / kappa)
    expand(table, flat, weights)
    k = 0
    for b in range(L):
        for c in range(b, L):
            Q[b, c] = Q[c, b] = 2.0 / L * weights[0, k]
            R[b, c] = (weights[1, k] + pull_tau) / L
            R[c, b] = (weights[(1 if b == c else 2), k] + pull_tau) / L
            k += 1
    for a in range(L):
        copied = a - 1 if a > 0 else L - 1
        R[copied, copied] += pull_m / L
        for b in range(0, S.shape[1], W):
            x = load(R[copied], b)
            for c in range(L):
                x = x + load(Q[c], b) * A[a, c]
            store(grad[a], b, x)
    _backward(A, S, grad, chi / g_s, softmax)


@jit
def losses(tokens, p, sums):
    """Test loss per position of the mean weights, and chi/kappa times what their scatter adds.

    With the means gram = q Sigma + r p p^T and cross = m Sigma + tau p p^T over fresh tokens of
    probabilities p, shape (v,), the first is 1 + tr W (gram W^T - 2 cross^T); the posterior of
    every row of W has the covariance (kappa/chi) (G + rho)^-1, so the second is
    V tr (G + rho)^-1 gram. `sums` begins with m, q, tau, r of the pattern evaluated last.
    """
    inverse, mean = tokens[0], tokens[2]
    m, q, tau, r = sums[0], sums[1], sums[2], sums[3]
    V = len(p)
    loss, scatter = 1.0, 0.0
    for v in range(V):
        through, across = 0.0, 0.0
        for w in range(V):
            through += mean[v, w] * p[w]
            across += inverse[v, w] * p[w]
            loss += q * mean[v, w] * mean[v, w] * p[w]
        loss += (r - q) * through * through - 2.0 * p[v] * (m * mean[v, v] + (tau - m) * through)
        scatter += p[v] * (q * inverse[v, v] + (r - q) * across)
    return loss, V * scatter


@jit
def attend(S, A, softmax):
    """Attention pattern of the scores, both shape (a, wide(b)); zero beyond L."""
    L = S.shape[0]
    for a in range(L):
        if not softmax:
            A[a] = S[a]
            continue
        top = S[a, 0]
        for b in range(1, L):
            top = max(top, S[a, b])
        for b in range(0, S.shape[1], W):
            store(A[a], b, exp(load(S[a], b) - top))
        norm = 0.0
        for b in range(L):
            norm += A[a, b]
        norm = 1.0 / norm
        for b in range(0, S.shape[1], W):
            store(A[a], b, load(A[a], b) * norm)
        for b in range(L, S.shape[1]):
            A[a, b] = 0.0


@jit
def gram(A, overlap):
    """overlap = A^T A."""
    L = A.shape[0]
    for c in range(L):
        for b in range(0, A.shape[1], W):
            x = load(A[0], b) * A[0, c]
            for a in range(1, L):
                x = x + load(A[a], b) * A[a, c]
            store(overlap[c], b, x)


@jit
def weigh(A, overlap, weights):
    """What each pair b <= c weighs in G, C and the transpose of C; U^ab = T^(a-1)b."""
    L = A.shape[0]
    k = 0
    for b in range(L):
        after = b + 1 if b + 1 < L else 0
        for c in range(b, L):
            # A pair on the diagonal appears once in the sum, and twice after symmetrising.
            once = 0.5 if b == c else 1.0
            weights[0, k] = once * overlap[b, c] / L
            weights[1, k] = A[after, c] / L
            weights[2, k] = A[c + 1 if c + 1 < L else 0, b] / L if b != c else 0.0
            k += 1


@jit
def contract(table, weights, flat):
    """Three weighted sums over the pairs, each a flat matrix, two pairs at a time."""
    flat[:] = 0.0
    for k in range(0, table.shape[0], 2):
        g, x, u = weights[0, k], weights[1, k], weights[2, k]
        h, y, v = weights[0, k + 1], weights[1, k + 1], weights[2, k + 1]
        for j in range(0, flat.shape[1], W):
            s, t = load_singles(table[k], j), load_singles(table[k + 1], j)
            store(flat[0], j, load(flat[0], j) + s * g + t * h)
            store(flat[1], j, load(flat[1], j) + s * x + t * y)
            store(flat[2], j, load(flat[2], j) + s * u + t * v)


@jit
def expand(table, flat, weights):
    """Scalar products of every pair's counts with three flat matrices, two pairs at a time."""
    for k in range(0, table.shape[0], 2):
        zero = load(flat[0], 0) * 0.0
        g, h, x, y, u, v = zero, zero, zero, zero, zero, zero
        for j in range(0, flat.shape[1], W):
            s, t = load_singles(table[k], j), load_singles(table[k + 1], j)
            one, two, three = load(flat[0], j), load(flat[1], j), load(flat[2], j)
            g, h = g + s * one, h + t * one
            x, y = x + s * two, y + t * two
            u, v = u + s * three, v + t * three
        weights[0, k], weights[0, k + 1] = total(g), total(h)
        weights[1, k], weights[1, k + 1] = total(x), total(y)
        weights[2, k], weights[2, k + 1] = total(u), total(v)


@jit
def _solve(flat, tokens, ridge):
    """Mean weights C (G + rho)^-1; tr(weights C^T) and ln det(1 + G/rho)."""
    inverse, C, mean = tokens[0], tokens[1], tokens[2]
    V, side = inverse.shape
    for v in range(V):
        for w in range(V):
            i, j = v * side + w, w * side + v
            inverse[v, w] = flat[0, i] + flat[0, j]
            C[v, w] = flat[1, i] + flat[2, j]
        inverse[v, v] += ridge
    log_det = invert(inverse) - V * np.log(ridge)
    explained = 0.0
    for v in range(V):
        part = load(C[v], 0) * 0.0
        for j in range(0, side, W):
            x = load(inverse[0], j) * C[v, 0]
            for w in range(1, V):
                x = x + load(inverse[w], j) * C[v, w]
            store(mean[v], j, x)
            part = part + x * load(C[v], j)
        explained += total(part)
    return explained, log_det


@jit
def invert(M):
    """Invert a symmetric positive matrix, shape (V, wide(V)), in place; ln of its determinant.

    Gauss-Jordan elimination, which needs no pivots here.
    """
    V, side = M.shape
    log_det = 0.0
    for k in range(V):
        pivot = M[k, k]
        log_det += np.log(pivot)
        pivot = 1.0 / pivot
        M[k, k] = 1.0
        for j in range(0, side, W):
            store(M[k], j, load(M[k], j) * pivot)
        for i in range(V):
            if i != k:
                factor = M[i, k]
                M[i, k] = 0.0
                for j in range(0, side, W):
                    store(M[i], j, load(M[i], j) - load(M[k], j) * factor)
    return log_det


@jit
def _duals(flat, tokens, gain):
    """Derivatives of F with respect to G and C, and the latter's transpose, as flat matrices."""
    inverse, mean, square = tokens[0], tokens[2], tokens[3]
    V, side = inverse.shape
    for v in range(V):
        for j in range(0, side, W):
            x = load(inverse[v], j) * (0.5 * V)
            y = x * 0.0
            for c in range(V):
                y = y + load(mean[c], j) * mean[c, v]
            store(square[v], j, x + y * (0.5 * gain))
    for v in range(V):
        for w in range(V):
            i, j = v * side + w, w * side + v
            flat[0, i] = square[v, w]
            flat[1, i] = -gain * mean[v, w]
            flat[2, j] = -gain * mean[v, w]


@jit
def _backward(A, S, grad, prior, softmax):
    """Turn derivatives with respect to the pattern into those with respect to the scores."""
    L, side = S.shape
    for a in range(L):
        mean = 0.0
        if softmax:
            x = load(A[a], 0) * load(grad[a], 0)
            for b in range(W, side, W):
                x = x + load(A[a], b) * load(grad[a], b)
            mean = total(x)
        for b in range(0, side, W):
            x = load(grad[a], b)
            if softmax:
                x = load(A[a], b) * (x - mean)
            store(grad[a], b, x + load(S[a], b) * prior)
