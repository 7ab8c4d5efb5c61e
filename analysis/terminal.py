"""Where tables are printed."""

from __future__ import annotations

from rich.console import Console

_WIDE = 160  # columns of what is no terminal: a file or a pipe cuts nothing off


def console() -> Console:
    """Standard output, as wide as the terminal, or wide enough for every table."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=max(out.width, _WIDE))
