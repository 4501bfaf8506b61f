"""Packed facts of chunks: exact for the terms asked, and bounded in memory."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.retrieval.counts import FactsCache, pack_facts, packed_hashes, unpack_facts

TERMS = st.lists(st.sampled_from("a b c alpha beta 北京 大学 ~run".split()), max_size=40)


@given(
    st.lists(TERMS, max_size=6),
    st.lists(st.sampled_from("a beta 北京 x ~run".split()), unique=True),
)
def test_frequencies_are_the_counts(documents: list[list[str]], asked: list[str]) -> None:
    chinese = [len(document) % 3 == 0 for document in documents]
    packed = [
        pack_facts(document, chinese=zh) for document, zh in zip(documents, chinese, strict=True)
    ]
    facts = unpack_facts(packed, asked)
    expected = [[Counter(document)[term] for term in asked] for document in documents]
    assert facts.frequencies.tolist() == expected or not expected
    assert facts.lengths.tolist() == [len(document) for document in documents]
    assert facts.chinese.tolist() == chinese
    assert len(packed_hashes(packed)) == sum(len(set(document)) for document in documents)


def test_counts_stop_at_255() -> None:
    facts = unpack_facts([pack_facts(["a"] * 300, chinese=False)], ["a"])
    assert facts.frequencies.tolist() == [[255.0]]
    assert facts.lengths.tolist() == [300.0]


def test_the_cache_keeps_what_was_asked_for_and_its_bound() -> None:
    cache = FactsCache(3 * (100 + 120))
    for chunk_id in range(3):
        cache.put(chunk_id, b"x" * 100)
    cache.get([0])
    cache.put(3, b"y" * 100)
    assert [data is not None for data in cache.get([0, 1, 2, 3])] == [True, False, True, True]
    for chunk_id in range(4, 8):
        cache.get([chunk_id - 1])
        cache.put(chunk_id, b"z" * 100)
    assert cache.get([7]) == [b"z" * 100]
    assert sum(data is not None for data in cache.get(range(8))) == 3
    nothing = FactsCache(0)
    nothing.put(1, b"x")
    assert nothing.get([1]) == [None]
