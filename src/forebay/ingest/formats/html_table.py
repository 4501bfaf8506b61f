"""A table's grid with spans written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.ingest.formats.table_head import mark_header
from forebay.ingest.text import squeeze

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_PARTING = frozenset("br p div li ul ol dt dd tr td th table section hr".split())
_MAX_CELLS = 200_000
_MAX_SPAN = 1_000
_LAYOUT_CHARACTERS = 1_500


def table_rows(table: LexborNode) -> list[tuple[bool, list[str]]] | None:
    """Return (is header, cells) per row; None for a table that only lays out the page.

    A layout table holds another table, headings, or long text in a single column or row. Spanned
    cells are repeated; a cell that spans the whole row stands once.
    """
    if table.attributes.get("role") in ("presentation", "none"):
        return None
    # Selectors see the whole page, so nesting is told by what the table's own tree holds.
    if any(inner.mem_id != table.mem_id for inner in table.css("table")):
        return None
    if table.css_first("h1, h2, h3, h4, ul ul, pre") is not None:
        return None
    lines = [row for row in table.css("tr") if row.css_first("td, th") is not None]
    grid = [_cells(row) for row in lines]
    widest = max((len(cells) for cells in grid), default=0)
    longest = max((len(cell[0]) for cells in grid for cell in cells), default=0)
    if widest < 2 or longest > _LAYOUT_CHARACTERS:
        return None
    flags = [_is_header(row) for row in lines]
    rows: list[tuple[bool, list[str]]] = []
    leading = True
    for flag, cells in zip(flags, _expand(grid), strict=True):
        leading = leading and flag
        filled = cells if len(set(cells)) > 1 else cells[:1]
        if any(filled):
            rows.append((leading, filled))
    if rows and all(header for header, _ in rows):
        return [(index == 0, cells) for index, (_, cells) in enumerate(rows)]
    if not any(header for header, _ in rows):
        return list(mark_header([cells for _, cells in rows]))
    return rows


def _cells(row: LexborNode) -> list[tuple[str, int, int]]:
    """Text, column span and row span of each cell."""
    cells = []
    node = row.child
    while node is not None:
        if node.tag in ("td", "th"):
            text = squeeze(_inner(node))
            cells.append((text, _span(node, "colspan"), _span(node, "rowspan")))
        node = node.next
    return cells


def _inner(cell: LexborNode) -> str:
    """A cell's text; only block-level elements part words, so that emphasis splits none."""
    words: list[str] = []
    for node in cell.traverse(include_text=True):
        if node.is_text_node:
            parent = node.parent
            if parent is not None and parent.tag not in ("style", "script"):
                words.append(node.text_content or "")
        elif node.tag in _PARTING:
            words.append(" ")
        elif node.tag == "img":
            words.append(f" {node.attributes.get('alt') or ''} ")
    return "".join(words)


def _span(node: LexborNode, name: str) -> int:
    value = (node.attributes.get(name) or "1").strip()
    if not (value.isascii() and value.isdigit()):
        return 1
    return min(max(1, int(value[:6])), _MAX_SPAN)


def _is_header(row: LexborNode) -> bool:
    if row.parent is not None and row.parent.tag == "thead":
        return True
    return row.css_first("th") is not None and row.css_first("td") is None


def _expand(grid: list[list[tuple[str, int, int]]]) -> list[list[str]]:
    rows: list[list[str]] = []
    pending: dict[int, tuple[str, int]] = {}
    total = 0
    for cells in grid:
        row: list[str] = []
        queue = list(reversed(cells))
        while queue or len(row) in pending:
            column = len(row)
            if column in pending:
                text, left = pending.pop(column)
                row.append(text)
                if left > 1:
                    pending[column] = (text, left - 1)
                continue
            text, columns, down = queue.pop()
            if total > _MAX_CELLS:
                columns = down = 1
            for offset in range(columns):
                row.append(text)
                if down > 1:
                    pending[column + offset] = (text, down - 1)
        total += len(row)
        rows.append(row)
    return rows
