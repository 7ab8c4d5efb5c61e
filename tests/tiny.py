"""A job small enough to run in a moment, and ways to run it in this process and others."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import tomli_w

from mcattn import jobtext, run, schema, store
from mcattn.ranks import Serial

BIN = Path(sys.executable).parent
MPIEXEC = BIN / "mpiexec"

TABLE = {
    "model": {"L": 8, "V": 6, "g_s": 10.0, "g_w": 0.01},
    "protocol": {
        "kind": "hysteresis",
        "P": {"start": 75, "stop": 115, "points": 2},
        "chi": 60.0,
        "sweeps": [35, 45],
        "thermalize": 24,
        "equilibrate": 0,
        "every": 5,
        "replicas": 20,
        "pattern_replicas": 2,
    },
    "run": {"seed": 3, "commit_seconds": 1e-6},
}


def job(only=None, **protocol):
    """The tiny job with some settings of its protocol changed: checked job and text.

    only : a whole protocol instead of the tiny job's.
    """
    return of_table({**TABLE, "protocol": only or {**TABLE["protocol"], **protocol}})


def of_table(table):
    """Checked job and text of a job given as nested tables."""
    return jobtext.parse(table, "tiny"), tomli_w.dumps(table)


def stop_after(sweeps):
    """A watch that asks the run to stop once that many sweeps are done."""
    done = [0]

    def progress(now, planned):
        done[0] = now

    return run.Watch(stop=lambda: done[0] >= sweeps, progress=progress)


def carry_out(path, watch=None, only=None, **protocol):
    """Run the tiny job in this process."""
    checked, text = job(only, **protocol)
    return run.start(checked, text, Path(path), Serial(), watch or run.Watch())


def continued(path):
    return run.resume(Path(path), Serial(), run.Watch())


def write_job(path, only=None, **protocol):
    path.write_text(job(only, **protocol)[1])
    return path


def content(path):
    """Every dataset and attribute of a file, by name."""
    found = {}
    with h5py.File(path, "r", locking=False) as f:
        f.visititems(
            lambda name, item: (
                found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
        found |= {f"@{name}": value for name, value in f.attrs.items()}
    return found


def samples(path):
    """The datasets of /samples, by name."""
    found = content(path)
    names = [field.path for field in schema.SAMPLES]
    return {name.split("/")[1]: found[name] for name in names}


def same(one, other):
    """Whether two files hold the same datasets and attributes, bit for bit."""
    a, b = content(one), content(other)
    return a.keys() == b.keys() and all(
        np.asarray(a[k]).tobytes() == np.asarray(b[k]).tobytes() for k in a
    )


def command(*arguments, ranks=0, cwd=None, environment=None, timeout=120):
    """Run `mcattn ARGUMENTS`, under mpiexec if ranks are given."""
    launcher = [str(MPIEXEC), "-n", str(ranks)] if ranks else []
    words = [*launcher, str(BIN / "mcattn"), *map(str, arguments)]
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def reached(path):
    """Sweeps that an unfinished run has committed."""
    return store.committed_sweeps(Path(path))
