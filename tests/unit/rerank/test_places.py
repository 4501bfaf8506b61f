"""What is kept of chunks: bounded, made anew when a chunk says else, safe for any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.documents import ChunkRow, Hit
from forebay.rerank.features import candidates_of
from forebay.rerank.places import PlacesCache, Texts, places_of, places_of_all
from tests.unit.rerank.test_features import hit, vectors


def chunk(number: int, text: str = "parcels are returned 退货") -> ChunkRow:
    return msgspec.structs.replace(hit(text).chunk, chunk_id=number)


def test_words_begin_after_what_is_no_letter_and_after_han() -> None:
    found = Texts([places_of(chunk(1, "return, unreturned x-return 用return退货"))]).find(
        ("return", "退货", "退")
    )
    assert list(zip(found.at.tolist(), found.unit.tolist(), strict=True)) == [
        (1, 0), (22, 0), (30, 0), (36, 1), (36, 2)
    ]  # fmt: skip


@given(
    st.lists(
        st.text(st.sampled_from("ab1 -\n退货\uff21é\U0001d7d8\U00020000\ud800\0"), max_size=30)
    )
)
def test_many_at_once_are_as_one_by_one(texts: list[str]) -> None:
    chunks = [
        msgspec.structs.replace(chunk(number, text), title=text[-9:])
        for number, text in enumerate(texts)
    ]
    for made, one in zip(places_of_all(chunks), map(places_of, chunks), strict=True):
        for name in made.__struct_fields__:
            assert np.array_equal(getattr(made, name), getattr(one, name))
        heads = [one.text[at : at + 8] for at in made.words.tolist()]
        assert made.heads.tolist() == [
            int.from_bytes(bytes(min(ord(c), 255) for c in head), "little") for head in heads
        ]
        pairs = [f"{one.text[at : at + 2]}\0"[:2] for at in made.han.tolist()]
        assert made.pairs.tolist() == [
            ord(pair[0]) + (ord(pair[1]) << 16 if pair[1] < "\U00010000" else 0) for pair in pairs
        ]
        assert all("\u3400" <= one.text[at] <= "\u9fff" for at in made.han.tolist())
        spoken = [c.isalnum() and not "\u3400" <= c <= "\u9fff" for c in one.text]
        begins = [at for at, s in enumerate(spoken) if s and not (at and spoken[at - 1])]
        assert made.words.tolist() == begins


def test_of_a_word_the_first_eight_places_count() -> None:
    found = Texts([places_of(chunk(1, "cat " * 20)), places_of(chunk(2, "dog cat"))]).find(("cat",))
    assert np.bincount(found.row).tolist() == [8, 1]


def test_places_are_kept_and_bounded() -> None:
    cache = PlacesCache(10_000)
    first = cache.of([chunk(1)])[0]
    assert cache.of([chunk(1)])[0] is first
    cache.of([chunk(number, "word " * 200) for number in range(2, 40)])
    assert cache.statistics()["bytes"] <= 10_000
    assert cache.of([chunk(1)])[0] is not first, "long unused, let go"
    assert PlacesCache(0).of([chunk(1)])[0].text == first.text


@pytest.mark.parametrize(
    "other", [{"text": "else"}, {"title": "T"}, {"context": "c"}, {"heading_path": ("h",)}]
)
def test_a_chunk_that_says_else_is_made_anew(other: dict[str, object]) -> None:
    cache = PlacesCache(1_000_000)
    before = cache.of([chunk(1)])[0]
    changed = msgspec.structs.replace(chunk(1), **other)
    assert cache.of([changed])[0].text == places_of(changed).text != before.text
    assert cache.statistics() == {"chunks": 1.0, "bytes": float(places_of(changed).nbytes)}


def test_features_are_the_same_with_and_without_a_memory_from_many_threads() -> None:
    cache = PlacesCache(20_000)
    hits = [
        Hit(chunk(number, f"parcels {number} returned {'退货 ' * number}"), 0.9 - number / 40)
        for number in range(30)
    ]
    told = vectors(len(hits))
    wanted = candidates_of("returned parcels 退货", hits, told).features

    def ask(_: int) -> bool:
        made = candidates_of("returned parcels 退货", hits, told, cache).features
        return np.array_equal(made, wanted)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(40)))
