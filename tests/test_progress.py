"""Progress: a bar on a terminal, a line now and then in a log."""

import os
import pty
import subprocess

import tiny

from mcattn import progress


def test_a_terminal_gets_a_bar(tmp_path):
    job = tiny.write_job(tmp_path / "job.toml")
    ours, theirs = pty.openpty()
    words = [str(tiny.BIN / "mcattn"), "run", str(job), "-o", "run.h5"]
    child = subprocess.Popen(words, cwd=tmp_path, stderr=theirs, stdout=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert child.wait() == 0, said
    assert b"512/512" in said
    assert b"Traceback" not in said


def test_a_log_gets_one_line_a_minute(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tell = progress.reporter("run.h5")
    for done in range(0, 2500, 10):  # a sweep of 10 each second, after a resume at 0
        tell(done, 10_000)
        now[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0] == "mcattn: run.h5: 600 of 10000 sweeps, 10 sweeps/s, 16 min left"
