"""How questions name things, in English and Chinese."""

from __future__ import annotations

import pytest

from forebay.generation.terms import first_stem
from forebay.generation.things import han_pairs, is_thing, numbered, pairs


@pytest.mark.parametrize(
    ("question", "word", "head"),
    [
        ("how heavy is the second pump?", "second", "pump"),
        ("how many clerks does the railway office employ today?", "railway", "office"),
        ("since when has the kassel branch sold bread?", "kassel", "branch"),
        ("how many stops are served by bus line 48?", "48", "line"),
    ],
)
def test_modifiers_and_heads_of_english_questions(question: str, word: str, head: str) -> None:
    found = {(pair.word, pair.head) for pair in pairs(question)}
    assert (first_stem(word), first_stem(head)) in found


@pytest.mark.parametrize(
    ("question", "word", "head"),
    [("化学实验室有几个工位？", "化学", "实验室"), ("北门几点关？", "北", "门")],
)
def test_modifiers_and_heads_of_chinese_questions(question: str, word: str, head: str) -> None:
    assert (word, head) in {(pair.word, pair.head) for pair in han_pairs(question)}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("3号锅炉多重", ("号", "锅炉"), 3),
        ("第二期工程何时开始", ("期", "工程"), 2),
        ("公交48路一共停几站", ("路", ""), 48),
        ("七年级哪天出发", ("年级", ""), 7),
    ],
)
def test_numbers_of_things(text: str, key: tuple[str, str], value: int) -> None:
    assert value in numbered(text)[key]


def test_nouns_are_things() -> None:
    assert is_thing("水泵") and not is_thing("去年")
