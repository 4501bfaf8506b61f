"""What becomes of real awkward files: the text that must be found, or the reason for refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.ingest import (
    ChunkSettings,
    EstimatedTokenCounter,
    StructureChunker,
    parse,
)
from forebay.kernel.errors import UnsupportedDocument


class Text(NamedTuple):
    """Indexed: this text is in a chunk (on this page), and this in a warning."""

    fragment: str
    page: int | None = None
    warning: str = ""


class Refused(NamedTuple):
    """Skipped with this code, and this in the sentence."""

    code: str
    reason: str


EMPTY = Refused("empty", "empty")
SCANNED = Refused("no_text_layer", "scanned and has no text layer")
EXPECTED: dict[str, Text | Refused] = {
    "docling__csv-inconsistent-header.csv": Text("a | b | c | d"),
    "docling__csv-too-many-columns.csv": Text("a | b | c | d | e"),
    "docling__docx_rich_cells.docx": Text("A First A Second A Third | This is a formatted list"),
    "docling__gas_disposition.ebc": Refused("undecodable", "EBCDIC"),
    "docling__invisible_text_layer.pdf": Text("Visible heading line", 1, "Invisible text"),
    "docling__legacy_sample.doc": Refused("unsupported_document", "save it as .docx"),
    "docling__nested.md": Text("      - abc12345"),
    "docling__normal_4pages.pdf": Text("코로나바이러스감염", 1),
    "docling__ocr_test.pdf": SCANNED,
    "docling__right_to_left_01.pdf": Text("تحسين", 1),
    "docling__table_06.html": Text("E1 | E2\nE3 | E4"),
    "docling__wiki_duck.html": Text(
        "Ducks are generally smaller and shorter-necked than swans and geese"
    ),
    "markitdown__SPARSE-2024-INV-1234_borderless_table.pdf": Text(
        "SKU-5512 Hardware $89.00 $31,150.00", 2
    ),
    "markitdown__equations.docx": Text("sinθ=mλa"),
    "markitdown__masterformat_partial_numbering.pdf": Text("solicit submissions, in the format", 1),
    "markitdown__random.bin": Refused("not_text", "not text"),
    "markitdown__test.epub": Text("Here's a second chapter with a different style."),
    "markitdown__test.pdf": Text("agents that utilize LLMs for reasoning", 1),
    "markitdown__test.xlsx": Text("Alpha | Beta | Gamma | Delta"),
    "markitdown__test_mskanji.csv": Text("髙橋淳 | 35 | 名古屋", None, "cp932"),
    "markitdown__test_wikipedia.html": Text("American multinational"),
    "markitdown__xlsx_complex_layout.xlsx": Text("Month | Sales\nJan | 1000"),
    "pdfplumber__issue-297-example.pdf": EMPTY,
    "pdfplumber__issue-848.pdf": Text("three police officers", 1),
    "pdfplumber__malformed-from-issue-932.pdf": Text("2021 3 31", 1),
    "pdfplumber__scotus-transcript-p1.pdf": Text(
        "came on for oral argument before the Supreme Court of the United States", 1
    ),
    "ragflow__README_zh.md": Text("多路召回、融合重排序"),
    "ragflow__markdown.sample.zh.md": Text("检查项目 | 基础版 699 元 | 进阶版 1299 元"),
    "ragflow__school.rank.csv": Text("清华大学 | 2 | 985 | Tsinghua University"),
    "unst__a1977-backus-p21.pdf": Text("it permits the definition of new functional forms", 1),
    "unst__book-war-and-peace-1p.txt": Text("Well, Prince, so Genoa and Lucca"),
    "unst__codeblock.md": Text('<html lang="en">'),
    "unst__copy-protected.pdf": Text("Unified Toolkit for Deep Learning Based", 1),
    "unst__csv-with-escaped-commas.csv": Text("A | A | A | A,A | A"),
    "unst__docx-tables.docx": Text("d | e f g&t h | i"),
    "unst__empty.eml": EMPTY,
    "unst__empty.xlsx": EMPTY,
    "unst__example-10k-1p.html": Text("Commission file number: 000-30653"),
    "unst__fake-email-utf-16.eml": Text("This is a test email to use for unit tests."),
    "unst__fake-html-cp1252.html": Text("L'été était très chaud"),
    "unst__fake-incomplete-json.txt": Text('"email": "johndoe@example.com"'),
    "unst__fake-memo-with-duplicate-page.pdf": Text("To Whom it May Concern", 1, "repeats page 1"),
    "unst__fake-power-point-malformed.pptx": Text("Problem Date Placeholder", 1),
    "unst__fake-text-all-whitespace.txt": EMPTY,
    "unst__fake-text-utf-16-le.txt": Text("This is a test document to use for unit tests."),
    "unst__fake-text-utf-32.txt": Text("This is a test document to use for unit tests."),
    "unst__fake.odt": Refused("unsupported_document", "save it as .docx"),
    "unst__handbook-1p.docx": Text("appoints and supervises standing trustees"),
    "unst__ideas-page.html": Text("How to Get New Ideas"),
    "unst__more-than-1k-cells.xlsx": Text("x | x | x"),
    "unst__multi-column-2p.pdf": Text("select candidate contexts, where traditional sparse", 1),
    "unst__norwich-city.txt": Text("Iwan Roberts"),
    "unst__password_protected.xlsx": Refused("encrypted", "encrypted"),
    "unst__pdf-bad-color-space.pdf": Text("across all of our operations and value chain", 1),
    "unst__pdf-with-ocr-text.pdf": Text("progress of the Foundation", 1),
    "unst__rotated-page-90.pdf": Text("Rotated page fixture", 1),
    "unst__single_table.pdf": SCANNED,
    "unst__spring-weather.html.json": Text("text: "),
    "unst__stanley-cups-utf-16.csv": Text("Maple Leafs | TOR | 13"),
    "unst__teams_chat.docx": Text("James Bond"),
    "unst__umlauts-non-utf8.md": Text("äöüß", None, "cp1252"),
    "unst__vodafone.xlsx": Text("Group financial performance | FY 22 | FY 23"),
}


def test_every_file_of_the_collection_has_an_expectation(shared_data: Path) -> None:
    manifest = json.loads((shared_data / "documents" / "manifest.json").read_bytes())
    assert {entry["file"] for entry in manifest} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_awkward_document(name: str, shared_data: Path) -> None:
    data = (shared_data / "documents" / name).read_bytes()
    expected = EXPECTED[name]
    if isinstance(expected, Refused):
        with pytest.raises(UnsupportedDocument) as caught:
            parse(data, name=name)
        assert caught.value.code == expected.code
        assert expected.reason in caught.value.message
        return
    extracted = parse(data, name=name)
    assert "\ufffd" not in extracted.text and "\x00" not in extracted.text
    assert extracted.title
    at = 0
    for block in extracted.blocks:
        assert block.start >= at and extracted.text[block.start : block.end].strip()
        at = block.end
    assert any(expected.warning in warning for warning in (*extracted.warnings, "")), (
        extracted.warnings
    )
    settings = ChunkSettings()
    chunks = StructureChunker(settings, EstimatedTokenCounter()).chunk(extracted)
    assert all(extracted.text[c.start : c.end] == c.text for c in chunks)
    assert all(c.tokens <= settings.max_tokens for c in chunks)
    found = [c for c in chunks if expected.fragment in c.text]
    assert found, extracted.text[:2000]
    assert expected.page is None or found[0].page == expected.page


def test_hidden_text_is_not_indexed(shared_data: Path) -> None:
    data = (shared_data / "documents" / "docling__invisible_text_layer.pdf").read_bytes()
    assert "Invisible OCR text layer" not in parse(data, name="a.pdf").text


def test_two_columns_are_read_one_after_the_other(shared_data: Path) -> None:
    data = (shared_data / "documents" / "unst__multi-column-2p.pdf").read_bytes()
    text = parse(data, name="a.pdf").text
    first = text.index("Open-domain question answering relies on efficient passage")
    assert first < text.index("1 Introduction") < text.index("2 Background")


def test_a_manual_keeps_titles_and_headings(shared_data: Path) -> None:
    folder = shared_data / "documents" / "manual"
    chunker = StructureChunker(ChunkSettings(), EstimatedTokenCounter())
    pages = sorted(folder.rglob("*.md*"))[:40]
    for page in pages:
        extracted = parse(page.read_bytes(), name=page.name)
        assert not extracted.text.startswith("---")
        assert "import " not in extracted.title
        assert all(c.tokens <= 256 for c in chunker.chunk(extracted))
