"""Nanoseconds per single-score update and replica, one core, medians of interleaved repeats.

Usage: python benchmarks/kernels.py [repeats]
"""

import sys
import time

import numpy as np

from mcattn.model import CopyModel
from mcattn.replicas import Replicas

ZIPF = tuple((1 / np.arange(1, 17)) / (1 / np.arange(1, 17)).sum())
CASES = {
    "softmax  L=16 R=16": (CopyModel(), 310, 10, 16),
    "softmax  L=16 R=64": (CopyModel(), 310, 10, 64),
    "softmax  L=16 R=256": (CopyModel(), 310, 10, 256),
    "softmax  L=64 R=64": (CopyModel(L=64), 900, 10, 64),
    "softmax  L=16 R=64, 16 token groups": (CopyModel(tokens=ZIPF), 310, 10, 64),
    "linear   L=32 R=64": (CopyModel(32, 4, "linear", 1, 1, 0.1), 14, 200, 64),
}
UPDATES = 4e6


def prepared(model, P, chi, count):
    replicas = Replicas(model, seed=1, first=0, count=count)
    replicas.start("uniform", chi)
    replicas.set_states(P, chi, 0.0, 0.0, 2.5 * np.sqrt(model.g_s / chi))
    replicas.advance(2)
    return replicas


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    cases = {name: prepared(*case) for name, case in CASES.items()}
    times = {name: [] for name in cases}
    for _ in range(repeats):
        for name, replicas in cases.items():
            each = replicas.updates_per_sweep * replicas.count
            sweeps = max(1, int(UPDATES / each))
            began = time.process_time()
            replicas.advance(sweeps)
            times[name].append((time.process_time() - began) / (sweeps * each) * 1e9)
    for name, values in times.items():
        print(f"{name:38s} median {np.median(values):6.2f}  min {min(values):6.2f} ns")


if __name__ == "__main__":
    main()
