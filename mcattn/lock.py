"""One writer for each run: a lock that dies with its holder and says who that is."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from mcattn.errors import RunFileError

_TRIES, _PAUSE = 10, 0.05  # outlasts a look by `holder`, which takes the lock for a moment
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def hold(path: Path, run: Path) -> TextIO:
    """Lock the file `path`, made if need be with its folder, until the result is closed.

    Raises
    ------
    RunFileError : another process holds `run`, or the file system has no locks.
    """
    who = ""
    for _ in range(_TRIES):
        path.parent.mkdir(exist_ok=True)
        try:
            file = path.open("a+")
        except FileNotFoundError:  # the folder was removed by a run that has just ended
            continue
        if _take(file, fcntl.LOCK_EX, run):
            if _still_there(file, path):
                file.truncate(0)
                file.write(this_process())
                file.flush()
                return file
            file.close()
            continue
        who = _named(file)
        file.close()
        time.sleep(_PAUSE)
    raise RunFileError(f"{run} is being written by {who or 'another process'}; wait or stop it")


def this_process() -> str:
    """What this process is called as a holder."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def holder(path: Path, run: Path) -> str | None:
    """Who holds the lock, such as "process 12 on node7"; None if nobody does."""
    try:
        file = path.open()
    except FileNotFoundError:
        return None
    with file:
        return None if _take(file, fcntl.LOCK_SH, run) else _named(file) or "another process"


def _take(file: TextIO, kind: int, run: Path) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as err:
        if err.errno not in _NO_LOCKS:
            raise
        raise RunFileError(
            f"{run} cannot be locked: its file system has no file locks ({err.strerror}); "
            "have it mounted with flock, or write the run elsewhere"
        ) from None
    return True


def _still_there(file: TextIO, path: Path) -> bool:
    """Whether the locked file is the one that others find; its holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _named(file: TextIO) -> str:
    file.seek(0)
    return file.read()
