"""A question about one cell finds its row, with the header that says what the cell is."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import docx
import msgspec
import openpyxl
import pptx
import pytest
from pptx.util import Inches

from forebay.generation import ExtractiveGenerator
from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse
from forebay.retrieval import KbIndex
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import generation_request, passage
from forebay.testing.index_feed import MemoryIndexFeed

PRODUCTS = ("pump", "valve", "seal", "motor", "gauge", "filter", "clamp", "sensor", "hose", "bolt")
PLACES = ("Oslo", "Turin", "Lyon", "Porto", "Cork", "Graz", "Gent", "Brno")
ROWS = [
    [f"{place} {product}", str(1_000 + 7 * number), str(2_000 + 11 * number)]
    for number, (place, product) in enumerate((p, q) for p in PLACES for q in PRODUCTS)
]
HEADER = ["Product", "2019", "2018"]
WANTED = "Gent motor"
Made = Callable[[], bytes]


def table() -> list[list[str]]:
    return [HEADER, *ROWS]


def csv_file() -> bytes:
    return "\n".join(",".join(row) for row in table()).encode()


def markdown_file() -> bytes:
    head, *rows = (f"| {' | '.join(row)} |" for row in table())
    return "\n".join(["# Sales", "", head, "|---|---|---|", *rows]).encode()


def text_file() -> bytes:
    return ("Sales by product:\n" + "\n".join(" | ".join(row) for row in table())).encode()


def html_file() -> bytes:
    rows = ("".join(f"<td>{cell}</td>" for cell in row) for row in table())
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<html><body><table>{body}</table></body></html>".encode()


def excel_file() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for name, *figures in table():
        sheet.append([name, *map(int, figures)])
    data = io.BytesIO()
    book.save(data)
    return data.getvalue()


def word_file() -> bytes:
    document = docx.Document()
    made = document.add_table(rows=0, cols=3)
    for row in table():
        for cell, text in zip(made.add_row().cells, row, strict=True):
            cell.text = text
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def slides_file() -> bytes:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    shape = slide.shapes.add_table(len(ROWS) + 1, 3, Inches(1), Inches(1), Inches(6), Inches(4))
    for number, row in enumerate(table()):
        for column, text in enumerate(row):
            shape.table.cell(number, column).text = text
    data = io.BytesIO()
    show.save(data)
    return data.getvalue()


FILES: dict[str, Made] = {
    "sales.csv": csv_file,
    "sales.md": markdown_file,
    "sales.txt": text_file,
    "sales.html": html_file,
    "sales.xlsx": excel_file,
    "sales.docx": word_file,
    "sales.pptx": slides_file,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What was the {} in 2019?", "en"),
        ("2019 年 {} 的销售额是多少？", "zh"),
        ("{} 2019", "en"),
    ],
)
def test_a_cell_is_found_by_row_and_column(
    tmp_path: Path, name: str, question: str, language: str
) -> None:
    extracted = parse(FILES[name](), name=name)
    chunks = StructureChunker(ChunkSettings(), EstimatedTokenCounter()).chunk(extracted)
    assert len(chunks) >= 3
    record = MemoryIndexFeed(4)
    by_id = {
        record.add(chunk.text, context=chunk.context, document=name)[0]: chunk for chunk in chunks
    }
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    words = index.snapshot().lexical
    best = by_id[words.search(words.parse(question.format(WANTED)), (), 1).ids.tolist()[0]]
    index.close()
    row = next(row for row in ROWS if row[0] == WANTED)
    assert " | ".join(row) in best.text
    assert " | ".join(HEADER) in f"{best.context}\n{best.text}"
    hit = passage(best.text, number=1, score=0.9)
    hit = msgspec.structs.replace(
        hit, chunk=msgspec.structs.replace(hit.chunk, context=best.context)
    )
    request = generation_request(question.format(WANTED), language=language)
    answer = ExtractiveGenerator(WordCounter()).draft(
        msgspec.structs.replace(request, passages=(hit,))
    )
    colon = "：" if language == "zh" else ": "
    assert f"2019{colon}{row[1]}" in "".join(answer.pieces)


PIPED = {
    "types.md": "# Types\n\n| Valve | Note | Price |\n|---|---|---|\n"
    "| V1 | `a\\|b` type | EUR 10 |\n| V2 | plain type | EUR 20 |\n",
    "types.txt": "| Valve | Note | Price |\n|---|---|---|\n"
    "| V1 | `a\\|b` type | EUR 10 |\n| V2 | plain type | EUR 20 |\n",
    "types.csv": "Valve,Note,Price\nV1,a|b type,EUR 10\nV2,plain type,EUR 20\n",
}


@pytest.mark.parametrize("name", PIPED)
@pytest.mark.parametrize(
    ("question", "language", "said"),
    [
        ("What is the price of valve V1?", "en", "Price: EUR 10"),
        ("V1的价格", "zh", "Price：EUR 10"),
    ],
)
def test_a_pipe_within_a_cell_moves_no_column(
    name: str, question: str, language: str, said: str
) -> None:
    extracted = parse(PIPED[name].encode(), name=name)
    [chunk] = StructureChunker(ChunkSettings(), EstimatedTokenCounter()).chunk(extracted)
    request = generation_request(question, language=language)
    hit = passage(chunk.text, number=1, score=0.9)
    answer = ExtractiveGenerator(WordCounter()).draft(
        msgspec.structs.replace(request, passages=(hit,))
    )
    assert said in "".join(answer.pieces), answer.pieces
    assert "a\\|b" not in "".join(answer.pieces)
