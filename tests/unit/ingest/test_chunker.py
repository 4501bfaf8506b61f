"""Chunks: exact spans, sizes, structure, overlap."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse
from forebay.kernel.documents import Block, BlockKind, ChunkDraft, Extracted

SMALL = ChunkSettings(max_tokens=60, min_tokens=8, overlap_tokens=25)


def chunk_markdown(text: str, chosen: ChunkSettings = SMALL) -> tuple[ChunkDraft, ...]:
    extracted = parse(text.encode(), name="a.md")
    chunks = StructureChunker(chosen, EstimatedTokenCounter()).chunk(extracted)
    check(extracted, chunks, chosen)
    return chunks


def check(extracted: Extracted, chunks: tuple[ChunkDraft, ...], chosen: ChunkSettings) -> None:
    """What holds for any text: exact spans, order, coverage, size."""
    counter = EstimatedTokenCounter()
    covered = 0
    for ordinal, chunk in enumerate(chunks):
        assert chunk.ordinal == ordinal
        assert extracted.text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert extracted.text[covered : chunk.start].strip() == ""
        assert chunk.end > covered
        covered = chunk.end
        assert chunk.tokens == counter.count(chunk.text)
        assert chunk.tokens + counter.count(chunk.context) <= chosen.max_tokens + 1
    assert extracted.text[covered:].strip() == ""


def test_a_short_document_is_one_chunk() -> None:
    (chunk,) = chunk_markdown("# Refunds\n\nAsk within 30 days.\n")
    assert chunk.text == "Refunds\n\nAsk within 30 days."
    assert chunk.heading_path == ("Refunds",)


def test_sections_are_kept_apart_and_know_their_headings() -> None:
    body = "We answer every letter within two working days, in writing."
    chunks = chunk_markdown(f"# A\n\n## B\n\n{body}\n\n## C\n\n{body}\n")
    assert [c.heading_path for c in chunks] == [("A", "B"), ("A", "C")]
    assert chunks[1].text == f"C\n\n{body}"


def test_small_sections_join_under_their_common_heading() -> None:
    chunks = chunk_markdown("# A\n\n## B\n\nyes\n\n## C\n\nno\n")
    assert [c.heading_path for c in chunks] == [("A",)]


def test_a_heading_never_ends_a_chunk() -> None:
    sentence = "The quick brown fox jumps over the lazy dog again. "
    chunks = chunk_markdown(f"{sentence * 3}\n\n## Next\n\n{sentence * 3}\n")
    assert not any(c.text.endswith("Next") for c in chunks)
    assert any(c.text.startswith("Next") for c in chunks)


def test_table_header_is_repeated_as_context() -> None:
    rows = "".join(f"| item number {i} | {i} EUR |\n" for i in range(30))
    chunks = chunk_markdown(f"| Name | Price |\n|---|---|\n{rows}")
    assert chunks[0].context == "" and chunks[0].text.startswith("Name | Price")
    assert len(chunks) > 3
    assert {c.context for c in chunks[1:]} == {"Name | Price"}
    assert all(line.startswith("item") for c in chunks[1:] for line in c.text.split("\n"))


def test_a_row_keeps_the_name_of_its_group() -> None:
    groups = "".join(
        f"| {group} | |\n" + "".join(f"| item number {i} | {i} EUR |\n" for i in range(12))
        for group in ("Pumps", "阀门")
    )
    chunks = chunk_markdown(f"| Name | Price |\n|---|---|\n{groups}")
    contexts = [c.context for c in chunks if c.text.startswith("item")]
    assert contexts[0] == "Name | Price\nPumps"
    assert contexts[-1] == "Name | Price\n阀门"


def test_overlap_repeats_the_last_sentence_inside_a_section() -> None:
    text = " ".join(f"Sentence number {i} is about topic {i}." for i in range(20))
    chunks = chunk_markdown(text)
    for before, after in itertools.pairwise(chunks):
        assert after.start < before.end
        assert after.text.startswith("Sentence number")


def test_chinese_is_cut_after_its_own_punctuation() -> None:
    text = "".join(f"第{i}条规定，员工应当在入职当天完成登记。" for i in range(30))
    chunks = chunk_markdown(text)
    assert len(chunks) > 5
    assert all(c.text.endswith("。") for c in chunks)
    assert all(c.text.startswith("第") for c in chunks)


def test_no_overlap_when_none_is_asked_for() -> None:
    chosen = ChunkSettings(max_tokens=60, min_tokens=8, overlap_tokens=0)
    chunks = chunk_markdown("One two three four five six seven. " * 30, chosen)
    assert all(b.end <= a.start for b, a in itertools.pairwise(chunks))


@pytest.mark.parametrize("unit", ["x", "字", "0f", "a,b;", "👩‍👩‍👧‍👦", "e\u0301", "🇩🇪"])
def test_one_monstrous_line_is_cut_at_safe_places(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    extracted = parse(text.encode(), name="long.txt")
    chunks = StructureChunker(SMALL, EstimatedTokenCounter()).chunk(extracted)
    check(extracted, chunks, SMALL)
    for chunk in chunks:
        assert not unicodedata.combining(chunk.text[0]) and chunk.text[0] != "\u200d"
        if len(unit) > 1 and not unit.isascii():
            assert (chunk.start % len(unit), chunk.end % len(unit)) == (0, 0)


def test_code_is_cut_at_line_ends() -> None:
    code = "".join(f"    value_{i} = compute(value_{i - 1}, {i})\n" for i in range(40))
    chunks = chunk_markdown(f"```python\ndef f():\n{code}```\n")
    assert len(chunks) > 3
    assert all(c.text.endswith(")") for c in chunks)
    assert all(c.text.startswith(("def", "    value")) for c in chunks)


KINDS: tuple[BlockKind, ...] = (
    "heading",
    "paragraph",
    "list_item",
    "code",
    "table_row",
    "table_header",
)
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs", "Cc"]),
    st.sampled_from("中文。，！？ abc. \n e\u0301\u200d👩🇩🇪 | 1.5"),
    st.characters(min_codepoint=0x10000, max_codepoint=0x2FFFF, exclude_categories=["Cs"]),
)


@st.composite
def extracted_texts(draw: st.DrawFn) -> Extracted:
    parts, blocks, at = [], [], 0
    for _ in range(draw(st.integers(1, 12))):
        body = draw(st.text(CHARACTERS, min_size=1, max_size=150)).strip()
        if not body:
            continue
        body *= draw(st.sampled_from((1, 1, 1, 7)))
        kind = draw(st.sampled_from(KINDS))
        table = draw(st.integers(0, 1)) if kind.startswith("table") else None
        level = draw(st.integers(1, 6)) if kind == "heading" else 0
        blocks.append(Block(kind, at, at + len(body), level, None, table))
        parts.append(body + "\n\n")
        at += len(body) + 2
    return Extracted(text="".join(parts), blocks=tuple(blocks), media_type="text/plain")


@settings(max_examples=250, deadline=None)
@given(extracted_texts())
def test_spans_are_exact_for_any_text(extracted: Extracted) -> None:
    chunks = StructureChunker(SMALL, EstimatedTokenCounter()).chunk(extracted)
    covered = 0
    for chunk in chunks:
        assert extracted.text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert extracted.text[covered : chunk.start].strip() == ""
        covered = max(covered, chunk.end)
        size = chunk.tokens + EstimatedTokenCounter().count(chunk.context)
        # One user-perceived character may by itself be longer than the bound.
        assert size <= SMALL.max_tokens + 4 or len(chunk.text) <= 64
    assert extracted.text[covered:].strip() == ""
