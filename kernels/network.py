"""Squared loss of the network and its gradient, for one member of an ensemble.

W has shape (c, v): output token, input token. Scores come from a matrix M of shape (d, d):
M = S itself (d = L), or the fused W_G on token and position inputs (d = V + L, tokens first).
Both kernels give the data part of H alone, sum_mu (1/L) sum_a |y - f|^2 / (2 kappa); the priors
are added by the caller. Hand-written backward pass; source: docs/training.md.
"""

import numpy as np

from mcattn.kernels.data_action import attend as attend_whole
from mcattn.kernels.data_action import contract, expand, gram, weigh, wide
from mcattn.kernels.jit import jit


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
def from_counts(W, S, table, P, kappa, softmax, grad_W, grad_S):
    """Loss over P sequences known by their counts alone; positional scores.

    table : counts of the pairs b <= b', as in kernels/data_action.py. The cost does not depend
        on P.
    """
    L, V, side = S.shape[0], W.shape[0], wide(W.shape[0])
    scores, A, overlap = np.zeros((3, L, wide(L)))
    scores[:, :L] = S
    attend_whole(scores, A, softmax)
    weights, flat = np.zeros((3, table.shape[0])), np.zeros((3, table.shape[1]))
    for c in range(V):
        for v in range(V):
            flat[1, c * side + v] = flat[2, v * side + c] = W[c, v]
            for w in range(V):
                flat[0, v * side + w] += W[c, v] * W[c, w]
    expand(table, flat, weights)
    pair, single = np.empty((L, L)), np.empty((L, L))
    k = 0
    for b in range(L):
        for c in range(b, L):
            pair[b, c] = pair[c, b] = weights[0, k]
            single[c, b] = weights[2, k]
            single[b, c] = weights[1, k]
            k += 1
    loss = _residual(A, pair, single, 1.0 / (kappa * L), grad_S) + P / (2.0 * kappa)
    backward(A[:, :L], grad_S, softmax)
    gram(A, overlap)
    weigh(A, overlap, weights)
    contract(table, weights, flat)
    for c in range(V):
        for v in range(V):
            grad_W[c, v] = -(flat[1, c * side + v] + flat[2, v * side + c]) / kappa
        for w in range(V):
            for v in range(V):
                both = flat[0, w * side + v] + flat[0, v * side + w]
                grad_W[c, v] += W[c, w] * both / kappa
    return loss


@jit
def _residual(A, pair, single, scale, grad):
    """The part of the loss that depends on A, and its derivative, shape (a, b)."""
    L = grad.shape[0]
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
