"""Answers across languages where it is known how near single sentences are to the question."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator, ExtractiveSettings
from forebay.generation.extractive import Draft
from forebay.kernel.sentences import checksum
from forebay.kernel.stages import GenerationRequest
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked

LIBRARY = (
    "The town library was founded by a retired doctor.",
    "For thirty years nobody was allowed to take a book home.",
    "A corner for children was added after the war.",
    "The reading room closes at nine.",
)
FERRY = (
    "渡口的木船每次最多载十二人。",
    "水位超过石阶第七级的时候，船夫会升起红旗。",
    "老船夫去年退休了，他的女儿接过了船桨。",
    "对岸的茶馆替晚到的旅客保管行李。",
)
CHINESE = "早先的读者可不可以借走它们？"
ENGLISH = "What becomes of luggage over there?"


def draft(
    question: str, texts: tuple[str, ...], known: Mapping[str, float], strictness: float = 0.0
) -> tuple[str, bool]:
    settings = ExtractiveSettings(strictness=strictness, max_quotes=1)
    request = near_request(question, texts, known)
    found = ExtractiveGenerator(WordCounter(), settings).draft(request)
    return "".join(found.pieces), found.refused


def near_request(
    question: str, texts: tuple[str, ...], known: Mapping[str, float]
) -> GenerationRequest:
    language = "en" if question.isascii() else "zh"
    text = (" " if texts is LIBRARY else "").join(texts)
    hit = msgspec.structs.replace(passage(text, score=0.3), cosine=0.35, around=0.25)
    return msgspec.structs.replace(
        asked(question, hit, language=language),
        sentences={checksum(one): value for one, value in known.items()},
    )


@pytest.mark.parametrize(
    ("question", "texts", "place"), [(CHINESE, LIBRARY, 1), (ENGLISH, FERRY, 3)]
)
def test_the_nearest_sentence_is_quoted_where_it_stands_out(
    question: str, texts: tuple[str, ...], place: int
) -> None:
    known = dict.fromkeys(texts, 0.5) | {texts[place]: 5.0}
    quoted, refused = draft(question, texts, known)
    assert not refused and f"{texts[place]} [1]" in quoted
    assert draft(question, texts, known, strictness=99.0)[1]


@pytest.mark.parametrize(("question", "texts"), [(CHINESE, LIBRARY), (ENGLISH, FERRY)])
def test_nothing_is_quoted_where_all_are_alike_far(question: str, texts: tuple[str, ...]) -> None:
    assert draft(question, texts, dict.fromkeys(texts, 0.4))[1]


def test_what_is_near_must_show_what_is_asked_for() -> None:
    question = "图书馆是哪一年建立的？"
    known = dict.fromkeys(LIBRARY, 0.5) | {LIBRARY[0]: 6.0}
    assert draft(question, LIBRARY, known)[1]


def test_too_little_known_decides_nothing() -> None:
    without = draft(CHINESE, LIBRARY, {})
    assert draft(CHINESE, LIBRARY, {LIBRARY[1]: 9.0}) == without
    assert draft(CHINESE, LIBRARY, dict.fromkeys(FERRY, 9.0)) == without


QUESTION = "How late may somebody sit there with a paper?"


def test_within_a_language_the_nearest_sentence_is_told_from_others() -> None:
    assert draft(QUESTION, LIBRARY, {})[1], "words do not meet"
    near = dict.fromkeys(LIBRARY, 0.5) | {LIBRARY[3]: 5.0}
    quoted, refused = draft(QUESTION, LIBRARY, near)
    assert not refused and f"{LIBRARY[3]} [1]" in quoted
    assert draft(QUESTION, LIBRARY, near, strictness=99.0)[1]


@pytest.mark.parametrize(
    ("question", "texts", "place", "opening"),
    [
        (QUESTION, LIBRARY, 3, "I found no plain answer in the documents."),
        ("船员里谁现在划船？", FERRY, 2, "在现有文档中没有找到直接的答案"),
    ],
)
def test_what_is_likelier_no_answer_is_told_as_the_nearest(
    question: str, texts: tuple[str, ...], place: int, opening: str
) -> None:
    def told(nearest: float, plain_from: float = 0.7) -> Draft:
        near = dict.fromkeys(texts, 0.5) | {texts[place]: nearest}
        request = near_request(question, texts, near)
        settings = ExtractiveSettings(max_quotes=1, plain_from=plain_from)
        return ExtractiveGenerator(WordCounter(), settings).draft(request)

    drafts = [told(0.5 + step / 8) for step in range(60)]
    kinds = [(one.refused, one.unsure) for one in drafts]
    refused, unsure, plain = (True, False), (False, True), (False, False)
    assert kinds == sorted(kinds, key=[refused, unsure, plain].index), "in this order"
    assert {refused, unsure, plain} == set(kinds)
    first = drafts[kinds.index(unsure)]
    assert first.pieces[0].startswith(opening) and texts[place] in first.pieces[1]
    assert "[1]" in first.pieces[1]
    assert not told(0.5 + kinds.index(unsure) / 8, plain_from=0.0).unsure


def test_within_a_language_what_stands_out_no_more_than_others_answers_nothing() -> None:
    question = "Was the town library founded by a merchant?"
    assert not draft(question, LIBRARY, {})[1]
    assert draft(question, LIBRARY, dict.fromkeys(LIBRARY, 0.4))[1]


def test_what_words_say_to_be_another_thing_is_not_told_however_near() -> None:
    texts = (
        "Acetone boils at 56 degrees.",
        "Ethanol boils at 78 degrees.",
        "Lamps are off at ten.",
    )
    near = {texts[0]: 6.0, texts[1]: 2.0, texts[2]: 0.0}
    assert draft("At what temperature does methanol boil?", texts, near)[1]
    assert not draft("At what temperature does acetone boil?", texts, near)[1]


def test_rows_are_compared_with_the_names_of_their_columns() -> None:
    table = "| Length of service | Days a year |\n|---|---|\n| under 5 years | 8 |\n| longer | 12 |"
    text = f"# Annual leave\n\n{table}\n\nUp to 5 days may be carried over."
    said = {
        "Annual leave: Length of service: under 5 years; Days a year: 8": 5.0,
        "Annual leave: Length of service: longer; Days a year: 12": 2.0,
        "Annual leave: Up to 5 days may be carried over.": 1.0,
    }
    quoted, refused = draft("How many days off does a newcomer get?", (text,), said)
    assert not refused and "Length of service: under 5 years; Days a year: 8" in quoted


@pytest.mark.parametrize("plain_from", [0.7, 0.0, -5.0, math.nan, math.inf])
def test_an_amount_is_found_in_its_range_by_words_however_far_the_sentence(
    plain_from: float,
) -> None:
    texts = (
        "Purchases from 5,001 to 50,000 yuan are approved by the department manager.",
        "Purchases over 50,000 yuan are approved by the board.",
    )
    request = near_request(
        "Who approves a purchase of 20,000 yuan?", texts, dict.fromkeys(texts, 0.5)
    )
    settings = ExtractiveSettings(max_quotes=1, plain_from=plain_from)
    found = ExtractiveGenerator(WordCounter(), settings).draft(request)
    assert not found.refused and not found.unsure and "department manager" in found.pieces[1]
