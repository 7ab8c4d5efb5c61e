"""A move of one's own: two scores of a row change places, between the package's sweeps.

Run: python docs/examples/own_move.py
"""

import numpy as np

from mcattn import CopyModel, action
from mcattn.analysis import series
from mcattn.replicas import Replicas


def swapped(S, rng):
    """In every replica and row, the copied score and another one exchanged; S is (r, a, b)."""
    r, L = S.shape[0], S.shape[-1]
    new = S.copy()
    for a in range(L):
        copied, other = a - 1, (a - 1 + rng.integers(1, L, r)) % L
        i = np.arange(r)
        new[i, a, copied], new[i, a, other] = S[i, a, other], S[i, a, copied]
    return new


def move(S, model, P, chi, rng):
    """S after one proposal in each replica, and who accepted it, shape (r,).

    The swap is its own inverse and chosen alike both ways, so that the ratio of proposals is 1
    and exp(-dF) alone decides.
    """
    new = swapped(S, rng)
    F = [action.population(action.order_parameters(x, "softmax"), model, P, chi) for x in (S, new)]
    accept = np.log(rng.random(len(S))) < F[0] - F[1]
    return np.where(accept[:, None, None], new, S), accept


def sample(model, P, chi, replicas=64, sweeps=2000, seed=0, move=move):
    """m of every sweep, shape (t, r), and the acceptance of the move."""
    rng = np.random.default_rng(seed)
    chains = Replicas(model, seed, 0, replicas)
    chains.start("uniform", np.full(replicas, chi))
    chains.set_states(P, chi, 0.0, 0.0, chains.default_step(chi))
    m, accepted = [], 0.0
    for _ in range(sweeps + sweeps // 5):
        X, _ = chains.advance(1, every=1)
        S, accept = move(chains.scores(), model, P, chi, rng)
        chains.restore(S, chains.stream_words())
        m.append(X[0, :, 0])
        accepted += accept.mean() / (sweeps + sweeps // 5)
    return np.array(m[sweeps // 5 :]), accepted


if __name__ == "__main__":
    m, accepted = sample(CopyModel(L=3, V=3, kappa=1, g_s=2, g_w=0.5), P=15, chi=5)
    mean = series.mean(m)
    print(f"<m> = {mean.value:.4f} +- {mean.error:.4f}, {accepted:.0%} of the swaps accepted")
