"""Where tables are printed, and how they look."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_WIDE = 160  # columns of what is no terminal: a file or a pipe cuts nothing off


def console() -> Console:
    """Standard output, as wide as the terminal, or wide enough for every table."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=max(out.width, _WIDE))


def table(*columns: str, left: Sequence[str] = ()) -> Table:
    """A table without lines, with these columns: text to the left, numbers to the right."""
    out = Table(box=None, pad_edge=False)
    for name in columns:
        out.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return out
