"""The cache of compiled kernels: never old physics, one compiler at a time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

import mcattn

# Moduli of one draw: a kernel of one file that calls those of two others.
PROBE = """
import numpy as np
from mcattn.kernels import moves, stream
words = np.arange(1, 33).reshape(4, 8) * 0x9E3779B97F4A7
coupling, moduli = np.ones((9, 8)), np.zeros((moves.MODULI, 8))
moves.new_moduli(coupling, words, moduli)
print(moduli.tolist())
"""
EXCHANGING = {
    "kind": "tempering", "P": [80, 100], "chi": 60.0, "states": 4, "ladders": 4,
    "exchange_every": 5, "thermalize": 10, "sweeps": 20,
}  # fmt: skip


def probe(package, cache):
    """What a fresh process draws with the kernels of a copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(cache)}
    words = [sys.executable, "-c", PROBE]
    return subprocess.run(
        words, env=environment, cwd=package, capture_output=True, text=True, check=True
    ).stdout


def compiled(cache):
    """Compiled files in a cache with the time each was written."""
    return {path: path.stat().st_mtime_ns for path in Path(cache).rglob("*.nbc")}


def test_an_edit_of_any_kernel_file_is_seen(tmp_path):
    """The edit is in a file that the kernel imports, keeps its length, and shows no new date."""
    package, cache = tmp_path / "copy", tmp_path / "cache"
    shutil.copytree(Path(mcattn.__file__).parent, package / "mcattn", symlinks=False)
    before = probe(package, cache)
    old = compiled(cache)
    assert probe(package, cache) == before
    assert compiled(cache) == old  # what is unchanged is not compiled again
    file = package / "mcattn" / "kernels" / "stream.py"
    times, text = file.stat(), file.read_text()
    changed = text.replace("b << 17", "b << 16")
    assert changed != text
    file.write_text(changed)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as copies and archives leave it
    assert probe(package, cache) != before
    assert {path: compiled(cache)[path] for path in old} == old
    file.write_text(text)
    assert probe(package, cache) == before


@pytest.mark.parametrize("count", [3, pytest.param(16, marks=pytest.mark.long)])
def test_processes_that_start_at_once_compile_once(tmp_path, count):
    """As many runs on an empty cache: all but one find every kernel in it."""
    job = tiny.write_job(tmp_path / "job.toml", only=EXCHANGING)
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "NUMBA_DEBUG_CACHE": "1",
    }
    words = [str(tiny.BIN / "mcattn"), "run", str(job), "-o"]
    runs = [
        subprocess.Popen(
            [*words, str(tmp_path / f"{i}.h5")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(count)
    ]
    said = [run.communicate(timeout=600)[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * count, said
    wrote = [text.count("data saved to") for text in said]
    assert sorted(wrote)[:-1] == [0] * (count - 1), wrote
    assert max(wrote) == len(compiled(tmp_path / "cache"))
    assert all(tiny.same(tmp_path / "0.h5", tmp_path / f"{i}.h5") for i in range(count))


@pytest.mark.long
def test_ranks_load_what_rank_0_compiled(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml", only=EXCHANGING)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DEBUG_CACHE": "1"}
    done = tiny.command("run", job, "-o", tmp_path / "r.h5", ranks=2, environment=environment)
    assert done.returncode == 0, done.stderr
    files = len(compiled(tmp_path / "cache"))
    assert done.stdout.count("data saved to") == files > 20
    assert done.stdout.count("data loaded from") > 2
