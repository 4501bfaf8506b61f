"""Models, versions and years tell things of a series apart, in titles as in statements."""

from __future__ import annotations

import pytest

from forebay.generation import ExtractiveGenerator
from forebay.generation.labels import is_of_another, labels
from forebay.generation.passages import analyse
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("how loud is the zephyr 40", {"zephyr": {"40"}}),
        ("lantern server 3.2 needs", {"version": {"3.2"}, "server": {"3.2"}}),
        ("the fair in 2031", {"year": {"2031"}}),
        ("2031年的展会", {"year": {"2031"}}),
        ("does the fair of 2031 open", {"year": {"2031"}}),
        ("what do 2000 leaflets cost", {}),
        ("云雀 3.2 更新说明", {"version": {"3.2"}, "云雀": {"3.2"}}),
        ("it weighs 40 kg and takes 3.2 hours", {}),
        ("重40公斤", {}),
    ],
)
def test_the_numbers_that_name_something(text: str, found: dict[str, set[str]]) -> None:
    assert labels(text) == found


@pytest.mark.parametrize(("year", "other"), [("2031", False), ("2029", True)])
def test_a_year_within_those_of_a_title_is_no_other(year: str, other: bool) -> None:
    passage = analyse("The fair opens on 4 May.", "", "Fairs 2030 to 2032", ())
    assert is_of_another({"year": {year}}, passage.units[0], passage.head) is other


@pytest.mark.parametrize(
    ("question", "title", "text", "refused"),
    [
        ("How long does the Zephyr 40 run?", "Zephyr 40", "The fan runs for 9 hours.", False),
        ("How long does the Zephyr 70 run?", "Zephyr 40", "The fan runs for 9 hours.", True),
        (
            "How long does the Zephyr 70 run?",
            "Zephyr 40",
            "The fan runs for 9 hours, the Zephyr 70 for 12.",
            False,
        ),
        ("When is the fair in 2032?", "Fairs 2031", "The fair opens on 4 May.", True),
        ("When is the fair in 2031?", "Fairs 2031", "The fair opens on 4 May.", False),
        ("云雀3.2需要多大内存？", "云雀 3.1 更新说明", "内存需要 4 GB。", True),
        ("云雀3.1需要多大内存？", "云雀 3.1 更新说明", "内存需要 4 GB。", False),
    ],
)
def test_what_stands_under_a_title_is_said_of_that_one(
    question: str, title: str, text: str, refused: bool
) -> None:
    hit = passage(text, title=title)
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, hit, language=language))
    assert found.refused is refused
