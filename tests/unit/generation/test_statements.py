"""What is quoted must say what is asked, and not only speak of the thing."""

from __future__ import annotations

import pytest

from forebay.generation import ExtractiveGenerator
from forebay.testing.embedding import WordCounter
from tests.unit.generation.test_extractive import asked


def draft(question: str, *texts: str) -> tuple[str, bool]:
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *texts, language=language))
    return "".join(found.pieces), found.refused


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who repaired the north crane?", "The north crane lifts 40 tonnes."),
        ("When was the north crane built?", "The north crane works from 6:00 to 22:00."),
        ("Where is the north crane made?", "The north crane lifts 40 tonnes."),
        ("What colour is the north crane?", "The north crane lifts 40 tonnes."),
        ("二号吊车是谁修的？", "二号吊车最多能吊40吨。"),
        ("二号吊车是哪一年造的？", "二号吊车最多能吊40吨。"),
        ("二号吊车是什么颜色？", "二号吊车最多能吊40吨。"),
    ],
)
def test_another_fact_of_the_thing_is_no_answer(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert refused and "40" not in quoted


@pytest.mark.parametrize(
    ("question", "told", "sibling"),
    [
        (
            "How much does the second crane weigh?",
            "The second crane weighs 95 tonnes.",
            "The first crane weighs 80 tonnes.",
        ),
        ("夜班几点开始？", "夜班在22:00开始。", "白班在6:30开始。"),
    ],
)
def test_the_thing_asked_about_is_quoted_and_its_sibling_is_not(
    question: str, told: str, sibling: str
) -> None:
    quoted, refused = draft(question, sibling, told)
    assert not refused
    assert told in quoted and sibling not in quoted
    assert draft(question, sibling)[1]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How heavy is the north crane?", "The north crane weighs 95 tonnes."),
        ("Who guards the north crane?", "The north crane is guarded by Martin Weber."),
        ("二号吊车有多重？", "二号吊车重95吨。"),
        ("二号吊车由谁操作？", "二号吊车由王建国操作。"),
    ],
)
def test_what_shows_the_type_asked_for_is_an_answer(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert not refused and text in quoted


@pytest.mark.parametrize(
    ("question", "text", "refused"),
    [
        ("护手霜一天用几次？", "滴眼液一天用三次。", True),
        ("滴眼液一天用几次？", "滴眼液一天用三次。", False),
    ],
)
def test_all_that_is_asked_but_of_something_else_is_refused(
    question: str, text: str, refused: bool
) -> None:
    assert draft(question, text)[1] is refused


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How many guests are in the hotel?", "The hotel has 120 visitors."),
        ("酒店有多少客人？", "酒店有120位访客。"),
    ],
)
def test_words_that_share_a_translation_stand_for_each_other(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert not refused and "120" in quoted


@pytest.mark.parametrize(
    ("question", "text", "refused"),
    [
        ("What fuse has the FX-210?", "The FX-210 weighs 12 kg.", True),
        ("FX-210用什么保险丝？", "FX-210重12千克。", True),
        ("What fuse has the FX-210?", "The FX-210 has a fuse of 10 A.", False),
        ("How heavy is the FX-210?", "The FX-210 weighs 12 kg.", False),
        ("FX-210有多重？", "FX-210重12千克。", False),
    ],
)
def test_a_code_and_its_parts_do_not_make_up_for_what_is_asked(
    question: str, text: str, refused: bool
) -> None:
    assert draft(question, text)[1] is refused
