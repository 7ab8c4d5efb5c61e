"""Runs that go on beyond their planned end equal runs that were planned longer."""

import shutil
from pathlib import Path

import crashes
import numpy as np
import pytest
import tiny

from mcattn import extend, jobtext, run
from mcattn.errors import JobError
from mcattn.ranks import Serial

FIXED = {
    "model": {"L": 6, "V": 5, "g_s": 10.0, "g_w": 0.01},
    "protocol": {
        "kind": "fixed",
        "P": [60, 90],
        "chi": 40.0,
        "replicas": 5,
        "sweeps": 100,
        "thermalize": 40,
        "every": 7,
        "pattern_replicas": 3,
    },
    "run": {"seed": 5, "commit_seconds": 1e-6},
}


def fixed(path, sweeps, watch=None):
    table = {**FIXED, "protocol": {**FIXED["protocol"], "sweeps": sweeps}}
    job, text = tiny.of_table(table)
    return run.start(job, text, Path(path), Serial(), watch or run.Watch())


def extended(path, more):
    return run.resume(Path(path), Serial(), run.Watch(), more)


@pytest.mark.parametrize(
    "pieces",
    [(100, 60), (96, 64), (64, 1), (7, 3, 150), (20, 4, 136), (40, 5, 83), (128, 32)],
    ids=str,
)
def test_extending_a_fixed_run_equals_planning_it_longer(tmp_path, pieces):
    """First lengths within one block, at a block's end and beyond; the file is the same, too."""
    path, whole = tmp_path / "run.h5", tmp_path / "whole.h5"
    assert fixed(path, pieces[0]).complete
    for more in pieces[1:]:
        assert extended(path, more).complete
    fixed(whole, sum(pieces))
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.h5", "whole.h5"]


def test_what_is_compared_does_depend_on_the_length(tmp_path):
    fixed(tmp_path / "a.h5", 100)
    fixed(tmp_path / "b.h5", 107)
    assert not tiny.same(tmp_path / "a.h5", tmp_path / "b.h5")


def test_an_unfinished_run_can_be_extended(tmp_path):
    path, whole = tmp_path / "run.h5", tmp_path / "whole.h5"
    assert not fixed(path, 200, tiny.stop_after(130)).complete
    outcome = extended(path, 50)
    assert (outcome.sweep, outcome.planned) == (290, 290)
    fixed(whole, 250)
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("stop", [None, pytest.param(30, marks=pytest.mark.long), 150])
def test_extending_a_hysteresis_run_adds_a_loop(tmp_path, stop):
    path, whole = tmp_path / "run.h5", tmp_path / "whole.h5"
    tiny.carry_out(path, tiny.stop_after(stop) if stop else None)
    assert extended(path, 20).complete
    tiny.carry_out(whole, sweeps=[35, 45, 20])
    assert path.read_bytes() == whole.read_bytes()


def test_extending_under_other_ranks(tmp_path):
    path, whole = tmp_path / "run.h5", tmp_path / "whole.h5"
    tiny.carry_out(path)
    done = tiny.command("resume", path, "--extend", 20, ranks=2)
    assert done.returncode == 0, done.stderr
    tiny.carry_out(whole, sweeps=[35, 45, 20])
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_while_extending_loses_nothing(tmp_path, stride):
    """Die at each change of the file system: the rows of the finished run are always there."""
    first, whole = tmp_path / "first.h5", tmp_path / "whole.h5"
    fixed(first, 100)
    fixed(whole, 180)
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "run.h5"
    for operations in range(0, 10_000, stride):
        shutil.copy(first, path)
        died = crashes.killed_after(operations, lambda: extended(path, 80))
        committed = tiny.samples(path)
        assert len(committed["sweep"]) >= 100 // 7
        for name, values in tiny.samples(whole).items():
            assert np.array_equal(committed[name], values[: len(committed[name])])
        if not died:
            break
        more = None if tiny.content(path)["@planned_sweeps"] == 220 else 80
        run.resume(path, Serial(), run.Watch(), more)
        assert path.read_bytes() == whole.read_bytes(), operations
        assert [p.name for p in path.parent.iterdir()] == ["run.h5"]
    assert operations > 20


def test_jobs_grow_by_what_was_asked():
    _, text = tiny.of_table(FIXED)
    assert jobtext.parse_text(extend.longer(text, 9, "x"), "x").protocol.sweeps == 109
    _, text = tiny.job(sweeps=35)
    assert jobtext.parse_text(extend.longer(text, 9, "x"), "x").protocol.sweeps == (35, 9)
    with pytest.raises(JobError, match="--extend 0: the number of further sweeps must be at least"):
        extend.longer(text, 0, "x")
    with pytest.raises(JobError, match=r"x, extended by 4: .*sweeps is 4; it must be at least"):
        extend.longer(text, 4, "x")
