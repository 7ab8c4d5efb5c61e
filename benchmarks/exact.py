"""The exact action: time of value and gradient, and of an effective sample by both samplers.

Usage: OPENBLAS_NUM_THREADS=1 python benchmarks/exact.py

Value and gradient are compared with their four matrix products, batched over 32 replicas and
timed in turn. An effective sample is one of the slowest of m, q and |S|^2; autocorrelation times
are those of eight chains at L = V = 16, chi = 10. CPU times on one core.
"""

import time

import numpy as np

from mcattn import data, streams
from mcattn.analysis import series
from mcattn.exact_replicas import ExactReplicas, PairTables, packed
from mcattn.kernels import data_action, data_metropolis
from mcattn.model import CopyModel
from mcattn.protocols import States

MODEL, CHI, CHAINS, REPEATS = CopyModel(), 10.0, 8, 15


def seconds(work, times):
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def value_and_gradient(tokens):
    """Seconds per pattern of the kernel, and of the four products by BLAS: least of repeats."""
    L, V = MODEL.L, MODEL.V
    T = data.counts(tokens, V)
    table, rooms = packed(T), data_action.space(L, V)
    S = np.random.default_rng(0).normal(size=(L, L))
    grad, flat = np.empty_like(S), T.reshape(L * L, V * V)
    batch = np.random.default_rng(1).random((32, L * L))
    numbers = (MODEL.kappa, MODEL.g_s, MODEL.g_w, True)

    def kernel():
        data_action.evaluate(S, table, float(len(tokens)), *numbers, rooms)
        data_action.slope(S, table, CHI, MODEL.kappa, MODEL.g_s, 0.0, 0.0, True, rooms, grad)

    def products():
        for _ in range(4):
            batch @ flat

    kernel()
    found = [(seconds(kernel, 300), seconds(products, 20) / 32) for _ in range(REPEATS)]
    return np.min(found, axis=0)


def hmc(tokens, start, sweeps=2000):
    P, none = len(tokens), np.zeros(1, dtype=int)
    replicas = ExactReplicas(
        MODEL, PairTables([tokens], MODEL.V), np.zeros(CHAINS, dtype=int), 1, 0
    )
    replicas.start(start, np.full(CHAINS, CHI))
    states = States(*(x * np.ones(1) for x in (P, CHI, 0.0, 0.0)), none, none, none, none)
    step = replicas.longest_step(np.array([CHI]))
    for _ in range(20):
        replicas.assign(states, step, np.zeros(CHAINS, dtype=int))
        rate = replicas.advance(20)[1].mean() / 20
        step = np.minimum(step * np.exp(2 * (rate - 0.9)), replicas.longest_step(CHI))
    began = time.process_time()
    X = replicas.advance(sweeps, every=1)[0]
    return X, (time.process_time() - began) / sweeps / CHAINS


def metropolis(tokens, start, sweeps=250):
    T, spent = data.counts(tokens, MODEL.V), 0.0
    X = np.zeros((CHAINS, sweeps, 7))
    state = np.array([len(tokens), CHI, 0.0, 0.0, 0.9])
    numbers = (MODEL.kappa, MODEL.g_s, MODEL.g_w, True)
    replicas = ExactReplicas(MODEL, PairTables([tokens], MODEL.V), np.zeros(CHAINS, int), 2, 0)
    replicas.start(start, np.full(CHAINS, CHI))
    for i, S in enumerate(replicas.scores()):
        words = streams.update_words(2, i, 0)
        data_metropolis.run(S, T, state, words, *numbers, np.zeros((60, 7)), 60, 1)
        began = time.process_time()
        data_metropolis.run(S, T, state, words, *numbers, X[i], sweeps, 1)
        spent += time.process_time() - began
    return X.swapaxes(0, 1), spent / sweeps / CHAINS


def main():
    kernel, products = value_and_gradient(data.draw(MODEL, 310, 0))
    print(f"value and gradient {kernel * 1e6:.1f} us, four products {products * 1e6:.1f} us")
    for P, start in ((310, "uniform"), (420, "copy")):
        for sampler in (hmc, metropolis):
            X, each = sampler(data.draw(MODEL, P, 0), start)
            tau = [series.mean(X[..., i]).tau for i in (0, 1, 4)]
            cost = each * max(tau)
            print(
                f"{sampler.__name__:10s} P = {P} {start:7s} m = {X[..., 0].mean():.4f}, sweep "
                f"{each * 1e6:5.0f} us, tau of m, q, |S|^2 " + ", ".join(f"{t:.2f}" for t in tau),
                f"-> {cost * 1e3:.2f} ms an effective sample",
            )


if __name__ == "__main__":
    main()
