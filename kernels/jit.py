"""The one way kernels are compiled, and where compiled code is kept.

Numba's own cache looks only at the file of the cached function, so an edit of another kernel
file would go on running the old physics. Here the cache folder's name is a digest of every
kernel file: any edit starts a fresh cache. Numba's cache stays whole when several processes fill
it at once, but each would compile everything; `first` lets one do so. Fast-math stays off, since
results must not depend on how the compiler reorders sums; division by zero follows IEEE rules
instead of raising.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numba.core.config


def digest() -> str:
    """Short digest of the content of all kernel files."""
    sha = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Folder for compiled kernels, or None where none can be written.

    $NUMBA_CACHE_DIR, else $XDG_CACHE_HOME, else ~/.cache is the base.
    """
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path("~/.cache").expanduser()
        folder = folder / "mcattn" / digest()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # no home at all is a RuntimeError
        return None


_FOLDER = cache_folder()
_CONFIG: Any = numba.core.config
# No kernel is called from C; the wrappers for it would take a tenth of the time to compile.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "cache": _FOLDER is not None,
    "no_cfunc_wrapper": True,
}


@contextlib.contextmanager
def first(what: str) -> Iterator[None]:
    """Let the first process compile some kernels; all others wait, then find them in the cache.

    Where files cannot be locked every process compiles for itself.

    what : names the kernels; once they are compiled nobody waits for anybody.
    """
    with contextlib.ExitStack() as stack:
        done = _FOLDER and _FOLDER / f"{what}.done"
        if done and not done.exists():
            with contextlib.suppress(OSError):
                fcntl.flock(stack.enter_context(done.with_suffix(".lock").open("a")), fcntl.LOCK_EX)
        yield
        if done:
            with contextlib.suppress(OSError):
                done.touch()


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel, or a helper of one, on first call."""
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(_FOLDER or "")
    try:
        return numba.njit(**_OPTIONS)(function)
    finally:
        _CONFIG.CACHE_DIR = before
