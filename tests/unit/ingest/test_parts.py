"""Long texts cut at their meaning."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.ingest import EstimatedTokenCounter, TextSplitter

COUNTER = EstimatedTokenCounter()
SPLITTER = TextSplitter(COUNTER)


def english(sections: int) -> str:
    body = "The gate of the dam is opened when the water is high. " * 12
    return "\n\n".join(f"## Gate {number}\n\n{body.strip()}" for number in range(sections))


def chinese(sections: int) -> str:
    body = "水位高的时候打开大坝的闸门。" * 20
    return "\n\n".join(f"第{number}章 闸门\n\n{body}" for number in range(1, sections + 1))


@pytest.mark.parametrize("text", [english(12), chinese(12)])
def test_parts_begin_at_headings_where_they_can(text: str) -> None:
    spans = SPLITTER.split(text, 500, 30)
    assert 4 <= len(spans) <= 12
    for start, end in spans:
        assert COUNTER.count(text[start:end]) <= 500
        assert text[start:].startswith(("## Gate", "第"))
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)


@pytest.mark.parametrize(
    ("sentence", "ends"),
    [("Water flows over the spillway at night. ", "."), ("夜里水从溢洪道上流过。", "。")],
)
def test_a_paragraph_without_end_is_cut_at_sentences(sentence: str, ends: str) -> None:
    text = (sentence * 400).strip()
    spans = SPLITTER.split(text, 400, 40)
    assert len(spans) > 5
    for (start, end), (following, _) in pairwise(spans):
        assert text[end - 1] == ends
        assert start < following < end  # some of it is repeated
        assert text[following:].startswith(sentence.strip()[:10])


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab 坝。.\n#1、\u3000x", max_size=600), st.integers(16, 80))
def test_nothing_but_white_space_is_lost(text: str, most: int) -> None:
    covered: set[int] = set()
    for start, end in SPLITTER.split(text, most, 8):
        covered.update(range(start, end))
        assert COUNTER.count(text[start:end]) <= most
    missing = [at for at in range(len(text)) if at not in covered and not text[at].isspace()]
    assert missing == []
