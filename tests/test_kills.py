"""Runs killed at random moments, again and again, on changing numbers of ranks.

One rank is a fork of this process, so that hundreds of kills cost minutes; two and three are
processes under mpiexec, from their start-up on. tests/test_store.py dies at every single change
of the file system instead: the two find different faults.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter

import crashes
import numpy as np
import pytest
import tiny

import mcattn
from mcattn import run
from mcattn.ranks import Serial

JOBS = {
    "hysteresis": {
        "model": {"L": 8, "V": 6, "g_s": 10.0, "g_w": 0.01},
        "protocol": {
            "kind": "hysteresis",
            "P": {"start": 75, "stop": 115, "points": 3},
            "chi": 60.0,
            "sweeps": [1500, 2500],
            "thermalize": 80,
            "equilibrate": 100,
            "every": 30,
            "replicas": 20,
        },
        "run": {"seed": 1, "commit_seconds": 0.1},
    },
    "fixed": {
        "model": {"L": 8, "V": 6, "g_s": 10.0, "g_w": 0.01},
        "protocol": {
            "kind": "fixed",
            "P": [80, 100, 120],
            "chi": 60.0,
            "sweeps": 24_003,
            "thermalize": 100,
            "every": 40,
            "replicas": 7,
            "pattern_replicas": 5,
        },
        "run": {"seed": 2, "commit_sweeps": 2000},
    },
    "tempering": {
        "model": {"L": 8, "V": 6, "g_s": 10.0, "g_w": 0.01},
        "protocol": {
            "kind": "tempering",
            "P": [80, 100, 120],
            "chi": [60.0, 40.0, 60.0],
            "states": 5,
            "ladders": 4,
            "exchange_every": 10,
            "tune_rounds": 2,
            "tune_sweeps": 1000,
            "thermalize": 100,
            "sweeps": 16_000,
            "every": 40,
            "pattern_replicas": 3,
        },
        "run": {"seed": 3, "commit_seconds": 0.1},
    },
}
LEG_SECONDS = {1: 1.0, 2: 6.0, 3: 8.0}  # kills fall evenly into so long a time
LATE = 0.1  # share of the kills that wait for the end, to fall around the final merge
LOOK_SECONDS = 0.2


class Fork:
    """The job carried out by one forked process."""

    def __init__(self, work):
        self._over = False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                work()
            finally:
                os._exit(0)

    def ended(self):
        self._over = self._over or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return self._over

    def kill(self, rng):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Launched:
    """The job carried out by ranks under mpiexec."""

    def __init__(self, words, size):
        words = [str(tiny.MPIEXEC), "-n", str(size), str(tiny.BIN / "mcattn"), *map(str, words)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._child = subprocess.Popen(words, **quiet)

    def ended(self):
        return self._child.poll() is not None

    def kill(self, rng):
        """Kill one rank, or the launcher, or everything; wait until nothing is left."""
        family = [(self._child.pid, "mpiexec"), *crashes.descendants(self._child.pid)]
        ranks = [pid for pid, name in family if "mpiexec" not in name and "hydra" not in name]
        one = [rng.choice(ranks)] if ranks else [self._child.pid]
        victims = rng.choice([one, one, [self._child.pid], [pid for pid, _ in family]])
        end(victims)
        deadline = time.monotonic() + 10
        while any(alive(pid) for pid, _ in family[1:]) and time.monotonic() < deadline:
            time.sleep(0.02)
        end([pid for pid, _ in family])
        self._child.wait()


def end(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Campaign:
    """Kills and what they did, counted."""

    def __init__(self, folder, seed):
        self.folder, self.rng, self.counts = folder, random.Random(seed), Counter()
        self.wholes, self.rows = {}, {}
        for kind, table in JOBS.items():
            self.wholes[kind] = folder / f"{kind}_whole.h5"
            job, text = tiny.of_table(table)
            (folder / f"{kind}.toml").write_text(text)
            run.start(job, text, self.wholes[kind], Serial(), run.Watch())
            self.rows[kind] = mcattn.open_run(self.wholes[kind])

    def look(self, kind, path, least):
        """Rows in the file now, checked against the whole run."""
        if not path.exists() and least == 0:
            return 0
        self.counts["looks"] += 1
        try:
            found = mcattn.open_run(path)
        except Exception as err:
            print(f"unreadable: {type(err).__name__}: {err}")
            self.counts["unreadable"] += 1
            return least
        whole, n = self.rows[kind], len(found.sweep)
        self.counts["lost"] += n < least
        same = np.array_equal(found.X, whole.X[:n]) and (found.sweep == whole.sweep[:n]).all()
        self.counts["wrong rows"] += not same
        return n

    def leg(self, kind, path, size):
        """Begin or go on with the job, and kill it at a random moment unless it ends first."""
        if size == 1:
            job, text = tiny.of_table(JOBS[kind])
            again = path.exists()
            start = lambda: run.start(job, text, path, Serial(), run.Watch())  # noqa: E731
            process = Fork((lambda: tiny.continued(path)) if again else start)
        else:
            words = ["resume", path] if path.exists() else ["run", f"{self.folder}/{kind}.toml"]
            process = Launched([*words, *([] if path.exists() else ["-o", path])], size)
        late, seconds = self.rng.random() < LATE, self.rng.uniform(0, LEG_SECONDS[size])
        end_at = time.monotonic() + (60 if late else seconds)
        seen = self.look(kind, path, 0)
        while (left := end_at - time.monotonic()) > 0 and not process.ended():
            time.sleep(min(left, LOOK_SECONDS / (4 if late else 1)))
            seen = self.look(kind, path, seen)
            if late and seen > 0.95 * len(self.rows[kind].sweep):
                late, end_at = False, time.monotonic() + seconds / LEG_SECONDS[size]
        if process.ended():
            return
        process.kill(self.rng)
        self.counts["kills"] += 1
        self.counts[f"kills on {size}"] += 1
        self.look(kind, path, seen)

    def life(self, kind, sizes, kills):
        """One job from its start to its end, with at most that many kills."""
        path = self.folder / f"{kind}.h5"
        path.unlink(missing_ok=True)
        goal = self.counts["kills"] + kills
        while self.counts["kills"] < goal and not complete(path):
            self.leg(kind, path, self.rng.choice(sizes))
        if path.exists():
            tiny.continued(path)
        else:
            job, text = tiny.of_table(JOBS[kind])
            run.start(job, text, path, Serial(), run.Watch())
        self.counts["lives"] += 1
        self.counts["mismatches"] += path.read_bytes() != self.wholes[kind].read_bytes()


def complete(path):
    return path.exists() and mcattn.open_run(path).complete


@pytest.mark.parametrize(
    ("kills", "sizes"),
    [
        pytest.param(4, [1, 1, 1, 2], id="few"),
        pytest.param(300, [1, 1, 1, 1, 1, 1, 2, 3], id="many", marks=pytest.mark.long),
    ],
)
def test_random_kills_lose_nothing(tmp_path, kills, sizes):
    began = time.monotonic()
    campaign = Campaign(tmp_path, seed=kills)
    counts = campaign.counts
    while counts["kills"] < kills:
        for kind in JOBS:
            campaign.life(kind, sizes, min(20, kills - counts["kills"]))
            if kills >= 100:
                print(f"{time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    print(f"random kills: {dict(counts)}, {time.monotonic() - began:.0f} s")
    names = ("unreadable", "lost", "wrong rows", "mismatches")
    assert {name: counts[name] for name in names} == dict.fromkeys(names, 0)
    assert counts["kills"] >= kills
    assert counts["looks"] > kills
