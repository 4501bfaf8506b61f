"""CSV and TSV through the standard library's reader."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from forebay.ingest.encoding import decode_source
from forebay.ingest.formats.table_head import mark_header
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze
from forebay.kernel.documents import BlockKind, Extracted
from forebay.kernel.rows import row_of

_DELIMITERS = ",\t;|"
_SNIFFED_CHARACTERS = 16_000


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


def add_rows(
    builder: TextBuilder, rows: Iterable[Iterable[str]], *, page: int | None = None
) -> None:
    """Add rows of cells as one table, the first as header where they look like one."""
    number = builder.next_table()
    for header, cells in mark_header(_filled(rows)):
        kind: BlockKind = "table_header" if header else "table_row"
        builder.add(kind, row_of(cells), table=number, page=page)


def _filled(rows: Iterable[Iterable[str]]) -> Iterator[list[str]]:
    """Rows that hold something, without empty cells at their end."""
    for row in rows:
        cells = [squeeze(cell) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield cells
