"""Writes the binary files of ``examples/handbook`` from the plain texts in ``tools/handbook``.

Run as ``python -m tools.make_handbook`` after changing a text; the results are committed.
``--check`` writes nothing and checks ``examples/questions/handbook.jsonl`` instead: every expected
answer must stand in each document it names (binary files are checked through their source text).
Needs python-docx, openpyxl, python-pptx and, only here, reportlab.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_string, policy
from email.message import EmailMessage
from html import escape
from pathlib import Path
from typing import Any

from docx import Document as WordDocument
from openpyxl import Workbook
from pptx import Presentation

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tools" / "handbook"
HANDBOOK = ROOT / "examples" / "handbook"
QUESTIONS = ROOT / "examples" / "questions" / "handbook.jsonl"

TARGETS = {
    "finance/发票规定.txt": "invoice.zh.txt",
    "it/vpn-guide.zh.txt": "vpn.zh.txt",
    "products/FB-2041安装手册.docx": "fb-2041-install.zh.md",
    "products/价目表-2026.xlsx": "price-list.zh.md",
    "safety/有限空间作业.pdf": "confined-space.zh.md",
    "operations/质量月培训.pptx": "quality-training.zh.md",
    "operations/rota-change.eml": "rota-change.zh.md",
    "support/warranty-notice.eml": "warranty-notice.en.md",
    "safety/protective-equipment.pdf": "ppe.en.md",
    "operations/commissioning.docx": "commissioning.en.md",
    "operations/stock-and-crane-limits.xlsx": "stock-limits.en.md",
    "operations/governor-basics.pptx": "governor-basics.en.md",
    "support/field-guide.epub": "field-guide.en.md",
}
ENCODINGS = {"invoice.zh.txt": "gb18030", "vpn.zh.txt": "utf-16"}
FIXED_TIME = datetime(2026, 3, 1, tzinfo=UTC)
EPUB_CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" '
    'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


@dataclass(frozen=True)
class Block:
    """One block of a source text: a heading, a paragraph, a list item or a table."""

    kind: str
    text: str = ""
    level: int = 0
    rows: tuple[tuple[str, ...], ...] = ()


def read_blocks(text: str) -> Iterator[Block]:
    """Blocks of the small Markdown used here: a line is a block, rows in a row are a table."""
    rows: list[tuple[str, ...]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            if not set(line) <= set("|- "):
                rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
            continue
        if rows:
            yield Block("table", rows=tuple(rows))
            rows = []
        if heading := re.match(r"(#+) (.*)", line):
            yield Block("heading", heading[2], len(heading[1]))
        elif item := re.match(r"- (.*)", line):
            yield Block("bullet", item[1])
        elif item := re.match(r"\d+\. (.*)", line):
            yield Block("number", item[1])
        elif line.strip():
            yield Block("text", line)


def to_docx(text: str, target: Path) -> None:
    """Word file with real headings, lists and tables."""
    document = WordDocument()
    styles = {"bullet": "List Bullet", "number": "List Number", "text": "Normal"}
    for block in read_blocks(text):
        if block.kind == "heading":
            document.add_heading(block.text, block.level)
        elif block.kind == "table":
            table = document.add_table(rows=0, cols=len(block.rows[0]), style="Table Grid")
            for row in block.rows:
                for cell, value in zip(table.add_row().cells, row, strict=True):
                    cell.text = value
        else:
            document.add_paragraph(block.text, style=styles[block.kind])
    document.core_properties.author = "Yunbei Hydro Equipment"
    document.core_properties.title = next(read_blocks(text)).text
    document.core_properties.created = FIXED_TIME
    document.save(str(target))


def to_xlsx(text: str, target: Path) -> None:
    """Workbook with one sheet for each heading; numbers stay numbers."""
    book = Workbook()
    book.remove(book.worksheets[0])
    sheet = None
    for block in read_blocks(text):
        if block.kind == "heading":
            sheet = book.create_sheet(block.text[:31])
        elif sheet is not None:
            for row in block.rows:
                sheet.append([_number(value) for value in row])
    book.properties.created = FIXED_TIME
    book.save(target)


def _number(value: str) -> str | int | float:
    if re.fullmatch(r"\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"\d+\.\d+", value) else value


def to_pptx(text: str, target: Path) -> None:
    """Slides: one for each heading, its items as bullets."""
    deck = Presentation()
    body = None
    for block in read_blocks(text):
        if block.kind == "heading":
            slide = deck.slides.add_slide(deck.slide_layouts[1])
            slide.shapes.title.text = block.text
            body = slide.placeholders[1].text_frame
        elif body is not None:
            paragraph = body.add_paragraph() if body.text else body.paragraphs[0]
            paragraph.text = block.text
    deck.save(str(target))


def to_pdf(text: str, target: Path) -> None:
    """PDF with a text layer; Chinese uses a reader-side CID font, so nothing is embedded."""
    # Imported by name: needed by nothing else, so it is no dependency of the checks.
    colors, styles, metrics, fonts, parts = (
        importlib.import_module(f"reportlab.{name}")
        for name in (
            "lib.colors",
            "lib.styles",
            "pdfbase.pdfmetrics",
            "pdfbase.cidfonts",
            "platypus",
        )
    )
    chinese = re.search(r"[\u4e00-\u9fff]", text) is not None
    font = "STSong-Light" if chinese else "Helvetica"
    if chinese:
        metrics.registerFont(fonts.UnicodeCIDFont(font))
    wrap = "CJK" if chinese else None
    flow: list[Any] = []
    for block in read_blocks(text):
        if block.kind == "table":
            grid = [("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("FONT", (0, 0), (-1, -1), font)]
            flow += [parts.Table([list(row) for row in block.rows], style=grid), parts.Spacer(1, 8)]
            continue
        size = {1: 18, 2: 14}.get(block.level, 10.5)
        style = styles.ParagraphStyle(
            "p", fontName=font, fontSize=size, leading=size * 1.5, spaceAfter=4, wordWrap=wrap
        )
        mark = "- " if block.kind == "bullet" else ""
        flow.append(parts.Paragraph(escape(mark + block.text), style))
    title = next(read_blocks(text)).text
    parts.SimpleDocTemplate(str(target), title=title, invariant=1).build(flow)


def to_eml(text: str, target: Path) -> None:
    """Mail message in UTF-8 whose headers are the first lines of the source."""
    source = message_from_string(text, policy=policy.default)
    message = EmailMessage(policy=policy.SMTP)
    for name in ("From", "To", "Subject", "Date"):
        message[name] = str(source[name])
    message["Message-ID"] = f"<{target.stem}@yunbei.example>"
    message.set_content(str(source.get_payload()), charset="utf-8", cte="base64")
    target.write_bytes(message.as_bytes())


def to_epub(text: str, target: Path) -> None:
    """EPUB 3 with one chapter for each second-level heading."""
    title, *chapters = re.split(r"^## ", text, flags=re.MULTILINE)
    title = title.removeprefix("# ").strip()
    names = [f"chapter{number}.xhtml" for number in range(1, len(chapters) + 1)]
    items = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(names)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(names)))
    links = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
    nav = f'<nav epub:type="toc"><ol>{links}</ol></nav>'
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        'unique-identifier="id"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">yunbei-{target.stem}</dc:identifier><dc:title>{title}</dc:title>'
        '<dc:language>en</dc:language><meta property="dcterms:modified">2026-03-01T00:00:00Z'
        '</meta></metadata><manifest><item id="nav" href="nav.xhtml" properties="nav" '
        f'media-type="application/xhtml+xml"/>{items}</manifest><spine>{spine}</spine></package>'
    )
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": EPUB_CONTAINER,
        "book.opf": package,
        "nav.xhtml": _xhtml(title, nav),
    }
    for name, chapter in zip(names, chapters, strict=True):
        files[name] = _xhtml(title, "".join(_tags("## " + chapter)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, FIXED_TIME.timetuple()[:6])
            packed = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, packed)
    target.write_bytes(buffer.getvalue())


def _xhtml(title: str, body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml" '
        f'xmlns:epub="http://www.idpf.org/2007/ops"><head><title>{escape(title)}</title></head>'
        f"<body>{body}</body></html>"
    )


def _tags(text: str) -> Iterator[str]:
    for block in read_blocks(text):
        tag = f"h{block.level}" if block.kind == "heading" else "p"
        yield f"<{tag}>{escape(block.text)}</{tag}>"


WRITERS: dict[str, Callable[[str, Path], None]] = {
    ".docx": to_docx,
    ".xlsx": to_xlsx,
    ".pptx": to_pptx,
    ".pdf": to_pdf,
    ".eml": to_eml,
    ".epub": to_epub,
}


def make() -> None:
    """Write every target whose source stands in ``TARGETS``."""
    for name, source in TARGETS.items():
        text = (SOURCES / source).read_text(encoding="utf-8")
        target = HANDBOOK / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".txt":
            target.write_bytes(text.encode(ENCODINGS[source]))
        else:
            WRITERS[target.suffix](text, target)


def source_text(document: str) -> str:
    """Text of ``handbook/…`` for checking: of its source where the file itself is binary."""
    name = document.removeprefix("handbook/")
    path = SOURCES / TARGETS[name] if name in TARGETS else HANDBOOK / name
    return path.read_text(encoding="utf-8")


def check_questions() -> list[str]:
    """One line for each question that breaks a rule; empty when all is well."""
    found: list[str] = []
    seen: set[str] = set()
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["id"] in seen:
            found.append(f"{row['id']}: the id is used twice")
        seen.add(row["id"])
        if (row["kind"] == "unanswerable") != (not row["documents"] and not row["answer"]):
            found.append(f"{row['id']}: only an unanswerable question names no document or answer")
        for document in row["documents"]:
            text = re.sub(r"\s+", " ", source_text(document))
            missing = [answer for answer in row["answer"] if answer not in text]
            found += [f"{row['id']}: {answer!r} is not in {document}" for answer in missing]
    return found


def main() -> int:
    """Write the files, or check the questions with ``--check``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="check the questions, write nothing")
    if not parser.parse_args().check:
        make()
        return 0
    found = check_questions()
    print("\n".join(found) or "every expected answer stands in the documents it names")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
