"""Words: what is found, by whom, and that neither deletes nor merges change a score."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.retrieval.index import KbIndex

from forebay.testing.index_feed import MemoryIndexFeed


def search(index: KbIndex, text: str, limit: int = 10) -> list[int]:
    view = index.snapshot().lexical
    return view.search(view.parse(text), (), limit).ids.tolist()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("C++ (foo", 0),
        ('"x', 1),
        ("id:3", 1),
        ("-词", 2),
        ("词", 2),
        ("北京大学", 3),
        ("大学生", 3),
        ("the", 4),
        ("的", 5),
        ("ＡＢＣ", 6),
        ("café", 7),
        ("cafe", 7),
        ("getUserName", 8),
        ("user name", 8),
        ("running", 4),
        ("42,000", 9),
    ],
)
def test_finds_what_a_person_means(tmp_path: Path, query: str, expected: int) -> None:
    record = MemoryIndexFeed()
    ids = record.add(
        "C++ and (foo)",
        'an x with "id" 3',
        "一个词语",
        "北京大学生前来应聘",
        "the runner runs",
        "我的书",
        "abc",
        "a café in Paris",
        "call getUserName() first",
        "it costs 42000 dollars",
    )
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert search(index, query)[0] == ids[expected]
    index.close()


@pytest.mark.parametrize("query", ["", " ", "*", "🙂", "!?", "\ud800", "\x00", "AND OR NOT" * 5000])
def test_any_text_is_a_query(tmp_path: Path, query: str) -> None:
    record = MemoryIndexFeed()
    record.add("nothing of the kind")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert search(index, query) == []
    index.close()
