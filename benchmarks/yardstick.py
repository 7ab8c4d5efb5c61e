"""The C yardstick: yardstick.c, built when it is asked for, with the package's couplings.

Axes: r replica.
"""

import ctypes
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from mcattn.kernels import weight
from mcattn.model import CopyModel
from mcattn.replicas import LANES, couplings, visit_order

SOURCE = Path(__file__).with_suffix(".c")
KINDS = ("scalar", "plain", "table")


def build() -> ctypes.CDLL:
    """Compile yardstick.c for this machine; a sentence ends the program where there is no gcc."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        sys.exit(f"the C yardstick needs a C compiler, and {compiler} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "yardstick.so"
        flags = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC", "-Wno-psabi")
        subprocess.run([compiler, *flags, "-o", target, SOURCE, "-lm"], check=True)
        library = ctypes.CDLL(str(target))
    whole, number, pointer = ctypes.c_long, ctypes.c_double, ctypes.c_void_p
    library.make.argtypes = [whole] * 3 + [pointer] + [number] * 6 + [ctypes.c_uint64, ctypes.c_int]
    library.make.restype = pointer
    library.discard.argtypes = [pointer]
    for kind in KINDS:
        getattr(library, kind).argtypes = [pointer, whole]
    return library


class _Block(ctypes.Structure):
    """The fields of yardstick.c's Block up to the sums that are read here."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("L", "R", "visits")),
        ("visit", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("pairs", "gain", "eps", "prior", "step")),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in "SEZQImq"),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in ("sum_m", "sum_q", "accepted")),
    ]


class Yardstick:
    """Replicas of the standard softmax model, advanced by one of the C kernels.

    kind : one of KINDS. The arguments are those of `mcattn.replicas.Replicas`, `copy` whether
    the replicas start from a copy pattern. L eps must be large, so that the short series of the
    logarithm is exact.
    """

    def __init__(
        self, library: ctypes.CDLL, kind: str, model: CopyModel, P: float, chi: float,
        step: float, count: int, copy: bool = False, seed: int = 1,
    ) -> None:  # fmt: skip
        state = (np.full(1, x) for x in (P, chi, 0.0, 0.0, step))
        coupling = couplings(model, *state)[:, 0]
        eps = coupling[weight.RIDGE] * model.V
        if count % LANES:
            raise ValueError(f"{count} replicas; the yardstick takes multiples of {LANES}")
        if weight.series_terms(model.L, eps, "softmax") > 5:
            raise ValueError(f"L eps = {model.L * eps:.2g} is too small for the yardstick's series")
        self._visits = visit_order(model.L)
        self.updates_per_sweep, self.count = model.L * len(self._visits), count
        gap = math.log(4 * (model.L - 1)) if copy else 0.0
        V = float(model.V)
        self._library, self._advance = library, getattr(library, kind)
        self._block = library.make(
            model.L, count, len(self._visits), self._visits.ctypes.data, V * (V - 1) / 2,
            coupling[weight.GAIN] * (V - 1) / V, eps, coupling[weight.PRIOR], step, gap, seed,
            kind == "scalar",
        )  # fmt: skip
        self._last = np.zeros((3, count))

    def __del__(self) -> None:
        self._library.discard(self._block)

    def advance(self, sweeps: int) -> np.ndarray:
        """Do some sweeps; means of m and q over them and the acceptance, shape (3, r)."""
        self._advance(self._block, sweeps)
        fields = ctypes.cast(self._block, ctypes.POINTER(_Block)).contents
        sums = (fields.sum_m, fields.sum_q, fields.accepted)
        now = np.array([np.ctypeslib.as_array(x, (self.count,)) for x in sums])
        fresh, self._last = now - self._last, now
        return fresh / sweeps / np.array([[1.0], [1.0], [self.updates_per_sweep]])
