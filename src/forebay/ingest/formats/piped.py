"""Tables in plain text: lines of cells between pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from forebay.ingest.formats.table_head import mark_header
from forebay.kernel.documents import Block
from forebay.kernel.rows import cells_of, ends_framed

_RULE = re.compile(r"[\s|:\-+=]+")
_LEAST_ROWS = 2
Span = tuple[int, int]


def table_regions(text: str, start: int, end: int) -> list[tuple[Span, bool]]:
    """Return the parts of ``text[start:end]`` in order, and whether each is a table.

    A table is two lines or more of cells between pipes.
    """
    regions: list[tuple[Span, bool]] = []
    for is_row, group in groupby(_lines(text, start, end), lambda span: _is_row(text, span)):
        spans = list(group)
        whole = (spans[0][0], spans[-1][1])
        table = is_row and len(spans) >= _LEAST_ROWS
        if regions and not table and not regions[-1][1]:
            regions[-1] = ((regions[-1][0][0], whole[1]), False)
        else:
            regions.append((whole, table))
    return regions


def table_blocks(text: str, start: int, end: int, number: int) -> list[Block]:
    """Return the rows of a table as blocks; a line drawn under the first makes it the header."""
    spans = list(_lines(text, start, end))
    framed = all(text[first] == "|" and ends_framed(text[first:last]) for first, last in spans)
    ruled = len(spans) > 1 and _RULE.fullmatch(text, *spans[1]) is not None
    cells = [cells_of(text[first:last], framed=framed) for first, last in spans]
    header = [header for header, _ in mark_header(cells)]
    if ruled:
        header[:2] = [True, True]
    return [
        Block("table_header" if named else "table_row", first, last, 0, None, number)
        for named, (first, last) in zip(header, spans, strict=True)
    ]


def _is_row(text: str, span: Span) -> bool:
    line = text[span[0] : span[1]]
    return " | " in line or (line[0] == "|" and line.count("|") > 1)


def _lines(text: str, start: int, end: int) -> Iterator[Span]:
    """The lines with something on them, without white space around."""
    at = start
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        body = text[at:stop].strip()
        if body:
            first = text.index(body, at)
            yield first, first + len(body)
        at = stop + 1
