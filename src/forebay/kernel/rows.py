"""Rows of tables as text: cells between pipes, and a pipe within a cell behind a backslash.

That is how Markdown writes them; documents of other formats are kept so, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BORDER = re.compile(r"(?<!\\)\|")
"""A pipe between two cells."""


def row_of(cells: Iterable[str]) -> str:
    """The cells as one row, without a pipe at its ends."""
    return " | ".join(cell.replace("|", r"\|") for cell in cells)


def cells_of(row: str, *, framed: bool) -> list[str]:
    """The cells of a row; ``framed``: the pipes at its ends are none between cells."""
    body = row.strip()
    cells = BORDER.split(body)
    if framed:
        cells = cells[1 if body.startswith("|") else 0 : -1 if ends_framed(body) else len(cells)]
    return [cell.strip().replace(r"\|", "|") for cell in cells]


def ends_framed(row: str) -> bool:
    """Whether a row ends with a pipe that belongs to no cell."""
    return row.endswith("|") and not row.endswith(r"\|")
