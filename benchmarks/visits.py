"""Effective samples of m, q and |S|^2 per L^2 updates against the share of visits to copy scores.

Shows what `mcattn.replicas.AGAIN` was chosen by: the slowest of the three in both phases.
Usage: OPENBLAS_NUM_THREADS=1 python benchmarks/visits.py (four minutes on one core)
"""

import numpy as np

from mcattn import replicas
from mcattn.analysis import series
from mcattn.model import CopyModel
from mcattn.sampler import TARGET_ACCEPTANCE

COUNT = 64
CASES = (  # L, chi, P and phase, sweeps
    (16, 10.0, 300.0, "uniform", 6000),
    (16, 10.0, 400.0, "copy", 6000),
    (48, 10.0, 850.0, "uniform", 1000),
    (48, 10.0, 1500.0, "copy", 1000),
)
SPACINGS = (2, 4, 6, 8, 16, 48)


def tuned(model, chi, P, phase):
    """Replicas in one phase, their step brought to the target acceptance."""
    found = replicas.Replicas(model, 1, 0, COUNT)
    found.start(phase, np.full(COUNT, chi))
    step = found.default_step(chi)
    for _ in range(14):
        found.set_states(P, chi, 0.0, 0.0, step)
        accepted = found.advance(20)[1].mean() / 20 / found.updates_per_sweep
        step *= np.exp(2 * (accepted - TARGET_ACCEPTANCE))
    return found


def main():
    for L, chi, P, phase, sweeps in CASES:
        print(f"L = {L}, chi = {chi:g}, P = {P:g}, {phase} phase")
        print("  columns between visits   updates      m      q  |S|^2")
        for replicas.AGAIN in (spacing for spacing in SPACINGS if spacing <= L):
            found = tuned(CopyModel(L=L), chi, P, phase)
            X, _ = found.advance(sweeps, every=1)
            work = found.updates_per_sweep / L**2
            rates = [1 / work / series.autocorrelation_time(X[..., i]) for i in (0, 1, 4)]
            cells = " ".join(f"{rate:6.3f}" for rate in rates)
            print(f"  {replicas.AGAIN:22d} {found.updates_per_sweep:9d} {cells}", flush=True)


if __name__ == "__main__":
    main()
