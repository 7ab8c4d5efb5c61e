"""Nanoseconds per single-score update and replica, on one core, beside the same update in C.

Usage: OPENBLAS_NUM_THREADS=1 python benchmarks/kernels.py [repeats]

First the standard softmax model against the C kernels of yardstick.c, which are compiled here:
"plain" draws every step anew, "table" takes its size from a table of each replica, as runs do.
Ratios are medians of those within one repeat; in a repeat the kernels take turns, so that a busy
machine slows all of them. Then other models, alone.
"""

import sys
import time

import numpy as np
from yardstick import Yardstick, build

from mcattn.model import CopyModel
from mcattn.replicas import Replicas

ZIPF = tuple((1 / np.arange(1, 17)) / (1 / np.arange(1, 17)).sum())
SIZES = [(L, P, R) for L, P in ((16, 310), (64, 900)) for R in (16, 64, 128)]
OTHERS = {
    "softmax, L = 16, 256 replicas": (CopyModel(), 310, 10, 256),
    "softmax, L = 16, 64 replicas, 16 token groups": (CopyModel(tokens=ZIPF), 310, 10, 64),
    "linear, L = 32, 64 replicas": (CopyModel(32, 4, "linear", 1, 1, 0.1), 14, 200, 64),
}
UPDATES = 3e6


def replicas(model, P, chi, count, fresh_steps=False):
    found = Replicas(model, 1, 0, count, fresh_steps)
    found.start("uniform", chi)
    found.set_states(P, chi, 0.0, 0.0, step(model, chi))
    return found


def step(model, chi):
    return 2.5 * np.sqrt(model.g_s / chi)


def nanoseconds(kernels, repeats):
    """CPU time per update, by kernel: one value for each repeat, in which all take turns."""
    times = {name: [] for name in kernels}
    for kernel in kernels.values():
        kernel.advance(2)
    for _ in range(repeats):
        for name, kernel in kernels.items():
            each = kernel.updates_per_sweep * kernel.count
            sweeps = max(1, round((UPDATES / 10 if "scalar" in name else UPDATES) / each))
            began = time.process_time()
            kernel.advance(sweeps)
            times[name].append((time.process_time() - began) / (sweeps * each) * 1e9)
    return {name: np.array(values) for name, values in times.items()}


def against_c(library, L, P, R, repeats):
    """Times of the C kernels and the package's, in the standard model."""
    model, chi = CopyModel(L=L), 10.0
    kernels = {
        f"C {kind}": Yardstick(library, kind, model, P, chi, step(model, chi), R)
        for kind in ("scalar", "plain", "table")
    }
    kernels["plain"] = replicas(model, P, chi, R, fresh_steps=True)
    kernels["table"] = replicas(model, P, chi, R)
    return nanoseconds(kernels, repeats)


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    library = build()
    print("ns per update, median (and the median ratio to C plain)")
    print(f"{'L':>3s} {'R':>4s}  {'C scalar':>14s} {'C plain':>8s}", end="")
    print(f" {'C table':>14s} {'plain':>14s} {'table':>14s}")
    for L, P, R in SIZES:
        times = against_c(library, L, P, R, repeats)
        cells = {
            name: f"{np.median(x):6.2f} ({np.median(x / times['C plain']):.2f})"
            for name, x in times.items()
        }
        cells["C plain"] = cells["C plain"].split(" (")[0]
        print(f"{L:3d} {R:4d}  {cells['C scalar']:>14s} {cells['C plain']:>8s}", end="")
        print(f" {cells['C table']:>14s} {cells['plain']:>14s} {cells['table']:>14s}", flush=True)
    print("other models, median and least")
    times = nanoseconds({name: replicas(*case) for name, case in OTHERS.items()}, repeats)
    for name, x in times.items():
        print(f"{name:46s} {np.median(x):6.2f} {x.min():6.2f}")


if __name__ == "__main__":
    main()
