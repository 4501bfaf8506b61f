"""Excel workbooks through python-calamine: values only, never formulas or links."""

from __future__ import annotations

import datetime as dt
import io

from forebay.ingest.archive import damaged, encrypted, open_archive
from forebay.ingest.formats.csv_table import add_rows
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument

# A sheet claims this many cells only to hurt; the reader holds the whole rectangle.
_MAX_CELLS = 20_000_000


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return one section and table per sheet; ``page`` is the sheet's number."""
    import python_calamine

    open_archive(source.data, limits).close()
    try:
        book = python_calamine.load_workbook(io.BytesIO(source.data))
    except python_calamine.PasswordError as error:
        raise encrypted() from error
    except (python_calamine.CalamineError, OSError, ValueError) as error:
        raise damaged("workbook") from error
    builder = TextBuilder(limits, media_type=source.media_type)
    names = book.sheet_names
    if len(names) > limits.max_pages:
        builder.warn(f"Only the first {limits.max_pages} sheets were read.")
    for number, name in enumerate(names[: limits.max_pages], start=1):
        try:
            sheet = book.get_sheet_by_name(name)
        except (python_calamine.CalamineError, OSError, ValueError):
            builder.warn(f"Sheet {name} could not be read.")
            continue
        if sheet.total_height * sheet.total_width > _MAX_CELLS:
            raise UnsupportedDocument(
                f"A sheet spans {sheet.total_height} x {sheet.total_width} cells, over the limit "
                f"of {_MAX_CELLS}; delete its empty rows and columns.",
                code="too_large",
            )
        rows = [[_cell(value) for value in row] for row in sheet.iter_rows()]
        if any(any(row) for row in rows):
            builder.add("heading", name, level=2, page=number)
            add_rows(builder, rows, page=number)
    return builder.build(title=source.stem)


def _cell(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    if isinstance(value, dt.datetime):
        midnight = value.time() == dt.time()
        return value.date().isoformat() if midnight else value.isoformat(" ", "seconds")
    return str(value)
