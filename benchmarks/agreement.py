"""<m>, <q> and acceptance of the package's kernel and of the C kernels, in both phases.

Usage: OPENBLAS_NUM_THREADS=1 python benchmarks/agreement.py [sweeps]

Every kernel makes the same visits with the same half-width of the step: "plain" and "table" are
then equal on average in acceptance too, since |d| of the table is uniform and does not depend on
the pattern that it moves. Errors are those of the means of independent replicas, 64 each; the
last columns are the distance from C scalar in errors of the difference. With the default 24000
sweeps the relative error of every number is below 3e-4 (three minutes on one core, most of it
C scalar).
"""

import sys

import numpy as np
from yardstick import KINDS, Yardstick, build

from mcattn.analysis import series
from mcattn.model import CopyModel
from mcattn.replicas import Replicas

MODEL, CHI, COUNT = CopyModel(), 10.0, 64
STEP = 2.5 * np.sqrt(MODEL.g_s / CHI)
THERMALIZE, BLOCK = 500, 1000


class Package:
    """The package's kernel, with the interface of the yardstick."""

    def __init__(self, P, copy, fresh_steps):
        self._replicas = Replicas(MODEL, 1, 0, COUNT, fresh_steps)
        self._replicas.start("copy" if copy else "uniform", CHI)
        self._replicas.set_states(P, CHI, 0.0, 0.0, STEP)

    def advance(self, sweeps):
        """Means of m and q over some sweeps and the acceptance, shape (3, r)."""
        X, accepted = self._replicas.advance(sweeps, every=1)
        self._replicas.refresh()
        updates = sweeps * self._replicas.updates_per_sweep
        return np.array([*X[..., :2].mean(axis=0).T, accepted / updates])


def averages(kernel, sweeps):
    """Estimates of m, q and the acceptance."""
    kernel.advance(THERMALIZE)
    blocks = [kernel.advance(BLOCK) for _ in range(sweeps // BLOCK)]
    return [series.independent(x) for x in np.mean(blocks, axis=0)]


def pull(a, b):
    return (a.value - b.value) / np.hypot(a.error, b.error)


def main():
    sweeps = int(sys.argv[1]) if len(sys.argv) > 1 else 24000
    library = build()
    for P, phase in ((310.0, "uniform"), (400.0, "copy")):
        kernels = {
            f"C {kind}": Yardstick(library, kind, MODEL, P, CHI, STEP, COUNT, phase == "copy")
            for kind in KINDS
        }
        kernels["mcattn plain"] = Package(P, phase == "copy", fresh_steps=True)
        kernels["mcattn table"] = Package(P, phase == "copy", fresh_steps=False)
        print(f"P = {P:g}, {phase} phase, {COUNT} replicas, {sweeps} sweeps")
        print(f"{'':14s}{'m':>14s}{'q':>14s}{'acceptance':>14s}  pulls from C scalar")
        reference = averages(kernels.pop("C scalar"), sweeps)
        show("C scalar", reference)
        for name, kernel in kernels.items():
            found = averages(kernel, sweeps)
            show(name, found, [pull(*pair) for pair in zip(found, reference, strict=True)])
        worst = max(x.error / x.value for x in reference)
        print(f"largest relative error of C scalar: {worst:.1e}", flush=True)


def show(name, found, pulls=()):
    cells = "".join(f"{series.short(x.value, x.error):>14s}" for x in found)
    print(f"{name:14s}{cells}  " + " ".join(f"{x:5.1f}" for x in pulls), flush=True)


if __name__ == "__main__":
    main()
