"""Which rows of a table name its columns: words, or years and other periods over figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

LOOK_AHEAD_ROWS = 8
_LABEL_CHARACTERS = 80
_NUMBER = re.compile(r"[-+(]?[\d.,%\s:/$€£¥–—-]+\)?")
_YEAR = r"(?:19|20)\d\d"
_MONTH = (
    r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
    r"(?:\s+\d{1,2})?(?:,?\s+" + _YEAR + ")?"
)
_PERIOD = re.compile(
    rf"(?:fy|cy|fiscal|year)?\s*{_YEAR}(?:\s*[/–-]\s*(?:\d\d|{_YEAR}))?\s*(?:[ae]|年度?|財年|财年)?"
    rf"|(?:[qh][1-4]|第?[一二三四1-4]季度?|[上下]半年)(?:[\s'/]*{_YEAR})?"
    rf"|{_YEAR}[\s年-]*(?:[qh][1-4]|第?[一二三四1-4]季度?|\d\d?月?|[上下]半年)"
    rf"|(?:\d\d?|[一二三四五六七八九十]{{1,2}})月|{_YEAR}[-/.]\d\d?[-/.]\d\d?|{_MONTH}",
    re.IGNORECASE,
)


def mark_header(rows: Iterable[list[str]]) -> Iterator[tuple[bool, list[str]]]:
    """Yield each row with whether it is one of those that name the columns.

    Only the first rows are held back to be looked at; a caption above the header belongs to it.
    """
    rest = iter(rows)
    first = list(islice(rest, LOOK_AHEAD_ROWS))
    count = header_rows(first)
    for place, row in enumerate(chain(first, rest)):
        yield place < count, row


def header_rows(rows: Sequence[Sequence[str]]) -> int:
    """Return how many of the first rows are header: 0 where none names columns."""
    at = 0
    while at < len(rows) and _is_over(rows[at]):
        at += 1
    if at == len(rows) or not _names_columns(rows[at], rows[at + 1 :]):
        return 0
    at += 1
    # Below the words there may be years, and below these what they are counted in.
    while at < len(rows) and _goes_on(rows[at], rows[at + 1 :]):
        at += 1
    return at if at < len(rows) or at == 1 else 0


def _is_over(row: Sequence[str]) -> bool:
    """A caption, or a name over several columns: few cells, all words."""
    filled = [cell for cell in row if cell]
    if len(filled) == 1:
        return not _is_figure(filled[0])
    # A cell over several columns stands in each of them or in one.
    over = bool(row) and not row[0] and len(set(filled)) < len(row) - 1
    return over and not any(map(_is_figure, filled))


def _names_columns(row: Sequence[str], following: Sequence[Sequence[str]]) -> bool:
    filled = [cell for cell in row if cell]
    if len(filled) < 2 or any(len(cell) > _LABEL_CHARACTERS for cell in filled):
        return False
    if not any(_PERIOD.fullmatch(cell) for cell in filled):
        return len(set(filled)) == len(filled) and not any(map(_is_figure, filled))
    return _periods_over_figures(row, following)


def _goes_on(row: Sequence[str], following: Sequence[Sequence[str]]) -> bool:
    if row and not row[0] and _is_over(row):
        return True
    return any(map(_PERIOD.fullmatch, filter(None, row))) and _periods_over_figures(row, following)


def _periods_over_figures(row: Sequence[str], following: Sequence[Sequence[str]]) -> bool:
    """Years name columns where figures that are no years stand below them."""
    columns = [place for place, cell in enumerate(row) if cell and _PERIOD.fullmatch(cell)]
    if any(cell and _is_figure(cell) and place not in columns for place, cell in enumerate(row)):
        return False
    for below in following:
        held = [below[place] for place in columns if place < len(below) and below[place]]
        figures = [cell for cell in held if _is_figure(cell)]
        if figures:
            return not all(map(_PERIOD.fullmatch, figures))
    return False


def _is_figure(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None
