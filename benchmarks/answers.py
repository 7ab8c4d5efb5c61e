"""Wall seconds to an answer on two ranks, from an empty cache of compiled kernels.

Usage: python benchmarks/answers.py [NAME...]; the names are those of CASES. The errors are those
that `mcattn analyze` states; theory is 337.579(9), the sum over all patterns of docs/theory.md.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN, JOBS = Path(sys.executable).parent, Path(__file__).resolve().parent.parent / "jobs"
RANKS = 2
THEORY, THEORY_ERROR = 337.579, 0.009

# The job, its overrides, and what is asked of its run.
QUICK = ("ladders=1", "tune_rounds=1", "tune_sweeps=300", "thermalize=500", "exchange_every=10")
CASES = {
    "0.2%": ("plane", (*QUICK, "sweeps=4000"), "transition"),
    "0.05%": ("plane", ("ladders=2", "sweeps=20000"), "transition"),
    "hysteresis": ("hysteresis", (), "figure"),
    "point": ("plane", (), "transition"),
}


def call(words, environment):
    """Output and wall seconds of a command."""
    began = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in words], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout, time.perf_counter() - began


def asked(question, file):
    """The command that turns a run into the answer."""
    if question == "figure":
        return [BIN / "mcattn", "plot", file]
    return [BIN / "mcattn", "analyze", "--view", question, "--json", file]


def answer(name, folder):
    """Print the time to one answer, and the answer."""
    job, overrides, question = CASES[name]
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"),
    }  # fmt: skip
    settings = [word for text in overrides for word in ("--set", f"protocol.{text}")]
    file = folder / "run.h5"
    start = [BIN / "mpiexec", "-n", RANKS, BIN / "mcattn", "run", JOBS / f"{job}.toml", "-o", file]
    _, sampling = call([*start, *settings], environment)
    said, analysis = call(asked(question, file), environment)
    print(f"{name}: {sampling + analysis:.0f} s ({sampling:.0f} sampling, {analysis:.0f} analysis)")
    print(f"  {job}.toml {' '.join(settings)}")
    if question == "transition":
        print(f"  {verdict(json.loads(said))}", flush=True)


def verdict(told):
    """P* of the run, its error, and its distance from theory in errors."""
    P, error = (told["P_equal_weight"][name] for name in ("value", "error"))
    pull = (P - THEORY) / (error**2 + THEORY_ERROR**2) ** 0.5
    return f"P* = {P:.3f} +- {error:.3f} ({100 * error / P:.3f} %), {pull:+.1f} errors from theory"


def main():
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            answer(name, Path(folder))


if __name__ == "__main__":
    main()
