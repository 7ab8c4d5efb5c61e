"""One sampler of peers.py, in this process: prints its record as JSON.

Usage: python benchmarks/peer.py SAMPLER PHASE P

A sampler takes P and the phase and gives the series of m, shape (t, chain), and the CPU seconds
that it took. All start from patterns that the package has brought to equilibrium.
"""

import json
import sys
import time

import numpy as np

from mcattn.analysis import series
from mcattn.jobfile import Fixed
from mcattn.model import CopyModel
from mcattn.ranks import Serial
from mcattn.replicas import Replicas
from mcattn.sampler import Sampler

MODEL, CHI = CopyModel(), 10.0
L, V = MODEL.L, MODEL.V
ROW = np.arange(L)
WARM, SAMPLES = 1000, 32_000
GROUP = 16  # rows averaged before tau is estimated


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def overlap(A):
    """m of attention patterns, shape (..., a, b)."""
    return A[..., ROW, ROW - 1].mean(axis=-1)


def log_density(P, log=np.log, normalise=softmax):
    """log of the density of flat scores, shape (..., a b): a function."""
    eps = MODEL.kappa * V / (MODEL.g_w * P)
    gain = CHI * P / (2 * MODEL.kappa) * (V - 1) / V

    def density(x):
        A = normalise(x.reshape(*x.shape[:-1], L, L))
        m, d = overlap(A), (A * A).sum(axis=(-2, -1)) / L + eps
        prior = CHI / (2 * MODEL.g_s) * (x * x).sum(axis=-1)
        return gain * m * m / d - V * (V - 1) / 2 * log(d) - prior

    return density


def started(P, phase, chains):
    """Flat scores in equilibrium, shape (chain, a b)."""
    replicas = Replicas(MODEL, 9, 0, chains)
    replicas.start(phase, CHI)
    replicas.set_states(P, CHI, 0.0, 0.0, replicas.default_step(CHI))
    replicas.advance(500)
    return replicas.scores().reshape(chains, L * L)


def mcattn(P, phase, sweeps=60_000):
    """A job of kind "fixed" at its defaults: step tuned, X measured, caches checked."""
    job = Fixed(kind="fixed", P=[P], chi=[CHI], start=phase, sweeps=sweeps)
    plan, blocks = job.plan(), []
    sampler = Sampler(plan, MODEL, 1, Serial(), 0, plan.replicas, None)
    while sampler.done < job.thermalize:
        sampler.advance()
    began = time.process_time()
    while not sampler.finished:
        blocks.append(sampler.advance().X[..., 0])
    return np.concatenate(blocks), time.process_time() - began


def jax_parts(P):
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax, log_density(P, jax.numpy.log, jax.nn.softmax)


def timed(jax, run, state, seed=1):
    """Second call of a compiled `run(key, state)` -> (state, series): its series and seconds."""
    state, _ = jax.block_until_ready(run(jax.random.PRNGKey(seed), state))
    began = time.process_time()
    _, m = jax.block_until_ready(run(jax.random.PRNGKey(seed + 1), state))
    return np.asarray(m), time.process_time() - began


def blackjax_nuts(P, phase):
    """Step and mass matrix by window adaptation."""
    jax, density = jax_parts(P)
    import blackjax

    adaptation = blackjax.window_adaptation(blackjax.nuts, density)
    start = started(P, phase, 1)[0]
    (state, found), _ = adaptation.run(jax.random.PRNGKey(0), start, num_steps=WARM)
    nuts = blackjax.nuts(density, **found)

    def step(state, key):
        state, _ = nuts.step(key, state)
        return state, overlap(jax.nn.softmax(state.position.reshape(L, L)))

    def run(key, state):
        return jax.lax.scan(step, state, jax.random.split(key, SAMPLES))

    m, seconds = timed(jax, jax.jit(run), state)
    return m[:, None], seconds


def blackjax_hmc(P, phase, chains=64, samples=4000, steps=6, size=0.15):
    """Tuned by hand to this density: six leapfrog steps of 0.15, unit masses."""
    jax, density = jax_parts(P)
    import blackjax

    hmc = blackjax.hmc(density, size, np.ones(L * L), steps)

    def step(state, key):
        state, _ = jax.vmap(hmc.step)(jax.random.split(key, chains), state)
        return state, overlap(jax.nn.softmax(state.position.reshape(chains, L, L)))

    def run(key, state):
        return jax.lax.scan(step, state, jax.random.split(key, samples))

    state = jax.vmap(hmc.init)(jax.numpy.asarray(started(P, phase, chains)))
    return timed(jax, jax.jit(run), state)


def numpyro(P, phase, compiling=False):
    """Every run compiles: the cost of sampling alone is the difference of two lengths.

    With compilation: one run of SAMPLES / 4, as a user would call it.
    """
    jax, density = jax_parts(P)
    from numpyro.infer import MCMC, NUTS

    start, seconds, found = jax.numpy.asarray(started(P, phase, 1)[0]), {}, {}
    for count in (SAMPLES // 4, SAMPLES):
        nuts = NUTS(potential_fn=lambda x: -density(x))
        mcmc = MCMC(nuts, num_warmup=WARM, num_samples=count, progress_bar=False)
        mcmc.warmup(jax.random.PRNGKey(0), init_params=start)
        began = time.process_time()
        mcmc.run(jax.random.PRNGKey(1))
        found[count] = np.asarray(mcmc.get_samples())
        seconds[count] = time.process_time() - began
        if compiling:
            break
    x = found[count]
    m = overlap(softmax(x.reshape(-1, L, L)))[:, None]
    if compiling:
        return m, seconds[count]
    return m, (seconds[SAMPLES] - seconds[SAMPLES // 4]) * 4 / 3


def emcee(P, phase, walkers=544, steps=4000, thin=20):
    import emcee

    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    chain = emcee.EnsembleSampler(walkers, L * L, log_density(P), vectorize=True, moves=moves)
    state = chain.run_mcmc(started(P, phase, walkers), 200, store=False)
    chain.reset()
    began = time.process_time()
    chain.run_mcmc(state, steps // thin, thin_by=thin)
    seconds = time.process_time() - began
    return overlap(softmax(chain.get_chain().reshape(-1, walkers, L, L))), seconds


def autocorrelation_time(x):
    """tau of x, shape (t, chain), from that of the means of successive groups of rows.

    A chain that alternates, as Hamiltonian Monte Carlo does, can have a slow mode too. The sum
    over lags is then small at first and would close its window before that mode has added up;
    within a group the alternation cancels.
    """
    grouped = x[: len(x) // GROUP * GROUP].reshape(-1, GROUP, x.shape[1]).mean(axis=1)
    return GROUP * grouped.var() / x.var() * series.autocorrelation_time(grouped)


def record(m, seconds):
    """What peers.py shows of a series of m, shape (t, chain)."""
    import arviz

    tau = autocorrelation_time(m)
    return {
        "rate": m.size / tau / seconds,
        "arviz": float(arviz.ess(np.ascontiguousarray(m.T))) / seconds,
        "tau": tau,
        "m": float(m.mean()),
        "error": float(m.std() * np.sqrt(tau / m.size)),
    }


SAMPLERS = {
    "mcattn": mcattn,
    "blackjax-nuts": blackjax_nuts,
    "blackjax-hmc": blackjax_hmc,
    "numpyro": numpyro,
    "numpyro-compiling": lambda P, phase: numpyro(P, phase, compiling=True),
    "emcee": emcee,
}


if __name__ == "__main__":
    sampler, phase, P = sys.argv[1:]
    print(json.dumps(record(*SAMPLERS[sampler](float(P), phase))))
