"""Effective samples of m per second: the package beside general samplers, on one core.

Usage: make bench-peers, or python benchmarks/peers.py [sampler ...]

The density is that of the population action at L = V = 16, chi = 10, in double precision: in
the uniform phase at P = 300 and in the copy phase at P = 400. Every sampler runs in a process of
its own; the package runs before and after each, and the ratio is taken with the mean of the two.
Times are CPU times of sampling alone, after warm-up and compilation, except where stated. One
estimator serves all: `mcattn.analysis.series.autocorrelation_time` of the means of 16 successive
samples, which also holds for chains that alternate (tau < 1); arviz's is shown beside it.
"""

import json
import os
import subprocess
import sys

import numpy as np

from mcattn.analysis import series

PHASES = {"uniform": 300.0, "copy": 400.0}
OWN = "mcattn"
SAMPLERS = {
    "blackjax-nuts": "BlackJAX NUTS",
    "blackjax-hmc": "BlackJAX HMC, 64 chains in vmap",
    "numpyro": "NumPyro NUTS",
    "numpyro-compiling": "NumPyro NUTS, compilation included",
    "emcee": "emcee, differential evolution + snooker",
}


def measured(sampler, phase):
    """Run one sampler in a process of its own; its record."""
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-W", "ignore", os.path.join(here, "peer.py"), sampler]
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    done = subprocess.run(
        [*command, phase, str(PHASES[phase])],
        env={**os.environ, **one_thread, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def line(name, record, ratio):
    m = series.short(record["m"], record["error"])
    return (
        f"{name:40s} {record['rate']:10.0f} {ratio:>8s} {record['arviz']:10.0f}"
        f" {record['tau']:8.2f} {m:>14s}"
    )


def main():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chosen = sys.argv[1:] or list(SAMPLERS)
    for phase, P in PHASES.items():
        print(f"{phase} phase, P = {P:g}: effective samples of m per second")
        print(
            f"{'':40s} {'per second':>10s} {'ratio':>8s} {'by arviz':>10s} {'tau':>8s} {'<m>':>14s}"
        )
        own = [measured(OWN, phase)]
        for sampler in chosen:
            peer = measured(sampler, phase)
            own.append(measured(OWN, phase))
            ratio = (own[-2]["rate"] + own[-1]["rate"]) / 2 / peer["rate"]
            print(line(SAMPLERS[sampler], peer, f"{ratio:.3g}"), flush=True)
        rates = [record["rate"] for record in own]
        middle = own[int(np.argsort(rates)[len(rates) // 2])]
        print(line(f"mcattn ({min(rates):.0f} to {max(rates):.0f})", middle, "1"), flush=True)


if __name__ == "__main__":
    main()
