"""Monte Carlo of attention patterns: when and how a copy head appears.

`CopyModel` states the network and its priors, `sample` draws attention patterns of it,
`open_run` reads a run file back. Theory is in `mcattn.theory`, closed forms in `mcattn.action`.
"""

from importlib import import_module, metadata
from typing import Any

__version__ = metadata.version("mcattn")
__all__ = ["CopyModel", "open_run", "sample"]

_HOMES = {"CopyModel": "model", "open_run": "runfile", "sample": "sampler"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that reading a run file never loads the compiler or MPI."""
    if name in _HOMES:
        return getattr(import_module(f"mcattn.{_HOMES[name]}"), name)
    if name in ("action", "analysis", "theory"):
        return import_module(f"mcattn.{name}")
    raise AttributeError(f"module 'mcattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "action", "analysis", "theory"])
