"""Squared loss of the network and its gradient, for one member of an ensemble.

W has shape (c, v): output token, input token. Scores come from a matrix M of shape (d, d):
M = S itself (d = L), or the fused W_G on token and position inputs (d = V + L, tokens first).
Both kernels give the data part of H alone, sum_mu (1/L) sum_a |y - f|^2 / (2 kappa); the priors
are added by the caller. Hand-written backward pass; source: docs/training.md.
"""

import numpy as np

from mcattn.kernels.jit import jit
from mcattn.kernels.simd import W as WIDTH
from mcattn.kernels.simd import load, store


@jit
def attend(S, A, softmax):
    """Attention pattern of the scores, both shape (a, b)."""
    for a in range(S.shape[0]):
        if not softmax:
            A[a] = S[a]
            continue
        top = S[a].max()
        total = 0.0
        for b in range(S.shape[1]):
            A[a, b] = np.exp(S[a, b] - top)
            total += A[a, b]
        A[a] /= total


@jit
def backward(A, grad, softmax):
    """Turn the derivative with respect to A, shape (a, b), into that with respect to the scores."""
    if softmax:
        for a in range(A.shape[0]):
            mean = 0.0
            for b in range(A.shape[1]):
                mean += A[a, b] * grad[a, b]
            for b in range(A.shape[1]):
                grad[a, b] = A[a, b] * (grad[a, b] - mean)


@jit
def from_counts(W, S, T, P, kappa, softmax, grad_W, grad_S):
    """Loss over P sequences known by their counts alone; positional scores.

    T : counts, shape (b b', n), row b L + b' holding sum_mu x^b x^b'^T, flat and padded with
        zeros to n, a multiple of the vector width. The cost does not depend on P.
    """
    L, V, n = S.shape[0], W.shape[0], T.shape[1]
    A = np.empty((L, L))
    attend(S, A, softmax)
    square, flat = np.zeros(n), np.zeros(n)
    for c in range(V):
        for v in range(V):
            flat[c * V + v] = W[c, v]
            for w in range(V):
                square[v * V + w] += W[c, v] * W[c, w]
    pair, single = np.empty((L, L)), np.empty((L, L))
    _contract(T, square, flat, pair, single)
    scale = 1.0 / (kappa * L)
    loss = _residual(A, pair, single, scale, grad_S) + P / (2.0 * kappa)
    backward(A, grad_S, softmax)
    gram, cross = np.zeros(n), np.zeros(n)
    _expand(T, A, scale, gram, cross)
    for c in range(V):
        for v in range(V):
            grad_W[c, v] = -cross[c * V + v]
        for w in range(V):
            for v in range(V):
                grad_W[c, v] += W[c, w] * gram[w * V + v]
    return loss


@jit
def _contract(T, square, flat, pair, single):
    """Products of every T^bb' with two matrices, `pair` and `single` of shape (b, b')."""
    L, n = pair.shape[0], T.shape[1]
    part = np.empty(2 * WIDTH)
    for b in range(L):
        for c in range(L):
            row = T[b * L + c]
            x = load(row, 0) * load(square, 0)
            y = load(row, 0) * load(flat, 0)
            for i in range(WIDTH, n, WIDTH):
                t = load(row, i)
                x = x + t * load(square, i)
                y = y + t * load(flat, i)
            store(part, 0, x)
            store(part, WIDTH, y)
            pair[b, c] = part[:WIDTH].sum()
            single[b, c] = part[WIDTH:].sum()


@jit
def _residual(A, pair, single, scale, grad):
    """The part of the loss that depends on A, and its derivative, shape (a, b)."""
    L = A.shape[0]
    loss = 0.0
    for a in range(L):
        copied = a - 1 if a > 0 else L - 1
        grad[a] = 0.0
        for c in range(L):
            for b in range(L):
                grad[a, b] += A[a, c] * pair[c, b]
        for b in range(L):
            loss += scale * A[a, b] * (0.5 * grad[a, b] - single[copied, b])
            grad[a, b] = scale * (grad[a, b] - single[copied, b])
    return loss


@jit
def _expand(T, A, scale, gram, cross):
    """`gram` = scale sum_bb' (A^T A)_bb' T^bb' and `cross` = scale sum_ab A_ab T^(a-1)b."""
    L, n = A.shape[0], T.shape[1]
    for b in range(L):
        after = b + 1 if b + 1 < L else 0
        for c in range(L):
            both = 0.0
            for a in range(L):
                both += A[a, b] * A[a, c]
            both *= scale
            one = scale * A[after, c]
            row = T[b * L + c]
            for i in range(0, n, WIDTH):
                t = load(row, i)
                store(gram, i, load(gram, i) + t * both)
                store(cross, i, load(cross, i) + t * one)


@jit
def from_sequences(W, M, tokens, chosen, kappa, softmax, with_tokens, grad_W, grad_M, sums):
    """Loss over the chosen rows of a token table (mu, position), each as often as it is listed.

    with_tokens : M acts on token and position inputs; else it is S.
    sums : shape (4,), gets m, q, tau, r of the attention patterns, averaged over these rows.
    """
    V, L = W.shape[0], tokens.shape[1]
    S, A, back = np.empty((L, L)), np.empty((L, L)), np.empty((L, L))
    turned, grad_turned = W.T.copy(), np.zeros((V, V))
    error, pulled = np.empty(V), np.empty(V)
    scale = 1.0 / (kappa * L)
    grad_M[:] = 0.0
    sums[:] = 0.0
    loss = 0.0
    for mu in chosen:
        x = tokens[mu]
        if with_tokens:
            _scores(M, x, V, S)
            attend(S, A, softmax)
        else:
            attend(M, A, softmax)
        _add_sums(A, sums)
        for a in range(L):
            error[:] = 0.0
            for b in range(L):
                for c in range(V):
                    error[c] += A[a, b] * turned[x[b], c]
            error[x[a - 1]] -= 1.0  # numba wraps negative indices, as Python does
            pulled[:] = 0.0
            for c in range(V):
                loss += error[c] * error[c]
                for v in range(V):
                    pulled[v] += error[c] * W[c, v]
            for b in range(L):
                back[a, b] = scale * pulled[x[b]]
                for c in range(V):
                    grad_turned[x[b], c] += scale * A[a, b] * error[c]
        backward(A, back, softmax)
        if with_tokens:
            _scatter(back, x, V, grad_M)
        else:
            grad_M += back
    grad_W[:] = grad_turned.T
    sums /= len(chosen)
    return 0.5 * scale * loss


@jit
def _scores(M, x, V, S):
    """Scores (a, b) of one sequence from the matrix on token and position inputs."""
    L = len(x)
    for a in range(L):
        for b in range(L):
            S[a, b] = M[x[a], x[b]] + M[x[a], V + b] + M[V + a, x[b]] + M[V + a, V + b]


@jit
def _scatter(back, x, V, grad):
    """Add the derivative with respect to these scores to that of the matrix."""
    L = len(x)
    for a in range(L):
        for b in range(L):
            d = back[a, b]
            grad[x[a], x[b]] += d
            grad[x[a], V + b] += d
            grad[V + a, x[b]] += d
            grad[V + a, V + b] += d


@jit
def _add_sums(A, sums):
    """Add m, q, tau and r of one pattern."""
    L = A.shape[0]
    for a in range(L):
        t = A[a].sum()
        sums[0] += A[a, a - 1] / L
        sums[1] += (A[a] * A[a]).sum() / L
        sums[2] += t / L
        sums[3] += t * t / L


@jit
def adam(theta, grad, first, second, rate, step):
    """One step of Adam on the flat parameters; `step` counts from 1.

    Its moments have the usual decay 0.9 and 0.999. Source: Kingma and Ba, arXiv:1412.6980.
    """
    slow, fast = 1.0 - 0.9**step, 1.0 - 0.999**step
    for i in range(theta.shape[0]):
        first[i] += 0.1 * (grad[i] - first[i])
        second[i] += 0.001 * (grad[i] * grad[i] - second[i])
        theta[i] -= rate * (first[i] / slow) / (np.sqrt(second[i] / fast) + 1e-8)
