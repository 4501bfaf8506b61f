"""PowerPoint presentations through python-pptx: slides as pages, notes included."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay.ingest.archive import ZIP_ERRORS, damaged, open_archive
from forebay.ingest.formats.csv_table import add_rows
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze, tidy
from forebay.kernel.documents import Extracted

if TYPE_CHECKING:
    from pptx.slide import Slide

_MAX_NESTING = 20
# What python-pptx raises when a part breaks the format: it does not wrap those errors.
_BROKEN = (KeyError, ValueError, AttributeError, TypeError, IndexError, NotImplementedError)


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return each slide's title, text, tables and notes; ``page`` is the slide's number."""
    import pptx
    from lxml import etree
    from pptx.exc import PythonPptxError

    open_archive(source.data, limits).close()
    builder = TextBuilder(limits, media_type=source.media_type)
    try:
        show = pptx.Presentation(io.BytesIO(source.data))
        slides = list(show.slides)
        title = show.core_properties.title or ""
    except (*_BROKEN, *ZIP_ERRORS, PythonPptxError, etree.LxmlError) as error:
        raise damaged("presentation") from error
    for number, slide in enumerate(slides[: limits.max_pages], start=1):
        try:
            _add_slide(builder, slide, number)
        except (*_BROKEN, PythonPptxError, etree.LxmlError):
            builder.warn(f"Slide {number} could be read only in part.")
    if len(slides) > limits.max_pages:
        builder.warn(f"Only the first {limits.max_pages} slides were read.")
    if title.strip().lower() in ("powerpoint presentation", "powerpoint 演示文稿"):
        title = ""
    heading = any(block.kind == "heading" for block in builder.blocks)
    return builder.build(title=title or ("" if heading else source.stem))


def _add_slide(builder: TextBuilder, slide: Slide, number: int) -> None:
    heading = slide.shapes.title
    if heading is not None:
        builder.add("heading", squeeze(heading.text_frame.text), level=2, page=number)
    for shape in _shapes(slide.shapes, 0):
        if heading is not None and shape.shape_id == heading.shape_id:
            continue
        try:
            _add_shape(builder, shape, number)
        except _BROKEN:
            builder.warn(f"Slide {number} could be read only in part.")
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        builder.add("paragraph", tidy(slide.notes_slide.notes_text_frame.text), page=number)


def _shapes(shapes: Any, depth: int) -> Iterator[Any]:
    """Yield shapes, those of groups too. Shapes are duck-typed in python-pptx."""
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _MAX_NESTING:
            yield from _shapes(shape.shapes, depth + 1)
        else:
            yield shape


def _add_shape(builder: TextBuilder, shape: Any, number: int) -> None:
    if getattr(shape, "has_table", False):
        rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
        add_rows(builder, rows, page=number)
    elif getattr(shape, "has_chart", False):
        chart = shape.chart
        if chart.has_title:
            builder.add("paragraph", squeeze(chart.chart_title.text_frame.text), page=number)
    elif getattr(shape, "has_text_frame", False):
        paragraphs = [p for p in shape.text_frame.paragraphs if p.text.strip()]
        listed = len(paragraphs) > 1
        for paragraph in paragraphs:
            text = tidy(paragraph.text)
            if listed:
                level = (paragraph.level or 0) + 1
                builder.add("list_item", f"- {text}", level=level, page=number)
            else:
                builder.add("paragraph", text, page=number)
