"""Word, PowerPoint, Excel, EPUB: made here, read back."""

from __future__ import annotations

import io
import zipfile

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from forebay.ingest import IngestLimits, parse
from forebay.kernel.errors import UnsupportedDocument


def saved(document: object) -> bytes:
    file = io.BytesIO()
    document.save(file)  # type: ignore[attr-defined]
    return file.getvalue()


def test_word() -> None:
    document = docx.Document()
    document.core_properties.title = "员工手册"
    document.add_heading("Chapter", 1)
    document.add_heading("Section", 2)
    document.add_paragraph("Text of the section.")
    document.add_paragraph("point", style="List Bullet")
    table = document.add_table(2, 3)
    for index, cell in enumerate(table._cells):
        cell.text = f"{'head' if index < 3 else 'cell'} {index}"
    document.add_paragraph("after")
    hidden = document.add_paragraph("shown ")
    hidden.add_run("secret").font.hidden = True
    extracted = parse(saved(document), name="a.docx")
    assert extracted.title == "员工手册"
    found = [(b.kind, b.level, extracted.text[b.start : b.end]) for b in extracted.blocks]
    assert found == [
        ("heading", 1, "Chapter"),
        ("heading", 2, "Section"),
        ("paragraph", 0, "Text of the section."),
        ("list_item", 1, "- point"),
        ("table_header", 0, "head 0 | head 1 | head 2"),
        ("table_row", 0, "cell 3 | cell 4 | cell 5"),
        ("paragraph", 0, "after"),
        ("paragraph", 0, "shown"),
    ]
    assert extracted.warnings == ("Text that is formatted as hidden was left out.",)


def test_word_deleted_text_is_gone_and_inserted_text_is_there() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("kept ")
    for xml in (
        "<w:del {}><w:r><w:delText>deleted</w:delText></w:r></w:del>",
        "<w:ins {}><w:r><w:t>inserted</w:t></w:r></w:ins>",
    ):
        paragraph._p.append(parse_xml(xml.format(nsdecls("w"))))
    assert parse(saved(document), name="a.docx").text == "kept inserted"


def test_powerpoint() -> None:
    show = pptx.Presentation()
    for number in (1, 2):
        slide = show.slides.add_slide(show.slide_layouts[1])
        assert slide.shapes.title is not None
        slide.shapes.title.text = f"第{number}页"
        slide.placeholders[1].text_frame.text = "one\ntwo"
        slide.notes_slide.notes_text_frame.text = "a note"
    extracted = parse(saved(show), name="a.pptx")
    last = [(b.kind, b.page, extracted.text[b.start : b.end]) for b in extracted.blocks][4:]
    assert last == [
        ("heading", 2, "第2页"),
        ("list_item", 2, "- one"),
        ("list_item", 2, "- two"),
        ("paragraph", 2, "a note"),
    ]


def test_excel() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "价目表"
    for row in (("名称", "价格"), ("甲", 1.5), ("乙", 2), (None, None), ("丙", True)):
        sheet.append(row)
    extracted = parse(saved(book), name="a.xlsx")
    assert extracted.text == "价目表\n\n名称 | 价格\n甲 | 1.5\n乙 | 2\n丙 | TRUE"
    assert extracted.blocks[1].kind == "table_header"
    assert {b.page for b in extracted.blocks} == {1}


def epub(pages: dict[str, str]) -> bytes:
    items = "".join(f'<item id="i{i}" href="{n}"/>' for i, n in enumerate(pages))
    spine = "".join(f'<itemref idref="i{i}"/>' for i in range(len(pages)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container><rootfiles><rootfile full-path="o/p.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "o/p.opf",
            '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>书</dc:title>'
            f"<dc:language>zh</dc:language></metadata><manifest>{items}</manifest>"
            f"<spine>{spine}</spine></package>",
        )
        for name, body in pages.items():
            archive.writestr(f"o/{name}", f"<html><body>{body}</body></html>")
    return file.getvalue()


def test_epub() -> None:
    extracted = parse(
        epub({"a.xhtml": "<h1>一</h1><p>甲</p>", "b.xhtml": "<p>乙</p>"}), name="a.epub"
    )
    assert (extracted.title, extracted.language) == ("书", "zh")
    assert extracted.text == "一\n\n甲\n\n乙"


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx", "a.epub", "a.bin"])
def test_content_decides_not_the_name(name: str) -> None:
    document = docx.Document()
    document.add_paragraph("really Word")
    assert parse(saved(document), name=name).text == "really Word"


def test_text_named_like_a_binary_document_is_refused() -> None:
    with pytest.raises(UnsupportedDocument, match="not such a document"):
        parse(b"plain text", name="a.docx")


def test_size_limits() -> None:
    document = docx.Document()
    document.add_paragraph("word " * 1000)
    data = saved(document)
    for limits in (
        IngestLimits(max_file_bytes=100),
        IngestLimits(max_archive_bytes=1000),
        IngestLimits(max_archive_entries=2),
        IngestLimits(max_characters=100),
    ):
        with pytest.raises(UnsupportedDocument, match="limit"):
            parse(data, name="a.docx", settings=limits)
