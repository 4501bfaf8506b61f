"""Documents whose titles are alike but for a word tell of two things."""

from __future__ import annotations

import pytest

from forebay.generation import ExtractiveGenerator
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


def quoted(question: str, *documents: tuple[str, str]) -> str:
    language = "en" if question.isascii() else "zh"
    hits = [
        passage(text, number=number, title=title)
        for number, (title, text) in enumerate(documents, 1)
    ]
    draft = ExtractiveGenerator(WordCounter()).draft(asked(question, *hits, language=language))
    return "".join(draft.pieces)


@pytest.mark.parametrize(
    ("question", "mine", "theirs", "value", "other"),
    [
        (
            "Within how many days is a claim filed in Norway?",
            ("Benefits in Norway", "A claim is filed within 45 days."),
            ("Benefits in Latvia", "A claim is filed within 20 days."),
            "45",
            "20",
        ),
        (
            "东城校区的图书馆几点关门？",
            ("东城校区指南", "图书馆晚上十点关门。"),
            ("西山校区指南", "图书馆晚上八点关门。"),
            "十点",
            "八点",
        ),
    ],
)
def test_what_stands_under_a_sibling_s_title_is_not_quoted(
    question: str, mine: tuple[str, str], theirs: tuple[str, str], value: str, other: str
) -> None:
    text = quoted(question, mine, theirs)
    assert value in text and other not in text


def test_a_statement_that_names_the_thing_itself_is_quoted_under_any_title() -> None:
    text = quoted(
        "Within how many days is a claim filed in Norway?",
        ("Benefits in Norway", "A claim is filed within 45 days."),
        ("Benefits in Latvia", "As in Norway, a claim is filed within 20 days."),
    )
    assert "45" in text and "20" in text


def test_titles_that_differ_in_nothing_asked_tell_nothing_apart() -> None:
    text = quoted(
        "Within how many days is a claim filed?",
        ("Benefits in Norway", "A claim is filed within 45 days."),
        ("Benefits in Latvia", "A claim is filed within 20 days."),
    )
    assert "45" in text and "20" in text


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (
            "What is the difference between claims in Norway and Latvia?",
            ("Benefits in Norway", "A claim is filed within 45 days."),
            ("Benefits in Latvia", "A claim is filed within 20 days."),
        ),
        (
            "东城校区和西山校区的图书馆有什么区别？",
            ("东城校区指南", "图书馆晚上十点关门。"),
            ("西山校区指南", "图书馆晚上八点关门。"),
        ),
    ],
)
def test_things_that_are_compared_exclude_each_other_nowhere(
    question: str, one: tuple[str, str], other: tuple[str, str]
) -> None:
    text = quoted(question, one, other)
    assert one[1] in text and other[1] in text
