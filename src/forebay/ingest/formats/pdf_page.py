"""One PDF page: its visible text, and whether an image covers it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

# Render modes 3 (neither fill nor stroke) and 7 (clip only) draw nothing.
_INVISIBLE_MODES = frozenset({3, 7})
# An image over this share of the page makes invisible text on it an OCR layer.
_SCAN_SHARE = 0.5
_MAX_OBJECTS = 100_000
# pdfium marks a hyphen at a line's end with one of these.
_LINE_HYPHEN = re.compile("[\x02\ufffe](?:\r?\n)?")


class PageText(NamedTuple):
    """``hidden``: invisible text was left out. ``image``: the page shows an image."""

    text: str
    hidden: bool
    image: bool


def read_page(document: Any, index: int) -> PageText:
    """Return the text a reader of the page can see.

    Invisible text is what OCR writes over a scan, and then it is the page's text; on any other
    page it is text for machines only, the way to slip instructions into a prompt.
    """
    page = document[index]
    try:
        textpage = page.get_textpage()
        try:
            invisible, image, share = _objects(page)
            if invisible and share < _SCAN_SHARE:
                raw, hidden = _visible_text(textpage)
            else:
                raw, hidden = textpage.get_text_bounded(), False
        finally:
            textpage.close()
    finally:
        page.close()
    text = _LINE_HYPHEN.sub("", raw).replace("\r\n", "\n").replace("\r", "\n")
    return PageText(text, hidden, image)


def _objects(page: Any) -> tuple[bool, bool, float]:
    """Whether there is invisible text, an image, and the images' share of the page."""
    import pypdfium2.raw as pdfium

    invisible = image = False
    share = 0.0
    width, height = page.get_size()
    area = max(1.0, width * height)
    wanted = [pdfium.FPDF_PAGEOBJ_TEXT, pdfium.FPDF_PAGEOBJ_IMAGE]
    for count, item in enumerate(page.get_objects(filter=wanted, max_depth=5)):
        if count > _MAX_OBJECTS:
            break
        if item.type == pdfium.FPDF_PAGEOBJ_TEXT:
            if pdfium.FPDFTextObj_GetTextRenderMode(item) in _INVISIBLE_MODES:
                invisible = True
        else:
            left, bottom, right, top = item.get_bounds()
            image = True
            # Scanners store a page in strips, too: what counts is what they cover together.
            share += abs(right - left) * abs(top - bottom) / area
    return invisible, image, share


def _visible_text(textpage: Any) -> tuple[str, bool]:
    """The page's text without letters whose text object draws nothing, and if there were any."""
    import pypdfium2.raw as pdfium

    visible: list[str] = []
    modes: dict[int, bool] = {}
    shown, hidden = True, False
    for index in range(textpage.count_chars()):
        item = pdfium.FPDFText_GetTextObject(textpage, index)
        if item:
            key = pdfium.ctypes.cast(item, pdfium.ctypes.c_void_p).value or 0
            if key not in modes:
                modes[key] = pdfium.FPDFTextObj_GetTextRenderMode(item) not in _INVISIBLE_MODES
            shown = modes[key]
        code = pdfium.FPDFText_GetUnicode(textpage, index)
        char = chr(code) if 0 < code < 0x110000 else ""
        # White space draws nothing in any mode; some writers set it apart as invisible.
        if shown or char.isspace():
            visible.append(char)
        else:
            hidden = hidden or bool(char)
    return "".join(visible), hidden
