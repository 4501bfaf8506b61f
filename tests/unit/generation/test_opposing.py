"""The other side in words that the quotation has not is found by vectors of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.kernel.documents import Hit
from forebay.kernel.sentences import checksum
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked

BATTERY = "How long does the battery of the Lyra 5 last?"
SHEET, FLYER, WARRANTY = (
    "The battery of the Lyra 5 lasts 38 hours.",
    "Charged once, it plays music for 30 hours.",
    "Your receipt is good for 24 months.",
)


def quoted(
    question: str,
    texts: Sequence[str],
    likeness: Mapping[str, float],
    near: Mapping[str, float] | None = None,
    titles: Sequence[str] = (),
) -> str:
    """``likeness``: of the first text and another; ``near``: of a text and the question."""
    hits: list[Hit] = [
        passage(text, number=number, title=titles[number - 1] if titles else "")
        for number, text in enumerate(texts, 1)
    ]
    said = [f"{hit.chunk.title}: {hit.chunk.text}".removeprefix(": ") for hit in hits]
    numbers = dict(zip(texts, map(checksum, said), strict=True))
    first = numbers[texts[0]]
    request = asked(question, *hits, language="en" if question.isascii() else "zh")
    request = msgspec.structs.replace(
        request,
        likeness={
            (min(first, numbers[one]), max(first, numbers[one])): value
            for one, value in likeness.items()
        },
        sentences={numbers[one]: value for one, value in (near or {}).items()},
    )
    return "".join(ExtractiveGenerator(WordCounter()).draft(request).pieces)


TITLES = ("Lyra 5: data", "Lyra 5", "Lyra 5 terms")


@pytest.mark.parametrize("near", [None, {SHEET: 4.0, FLYER: 3.5, WARRANTY: 0.5}])
def test_another_value_of_the_same_kind_is_quoted_though_it_shares_no_word(
    near: Mapping[str, float] | None,
) -> None:
    texts = (SHEET, FLYER, WARRANTY)
    text = quoted(BATTERY, texts, {FLYER: 3.5, WARRANTY: 0.5}, near, TITLES)
    assert SHEET in text and FLYER in text and WARRANTY not in text


def test_nothing_is_added_where_nothing_is_known_or_something_else_is_more_alike() -> None:
    texts = (SHEET, FLYER, WARRANTY)
    for likeness in ({}, {FLYER: 0.2, WARRANTY: 1.9}):
        text = quoted(BATTERY, texts, likeness, titles=TITLES)
        assert SHEET in text and FLYER not in text and WARRANTY not in text


@pytest.mark.parametrize(
    "other",
    [
        "Charged once, it plays music for 2280 minutes.",
        "Charged once, it plays music for 35 to 40 hours.",
        "Charged once, it plays music aloud.",
        "Charged once, it weighs 254 grams.",
    ],
)
def test_the_same_value_a_range_around_it_and_other_kinds_are_no_other_side(other: str) -> None:
    texts = (SHEET, other, WARRANTY)
    text = quoted(BATTERY, texts, {other: 3.5, WARRANTY: 0.5}, titles=TITLES)
    assert SHEET in text and other not in text


def test_what_has_another_name_is_no_other_side() -> None:
    titles = ("Lyra 5: data", "Corvo", "Corvo terms")
    texts = (SHEET, FLYER, WARRANTY)
    text = quoted(BATTERY, texts, {FLYER: 3.5, WARRANTY: 0.5}, titles=titles)
    assert SHEET in text and FLYER not in text


def test_a_name_may_stand_elsewhere_in_the_document() -> None:
    flyer = f"The Lyra 5 folds flat. {FLYER}"
    texts, titles = (SHEET, flyer, WARRANTY), ("Lyra 5: data", "Headphones", "Lyra 5 terms")
    hits = [
        passage(text, number=at, title=title)
        for at, (text, title) in enumerate(zip(texts, titles, strict=True), 1)
    ]
    sheet, other = (checksum(f"{titles[at]}: {text}") for at, text in enumerate((SHEET, FLYER)))
    pair = {(min(sheet, other), max(sheet, other)): 3.5}
    request = msgspec.structs.replace(asked(BATTERY, *hits), likeness=pair)
    text = "".join(ExtractiveGenerator(WordCounter()).draft(request).pieces)
    assert SHEET in text and FLYER in text


def test_where_yes_or_no_is_an_answer_the_likeliest_is_quoted_whatever_it_says() -> None:
    one, other, third = "宿舍内不得饲养宠物。", "带小狗同住的，请先到前台登记。", "电费按月结算。"
    near = {one: 3.0, other: 2.8, third: -1.0}
    text = quoted("宿舍可以养宠物吗？", (one, other, third), {other: 3.0, third: 0.2}, near)
    assert one in text and other in text and third not in text


def test_what_another_clause_has_a_value_for_is_no_other_side() -> None:
    one = "Adults pay 9 pounds, children pay 5 pounds."
    other, third = "The price at the gate is 12 pounds for adults.", "Dogs stay outside."
    question = "How much do children pay?"
    assert other not in quoted(question, (one, other, third), {other: 3.5, third: 0.5})
    other = "The price at the gate is 6 pounds."
    assert other in quoted(question, (one, other, third), {other: 3.5, third: 0.5})
