"""An action of one's own: a cost of attending widely, sampled directly and by reweighting.

Run: python docs/examples/own_action.py
"""

import numpy as np

import mcattn
from mcattn import CopyModel, action
from mcattn.analysis import series


def own_action(S, model, P, chi, cost):
    """F of the population plus chi cost (1 - q), shape (r,), of scores S, shape (r, a, b)."""
    X = action.order_parameters(S, model.attention)
    return action.population(X, model, P, chi) + chi * cost * (1 - X[..., 1])


def sample(model, P, chi, cost, replicas=64, sweeps=1500, step=1.5, seed=0):
    """X after every sweep of single-score updates, shape (t, r, 5): plain, slow and general."""
    rng = np.random.default_rng(seed)
    L = model.L
    S = np.sqrt(model.g_s / chi) * rng.standard_normal((replicas, L, L))
    F, rows = own_action(S, model, P, chi, cost), []
    for t in range(sweeps + sweeps // 5):
        for a, b in np.ndindex(L, L):
            new = S.copy()
            new[:, a, b] += step * rng.uniform(-1, 1, replicas)
            F_new = own_action(new, model, P, chi, cost)
            accept = np.log(rng.random(replicas)) < F - F_new
            S[accept], F[accept] = new[accept], F_new[accept]
        if t >= sweeps // 5:
            rows.append(action.order_parameters(S, model.attention))
    return np.array(rows)


def reweighted(model, P, chi, cost, replicas=64, sweeps=4000, seed=0):
    """<m> and <m> with the cost, from the package's kernels: each chain gives one value of each."""
    X, _ = mcattn.sample(model, P, chi, replicas, sweeps, thermalize=500, seed=seed)
    weight = np.exp(-chi * cost * (1 - X[..., 1]))
    with_cost = (weight * X[..., 0]).sum(axis=0) / weight.sum(axis=0)
    return series.independent(X[..., 0].mean(axis=0)), series.independent(with_cost)


if __name__ == "__main__":
    model, P, chi, cost = CopyModel(L=3, V=3, kappa=1, g_s=2, g_w=0.5), 15, 5, 0.3
    direct = series.mean(sample(model, P, chi, cost)[..., 0])
    without, by_weights = reweighted(model, P, chi, cost)
    for name, mean in (("no cost", without), ("direct", direct), ("reweighted", by_weights)):
        print(f"{name:10s} <m> = {mean.value:.4f} +- {mean.error:.4f}")
