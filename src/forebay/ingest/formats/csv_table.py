"""CSV and TSV through the standard library's reader."""

from __future__ import annotations

import csv
import io
import re

from forebay.ingest.encoding import decode_source
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze
from forebay.kernel.documents import Extracted

_DELIMITERS = ",\t;|"
_SNIFFED_CHARACTERS = 16_000
_NUMBER = re.compile(r"[-+(]?[\d.,%\s:/$€¥-]+\)?")


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return one table; ragged rows are kept as they are."""
    decoded = decode_source(source, limits)
    builder = TextBuilder(limits, media_type=source.media_type)
    builder.warnings.extend(decoded.warnings)
    text = decoded.text.lstrip("\ufeff").replace("\x00", "")
    # The library's own bound is for streams; here the whole field is in memory already.
    csv.field_size_limit(max(131_072, len(text) + 1))
    delimiter = sniff_delimiter(text[:_SNIFFED_CHARACTERS])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    add_rows(builder, reader)
    return builder.build(title=source.stem, encoding=decoded.encoding)


def sniff_delimiter(sample: str) -> str:
    """The delimiter that splits the first rows most alike; a comma when none does."""
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        rows = []
        for row in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter):
            if row:
                rows.append(len(row))
            if len(rows) >= 30:
                break
        several = [width for width in rows if width > 1]
        if not several:
            continue
        common = max(set(several), key=several.count)
        score = several.count(common) / len(rows) + min(common, 20) / 1000
        if score > best_score:
            best, best_score = delimiter, score
    return best


def add_rows(builder: TextBuilder, rows: object, *, page: int | None = None) -> None:
    """Add rows of cells as one table, the first as header when it looks like one."""
    number = builder.next_table()
    first = True
    for row in rows:  # type: ignore[attr-defined]
        cells = [squeeze(cell) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not any(cells):
            continue
        header = first and looks_like_header(cells)
        # A lone cell above the table is its caption: the header may still follow.
        first = first and len(cells) == 1
        kind = "table_header" if header else "table_row"
        builder.add(kind, " | ".join(cells), table=number, page=page)  # type: ignore[arg-type]


def looks_like_header(cells: list[str]) -> bool:
    """Whether a first row names columns: no numbers, no repetition, short cells."""
    filled = [cell for cell in cells if cell]
    if len(filled) < 2 or len(set(filled)) < len(filled):
        return False
    return all(len(cell) <= 80 and not _NUMBER.fullmatch(cell) for cell in filled)
