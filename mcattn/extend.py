"""Jobs that go on beyond their planned end: the longer job that a finished one begins."""

from __future__ import annotations

import tomllib

import tomli_w

from mcattn import jobtext
from mcattn.errors import JobError
from mcattn.jobfile import Fixed, Tempering, Umbrella


def longer(text: str, more: int, where: str) -> str:
    """The job text that plans `more` sweeps beyond those of `text`.

    A fixed, tempering or umbrella run takes rows for `more` further sweeps. The sweeps at a
    point of a hysteresis path are its rate, so there more of them would be another experiment:
    the path is followed once more instead, with `more` sweeps at each point. Either way the old
    job is a beginning of the new one.

    Raises
    ------
    JobError : `more` is not positive, or the longer job breaks a rule of job files.
    """
    if more < 1:
        raise JobError(f"--extend {more}: the number of further sweeps must be at least 1")
    table = tomllib.loads(text)
    protocol = jobtext.parse(table, where).protocol
    if protocol.kind == "train":
        raise JobError(f"{where} is a training run, which ends with its last P; begin another")
    if isinstance(protocol, Fixed | Tempering | Umbrella):
        table["protocol"]["sweeps"] = protocol.sweeps + more
    else:
        table["protocol"]["sweeps"] = [*protocol.sweeps, more]
    jobtext.parse(table, f"{where}, extended by {more}")
    return tomli_w.dumps(table)
