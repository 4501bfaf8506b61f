"""Words of two languages that may mean the same."""

from __future__ import annotations

import pytest

from forebay.generation.lexicon import lexicon
from forebay.generation.terms import Term, stem


def of(word: str) -> list[set[str]]:
    han = not word.isascii()
    key = word if han else stem(word)
    return [set(part) for part in lexicon().of(Term(key, 1.0, han))]


@pytest.mark.parametrize(
    ("word", "one"),
    [("仓库", "warehouse"), ("钥匙", "key"), ("周五", "friday"), ("二号", "second")],
)
def test_words_are_known_in_both_directions(word: str, one: str) -> None:
    assert stem(one) in of(word)[0]
    assert word in of(one)[0]


def test_a_compound_is_known_by_its_parts() -> None:
    machine = of("咖啡机")
    assert len(machine) == 2 and stem("coffee") in machine[0] and stem("machine") in machine[1]


@pytest.mark.parametrize("word", ["饕餮纹", "图书饕", "zyzzyva", "奥托"])
def test_what_is_not_known_is_nothing(word: str) -> None:
    assert of(word) == []


def test_every_word_has_another_side() -> None:
    known = lexicon()
    assert len(known._english) > 1000 and len(known._han) > 1500
    assert all(known._english.values()) and all(known._han.values())
