"""Where words begin: after what is no letter and after Han, folded as the library folds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.documents import ChunkRow, Hit
from forebay.rerank.features import candidates_of
from forebay.rerank.places import SPREAD, Texts, folded, named
from tests.unit.rerank.test_features import hit, vectors


def chunk(number: int, text: str = "parcels are returned 退货", title: str = "") -> ChunkRow:
    return msgspec.structs.replace(hit(text).chunk, chunk_id=number, title=title)


def found(text: str, *units: str) -> list[tuple[int, int]]:
    """Places in the text, and which unit stands there; a line break precedes the text."""
    told = Texts([chunk(1, text)]).find(units)
    return list(zip((told.at - 1).tolist(), told.unit.tolist(), strict=True))


def test_words_begin_after_what_is_no_letter_and_after_han() -> None:
    told = found("return, unreturned x-return 用return退货", "return", "退货", "退")
    assert told == [(0, 0), (21, 0), (29, 0), (35, 1), (35, 2)]


@pytest.mark.parametrize(
    ("text", "unit", "places"),
    [
        ("ＦＢ-2041 fb-2041", "fb-2041", [0, 8]),
        ("ﬁle and file", "file", [0, 9]),  # one character becomes two
        ("cafe\u0301s, caf\xe9s", "café", [0, 7]),  # two become one
        ("\U0001d7d8x \U00020000退货", "0x", [0]),
        ("\U0001f600 退货", "退货", [2]),
        ("ΟΔΟΣ", "οδος", [0]),  # by what stands behind it
        ("understandably, understandable", "understandably", [0]),
        ("退", "退", [0]),
    ],
)
def test_texts_are_folded(text: str, unit: str, places: list[int]) -> None:
    assert [at for at, _ in found(text, unit)] == places


@given(
    st.lists(
        st.text(st.sampled_from("ab1 -\n退货\uff21\xe9e\u0301\u2026\U0001d7d8\U00020000\ud800"),
                max_size=30), min_size=1, max_size=4
    )
)  # fmt: skip
def test_many_at_once_are_as_one_by_one(texts: list[str]) -> None:
    units = ("a", "ab", "退货", "货", "1", "é")
    rows = [chunk(number, text, text[-9:]) for number, text in enumerate(texts)]
    together, row = Texts(rows).find(units), 0
    for row, one in enumerate(rows):
        alone, mine = Texts([one]).find(units), together.row == row
        assert (together.at[mine] - row * SPREAD).tolist() == alone.at.tolist()
        assert together.unit[mine].tolist() == alone.unit.tolist()
    assert set(together.row.tolist()) <= set(range(row + 1))


def test_of_a_word_the_first_eight_places_count() -> None:
    told = Texts([chunk(1, "cat " * 20), chunk(2, "dog cat")]).find(("cat",))
    assert np.bincount(told.row).tolist() == [8, 1]


def test_names_are_titles_without_what_stands_around_them() -> None:
    assert named("《Stephen King》 (Author)").name == "stephen king》"
    assert named("备份脚本 (v2)").name == "备份脚本"
    assert named("(film)").name == ""


def test_names_are_found_where_words_begin() -> None:
    texts = Texts(
        [
            chunk(1, "by Stephen King, see 员工手册", "The Handbook"),
            chunk(2, "unstephen king; handbooks and 手册员", "Stephen King"),
            chunk(3, "the handbook says", "员工手册"),
        ]
    )
    wanted = ["stephen king", "员工手册", "the handbook", "book"]
    assert texts.naming(wanted) == {
        ("stephen king", 0), ("stephen king", 1), ("员工手册", 0), ("员工手册", 2),
        ("the handbook", 0), ("the handbook", 2),
    }  # fmt: skip


def test_features_are_the_same_from_many_threads() -> None:
    hits = [
        Hit(chunk(number, f"parcels {number} returned {'退货 ' * number}"), 0.9 - number / 40)
        for number in range(30)
    ]
    told = vectors(len(hits))
    wanted = candidates_of("returned parcels 退货", hits, told).features

    def ask(_: int) -> bool:
        made = candidates_of("returned parcels 退货", hits, told).features
        return np.array_equal(made, wanted)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(40)))


def test_the_table_folds_every_character_as_the_library_does() -> None:
    every = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(every), 700):
        some = "-".join(every[start : start + 700])
        wanted = "".join(c if ord(c) < 0x10000 else "\u0101" for c in folded(some))
        kept = Texts([chunk(1, some)])._codes[1 : 1 + len(wanted)].tobytes()
        assert kept == wanted.encode("utf-16-le")
