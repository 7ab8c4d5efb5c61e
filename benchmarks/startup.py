"""Seconds of fresh processes until they have done something for the first time.

Usage: python benchmarks/startup.py [REPEATS]. Median and best of wall and CPU time; on a machine
that does other things too, CPU time is what the program needs. "cold" is with an empty cache of
compiled kernels, "warm" with a filled one.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
SWEEP = (
    "import mcattn; mcattn.sample(mcattn.CopyModel(attention='{}'), "
    "P=310, chi=10, replicas=8, sweeps=1, thermalize=0)"
)
COMMANDS = {
    "mcattn --help": [BIN / "mcattn", "--help"],
    "mcattn theory --chi 10": [BIN / "mcattn", "theory", "--chi", "10"],
    "first sweep, softmax": [sys.executable, "-c", SWEEP.format("softmax")],
    "first sweep, linear": [sys.executable, "-c", SWEEP.format("linear")],
}


def timed(words, cache):
    """Wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(name, times):
    wall, cpu = zip(*times, strict=True)
    shown = (statistics.median(wall), min(wall), statistics.median(cpu), min(cpu))
    print(f"{name:28s}" + "".join(f"{x:8.2f}" for x in shown), flush=True)


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'seconds':28s}{'wall':>8s}{'best':>8s}{'CPU':>8s}{'best':>8s}")
    for name, words in COMMANDS.items():
        cold, warm = [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(timed(words, cache))
                warm.append(timed(words, cache))
        if name.startswith("first"):
            row(f"{name}, cold", cold)
        row(f"{name}, warm" if name.startswith("first") else name, warm)


if __name__ == "__main__":
    main()
