"""Order parameters of attention patterns as a table for people."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from mcattn import terminal
from mcattn.attention import VALUES, Order, rows

_MOST = 400  # rows of a table that anyone reads


def show(path: str, found: Order, console: Console) -> None:
    """Print a file's patterns, one a row, with what its numbers mean."""
    told = rows(found)
    console.print(f"{path}: {len(told)} {found.kind} pattern(s)", style="bold", markup=False)
    table = terminal.table("index", "offset", *VALUES)
    for row in told[:_MOST]:
        table.add_row(*_cells(row))
    console.print(table)
    if len(told) > _MOST:
        console.print(f"{len(told) - _MOST} more: average over axes with --mean, or use --json.")


def _cells(row: dict[str, Any]) -> list[str]:
    index = ",".join(map(str, row["index"])) or "-"
    offset = str(row["offset"]) if row["offset"] >= 0 else "mixed"
    return [index, offset, *(_number(row[name]) for name in VALUES)]


def _number(x: float) -> str:
    return f"{x:z.4f}" if math.isfinite(x) else "-"
