"""Chunks by meaning: where they end, and what holds for them as for all chunks."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse
from forebay.ingest.meaning import MeaningChunker, prose_spans
from forebay.kernel.documents import ChunkDraft, Extracted
from tests.unit.ingest.test_chunker import check, extracted_texts

SMALL = ChunkSettings(
    max_tokens=60, min_tokens=8, overlap_tokens=0, kind="meaning", min_sentences=3
)
PUMPS = "The pump runs at 1450 rpm. Its bearings are greased monthly. The seal is of rubber. "
LEAVE = "Leave is asked for in writing. It is granted by the head. Sick days are not counted. "
PUMPS_ZH = "备用泵每分钟1450转。轴承每月加一次油。密封圈是橡胶的。"
LEAVE_ZH = "请假须书面申请。由部门主管批准。病假不计在内。"


def cut(
    text: str, *begins: str, chosen: ChunkSettings = SMALL, name: str = "a.txt"
) -> tuple[ChunkDraft, ...]:
    """Cut ``text`` where the sentences that begin so begin something new."""
    extracted = parse(text.encode(), name=name)
    starts = [start for start, _ in prose_spans(extracted)]
    breaks = [s for s in starts if extracted.text.startswith(begins, s)]
    chunks = MeaningChunker(chosen, EstimatedTokenCounter(), breaks).chunk(extracted)
    check(extracted, chunks, chosen)
    return chunks


def test_a_chunk_ends_where_the_meaning_changes() -> None:
    chunks = cut(PUMPS + LEAVE, "Leave is")
    assert [c.text for c in chunks] == [PUMPS.strip(), LEAVE.strip()]


def test_chinese_sentences_too() -> None:
    chunks = cut(PUMPS_ZH + LEAVE_ZH, "请假")
    assert [c.text for c in chunks] == [PUMPS_ZH, LEAVE_ZH]


def test_without_breaks_length_decides() -> None:
    roomy = ChunkSettings(max_tokens=200, min_tokens=8, overlap_tokens=0)
    assert len(cut(PUMPS + LEAVE, chosen=roomy)) == 1


def test_a_chunk_has_three_sentences_before_it_ends() -> None:
    chunks = cut(PUMPS + LEAVE, "Its bearings", "The seal", "Leave is", "It is granted")
    assert [c.text for c in chunks] == [PUMPS.strip(), LEAVE.strip()]


def test_no_chunk_is_over_the_limit() -> None:
    text = "".join(f"Sentence number {i} is about matter {i}. " for i in range(60))
    chunks = cut(text, "Sentence number 7", "Sentence number 40")
    assert max(c.tokens for c in chunks) <= SMALL.max_tokens
    assert any(c.text.startswith("Sentence number 40") for c in chunks)


def test_overlap_goes_over_the_border_when_asked_for() -> None:
    overlapping = ChunkSettings(max_tokens=60, min_tokens=8, overlap_tokens=20)
    first, second = cut(PUMPS + LEAVE, "Leave is", chosen=overlapping)
    assert second.text.startswith("Its bearings are greased monthly. The seal is of rubber. Leave")
    assert first.end > second.start


def test_headings_lead_and_table_rows_stay_whole() -> None:
    text = (
        f"# Pumps\n\n{PUMPS}\n\n| Part | Price |\n|---|---|\n| Seal | 3 EUR |\n\n"
        f"# Leave\n\n{LEAVE}\n"
    )
    chunks = cut(text, "Its bearings", "It is granted", name="a.md")
    assert chunks[0].heading_path == ("Pumps",) and chunks[-1].heading_path == ("Leave",)
    assert chunks[-1].text.startswith("Leave\n\n")
    assert any("Part | Price\nSeal | 3 EUR" in c.text for c in chunks)


def test_list_items_count_as_sentences() -> None:
    text = "".join(f"- step {i} turns valve number {i} shut\n" for i in range(8))
    extracted = parse(text.encode(), name="a.md")
    assert len(prose_spans(extracted)) == 8


def test_without_anything_to_part_it_is_near_the_structural_chunker() -> None:
    text = f"{PUMPS}\n\n{LEAVE}\n\n{PUMPS_ZH}\n\n{LEAVE_ZH}"
    extracted = parse(text.encode(), name="a.txt")
    by_structure = StructureChunker(SMALL, EstimatedTokenCounter()).chunk(extracted)
    by_meaning = MeaningChunker(SMALL, EstimatedTokenCounter()).chunk(extracted)
    assert by_meaning[0].start == by_structure[0].start
    assert by_meaning[-1].end == by_structure[-1].end


@settings(max_examples=150, deadline=None)
@given(extracted_texts(), st.integers(1, 4), st.sampled_from((0, 25)))
def test_spans_are_exact_for_any_text(extracted: Extracted, every: int, overlap: int) -> None:
    chosen = ChunkSettings(max_tokens=60, min_tokens=8, overlap_tokens=overlap, min_sentences=1)
    starts = [start for start, _ in prose_spans(extracted)][::every]
    chunks = MeaningChunker(chosen, EstimatedTokenCounter(), starts).chunk(extracted)
    covered = 0
    for chunk in chunks:
        assert extracted.text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert extracted.text[covered : chunk.start].strip() == ""
        covered = max(covered, chunk.end)
        size = chunk.tokens + EstimatedTokenCounter().count(chunk.context)
        assert size <= chosen.max_tokens + 4 or len(chunk.text) <= 64
    assert extracted.text[covered:].strip() == ""
    assert all(a.end <= b.end for a, b in itertools.pairwise(chunks))
