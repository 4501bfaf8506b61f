"""Word documents: opened by python-docx, read element by element in document order."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from forebay.ingest.archive import ZIP_ERRORS, damaged, open_archive, read_entry, safe_xml
from forebay.ingest.formats.table_head import mark_header
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze, tidy
from forebay.kernel.documents import BlockKind, Extracted
from forebay.kernel.rows import row_of

if TYPE_CHECKING:
    from lxml import etree

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_SKIPPED = frozenset(
    {f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", f"{_W}delText", f"{_MC}Fallback", f"{_W}pPr"}
)
_HEADING = re.compile(r"(?:heading|标题|標題|见出し|titre|überschrift)\s*([1-9])", re.IGNORECASE)
_CODE_STYLE = re.compile(r"code|source|preformatted|代码", re.IGNORECASE)
_MAX_NESTING = 12


class _Style(NamedTuple):
    name: str
    outline: int | None
    based_on: str | None
    listed: bool


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return headings, paragraphs, list items and tables; deleted and hidden text is left out."""
    archive = open_archive(source.data, limits)
    title, author, language = _properties(source.data)
    body, styles = _body(archive)
    builder = TextBuilder(limits, media_type=source.media_type)
    walker = _Walker(builder, styles)
    walker.walk(body, 0)
    for name in ("word/footnotes.xml", "word/endnotes.xml"):
        notes = read_entry(archive, name)
        if notes is not None:
            walker.walk(safe_xml(notes), 0)
    if walker.hidden:
        builder.warn("Text that is formatted as hidden was left out.")
    heading = any(block.kind == "heading" for block in builder.blocks)
    if title == "Word Document":
        title = ""  # what the library makes up where the properties are missing
    return builder.build(
        title=title or walker.title or ("" if heading else source.stem),
        language=language,
        metadata={"author": author},
    )


def _properties(data: bytes) -> tuple[str, str, str]:
    """Title, author and language from the core properties; empty where they cannot be read."""
    import docx
    from docx.opc.exceptions import PackageNotFoundError
    from lxml import etree

    try:
        properties = docx.Document(io.BytesIO(data)).core_properties
        return properties.title or "", properties.author or "", properties.language or ""
    # A package without its optional parts is still readable by its main part alone.
    except (
        KeyError,
        ValueError,
        AttributeError,
        PackageNotFoundError,
        etree.LxmlError,
        *ZIP_ERRORS,
    ):
        return "", "", ""


def _body(archive: zipfile.ZipFile) -> tuple[etree._Element, dict[str, _Style]]:
    document = read_entry(archive, _main_part(archive))
    if document is None:
        raise damaged("main part")
    root = safe_xml(document)
    body = root.find(f"{_W}body")
    if body is None:
        raise damaged("main part")
    data = read_entry(archive, "word/styles.xml")
    return body, {} if data is None else _styles(safe_xml(data))


def _main_part(archive: zipfile.ZipFile) -> str:
    names = archive.namelist()
    if "word/document.xml" in names:
        return "word/document.xml"
    found = [n for n in names if re.fullmatch(r"word/document\d*\.xml", n)]
    return found[0] if found else "word/document.xml"


def _styles(root: etree._Element) -> dict[str, _Style]:
    styles: dict[str, _Style] = {}
    for style in root.iter(f"{_W}style"):
        name = style.find(f"{_W}name")
        base = style.find(f"{_W}basedOn")
        outline = style.find(f"{_W}pPr/{_W}outlineLvl")
        level = outline.get(f"{_W}val") if outline is not None else None
        styles[style.get(f"{_W}styleId") or ""] = _Style(
            (name.get(f"{_W}val") if name is not None else None) or "",
            int(level) if level is not None and level.isdigit() else None,
            base.get(f"{_W}val") if base is not None else None,
            style.find(f"{_W}pPr/{_W}numPr") is not None,
        )
    return styles


class _Walker:
    """Adds the block-level elements of a part, in order."""

    def __init__(self, builder: TextBuilder, styles: dict[str, _Style]) -> None:
        self._builder = builder
        self._styles = styles
        self.hidden = False
        self.title = ""

    def walk(self, parent: etree._Element, depth: int) -> None:
        """Add every paragraph and table below ``parent``."""
        if depth > _MAX_NESTING:
            self._builder.add("paragraph", squeeze(self._text(parent)))
            return
        for element in parent:
            tag = element.tag
            if tag == f"{_W}p":
                self._paragraph(element)
            elif tag == f"{_W}tbl":
                self._table(element)
            elif tag not in _SKIPPED:
                self.walk(element, depth + 1)

    def _paragraph(self, element: etree._Element) -> None:
        text = tidy(self._text(element))
        if not text:
            return
        style_id = _value(element, f"{_W}pPr/{_W}pStyle")
        level, code, listed = self._style(style_id)
        own = _value(element, f"{_W}pPr/{_W}outlineLvl")
        if own.isdigit() and int(own) < 9:
            level = int(own) + 1
        number = element.find(f"{_W}pPr/{_W}numPr")
        if level is not None:
            if level <= 0:
                self.title = self.title or squeeze(text)
            self._builder.add("heading", squeeze(text), level=min(6, max(1, level)))
        elif number is not None or listed:
            depth = _value(number, f"{_W}ilvl") if number is not None else "0"
            level = int(depth) + 1 if depth.isdigit() else 1
            self._builder.add("list_item", f"- {text}", level=min(level, 9))
        else:
            self._builder.add("code" if code else "paragraph", text)
        for box in element.iter(f"{_W}txbxContent"):
            if not any(a.tag == f"{_MC}Fallback" for a in box.iterancestors()):
                self.walk(box, 1)

    def _style(self, style_id: str) -> tuple[int | None, bool, bool]:
        """Heading level (0: the document's title), code or not, list or not."""
        seen = 0
        code = listed = False
        while style_id and seen < 20:
            style = self._styles.get(style_id) or _Style(style_id, None, None, False)
            match = _HEADING.match(style.name)
            if match is not None:
                return int(match.group(1)), False, False
            if style.name.lower() == "title":
                return 0, False, False
            if style.outline is not None and style.outline < 9:
                return style.outline + 1, False, False
            code = code or bool(_CODE_STYLE.search(style.name))
            listed = listed or style.listed or style.name.lower().startswith("list ")
            style_id, seen = style.based_on or "", seen + 1
        return None, code, listed

    def _text(self, element: etree._Element) -> str:
        """The visible text of a paragraph, equations as their characters."""
        words: list[str] = []
        for event, node in _walk_inline(element):
            tag = node.tag
            if event == "end":
                if tag == f"{_W}p" and node is not element:
                    words.append(" ")
            elif tag in (f"{_W}t", f"{_M}t"):
                words.append(node.text or "")
            elif tag in (f"{_W}tab", f"{_W}ptab"):
                words.append("\t")
            elif tag in (f"{_W}br", f"{_W}cr"):
                words.append("\n")
            elif tag == f"{_W}noBreakHyphen":
                words.append("-")
            elif tag == f"{_W}vanish" and _on(node):
                self.hidden = True
        return "".join(words)

    def _table(self, table: etree._Element) -> None:
        number = self._builder.next_table()
        above: dict[int, str] = {}
        rows: list[list[str]] = []
        marked, named = True, 0
        for row in _rows(table):
            cells: list[str] = []
            for cell in row.iter(f"{_W}tc"):
                if next(cell.iterancestors(f"{_W}tr")) is not row:
                    continue
                text = squeeze(self._cell(cell))
                merge = cell.find(f"{_W}tcPr/{_W}vMerge")
                column = len(cells)
                if merge is not None and merge.get(f"{_W}val") != "restart" and not text:
                    text = above.get(column, "")
                above[column] = text
                span = _value(cell, f"{_W}tcPr/{_W}gridSpan")
                cells.extend([text] * (min(int(span), 60) if span.isdigit() else 1))
            marked = marked and row.find(f"{_W}trPr/{_W}tblHeader") is not None
            shown = cells if len(set(cells)) > 1 else cells[:1]
            if any(shown):
                named += marked
                rows.append(shown)
        for index, (header, shown) in enumerate(mark_header(rows)):
            kind: BlockKind = "table_header" if header or index < named else "table_row"
            self._builder.add(kind, row_of(shown), table=number)

    def _cell(self, cell: etree._Element) -> str:
        """A cell's text; rows of a table inside it follow each other."""
        return " ".join(self._text(paragraph) for paragraph in cell.iter(f"{_W}p"))


def _walk_inline(element: etree._Element) -> Iterator[tuple[str, etree._Element]]:
    """Yield start and end of the nodes of a paragraph that are shown; no recursion."""
    stack: list[tuple[str, etree._Element]] = [("start", element)]
    while stack:
        event, node = stack.pop()
        yield event, node
        if event == "end":
            continue
        stack.append(("end", node))
        for child in reversed(node):
            tag = child.tag
            if tag in _SKIPPED or tag == f"{_W}txbxContent":
                continue
            vanish = child.find(f"{_W}rPr/{_W}vanish") if tag == f"{_W}r" else None
            if vanish is not None and _on(vanish):
                stack.append(("start", vanish))
                continue
            stack.append(("start", child))


def _on(element: etree._Element) -> bool:
    return element.get(f"{_W}val") not in ("0", "false", "off")


def _rows(table: etree._Element) -> Iterator[etree._Element]:
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is table:
            yield row


def _value(element: etree._Element | None, path: str) -> str:
    found = element.find(path) if element is not None else None
    return (found.get(f"{_W}val") or "") if found is not None else ""
