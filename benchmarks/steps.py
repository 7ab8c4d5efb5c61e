"""Effective samples of m and |S|^2 per update against the step, in both phases at chi = 10.

Shows how flat the optimum is that the target acceptance aims at. Usage: python benchmarks/steps.py
"""

import numpy as np

from mcattn.analysis import series
from mcattn.model import CopyModel
from mcattn.replicas import Replicas

MODEL, CHI, COUNT, SWEEPS = CopyModel(), 10.0, 128, 1500
WIDTHS = (1.2, 1.8, 2.4, 2.8, 3.2, 3.6, 4.4, 5.5)  # in widths of the score prior


def measure(P, start, width):
    """Acceptance and effective samples per 1000 updates of m and |S|^2."""
    replicas = Replicas(MODEL, seed=1, first=0, count=COUNT)
    replicas.start(start, CHI)
    replicas.set_states(P, CHI, 0.0, 0.0, width * np.sqrt(MODEL.g_s / CHI))
    replicas.advance(200)
    X, accepted = replicas.advance(SWEEPS, every=1)
    per_sweep = 1000 / replicas.updates_per_sweep
    effective = [per_sweep / series.autocorrelation_time(X[..., i]) for i in (0, 4)]
    return accepted.mean() / (SWEEPS * replicas.updates_per_sweep), *effective


def main():
    for P, start in ((300.0, "uniform"), (400.0, "copy")):
        print(f"P = {P:g}, {start} phase: effective samples per 1000 updates")
        print("  step  acceptance      m   |S|^2")
        for width in WIDTHS:
            acceptance, m, s2 = measure(P, start, width)
            print(f"  {width:4.1f}  {acceptance:10.3f}  {m:5.2f}  {s2:6.2f}")


if __name__ == "__main__":
    main()
