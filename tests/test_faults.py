"""Disks that are full or closed, damaged parts, impatient users: what was committed stays."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
import tiny

import mcattn
from mcattn import status, store
from mcattn.errors import RunFileError


@contextmanager
def mounted(place, *options):
    """Something mounted at `place`, or the test skipped where that is not permitted."""
    place.mkdir()
    try:
        done = subprocess.run(["mount", *options, place], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.h5"
    assert tiny.carry_out(path).complete
    return path


@pytest.mark.parametrize("size", ["300k", "700k"])
def test_a_full_disk(whole, tmp_path, size):
    """The run ends with a sentence and its rows; with more room it goes on to the same file."""
    job = tiny.write_job(tmp_path / "job.toml")
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as folder:
        done = tiny.command("run", job, "-o", "r.h5", ranks=2, cwd=folder)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("cannot write r.h5: No space left on device") == 1
        assert "Traceback" not in done.stderr
        path = folder / "r.h5"
        found, readable = mcattn.open_run(path), mcattn.open_run(whole)
        assert 0 < len(found.sweep) < len(readable.sweep)
        assert np.array_equal(found.X, readable.X[: len(found.sweep)])
        subprocess.run(["mount", "-o", "remount,size=100m", folder], check=True)
        assert tiny.continued(path).complete
        assert tiny.same(path, whole)
        assert [p.name for p in folder.iterdir()] == ["r.h5"]


def test_a_folder_that_cannot_be_written(whole, tmp_path):
    """Runs there can be looked at, but neither begun nor continued."""
    open_to_all = tmp_path / "writable"
    open_to_all.mkdir()
    job = tiny.write_job(tmp_path / "job.toml")
    tiny.carry_out(open_to_all / "half.h5", tiny.stop_after(100))
    with mounted(tmp_path / "closed", "--bind", "-o", "ro", open_to_all) as folder:
        if os.access(folder, os.W_OK):
            pytest.skip("this mount command does not make bind mounts read-only")
        done = tiny.command("run", job, "-o", "r.h5", cwd=folder)
        assert done.returncode == 2, done.stderr
        assert "cannot write r.h5: Read-only file system" in done.stderr
        done = tiny.command("resume", "half.h5", cwd=folder)
        assert done.returncode == 2, done.stderr
        assert "cannot write half.h5: Read-only file system" in done.stderr
        assert status.read(folder / "half.h5").state == "interrupted"
        assert len(mcattn.open_run(folder / "half.h5").sweep) > 0
    tiny.continued(open_to_all / "half.h5")
    assert tiny.same(open_to_all / "half.h5", whole)


def test_a_truncated_part_is_named(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    part = sorted(store.parts_folder(path).glob("*.h5"))[-1]
    part.write_bytes(part.read_bytes()[:3000])
    with pytest.raises(RunFileError, match=f"{part.name} is not a readable HDF5 file"):
        tiny.continued(path)


def test_readers_notice_that_parts_are_gone(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    shutil.move(store.parts_folder(path), tmp_path / "elsewhere")
    with pytest.raises(RunFileError, match=r"cannot be read whole: .*parts was moved"):
        mcattn.open_run(path)


SLOW = """
import sys, time
from mcattn import layout
from mcattn.cli import main
write, seen = layout.write_part, []
def slow(*arguments):
    seen.append(1)
    if len(seen) == 4:
        open("stuck", "w").close()
        time.sleep(300)
    return write(*arguments)
layout.write_part = slow
main()
"""


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGUSR1, marks=pytest.mark.long),
    ],
)
def test_a_second_signal_stops_a_stuck_run_at_once(whole, tmp_path, number):
    """The fourth commit never ends, as on a disk that hangs; the first three are kept."""
    (tmp_path / "slow.py").write_text(SLOW)
    tiny.write_job(tmp_path / "job.toml")
    words = [sys.executable, "slow.py", "run", "job.toml", "-o", "r.h5"]
    child = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "stuck").exists():
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    time.sleep(1.5)
    assert child.poll() is None  # the first one waits for the commit
    child.send_signal(number)
    child.communicate(timeout=20)
    assert child.returncode == 128 + number
    path = tmp_path / "r.h5"
    found, readable = mcattn.open_run(path), mcattn.open_run(whole)
    assert len(store._ranges(store.parts_folder(path))) == 3
    assert np.array_equal(found.X, readable.X[: len(found.sweep)])
    assert tiny.continued(path).complete
    assert tiny.same(path, whole)
