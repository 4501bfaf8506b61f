"""What is quoted must say what is asked, and not only speak of the thing."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
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
        ("Who may enter the server room?", "The server room is entered by our own team only."),
        ("How long must a password be?", "A password has at least 16 characters."),
        ("密码要多长？", "密码至少16位。"),
        ("What is the colour of a visitor's badge?", "Every visitor wears a yellow badge."),
        ("访客胸牌是什么颜色？", "访客佩戴黄色胸牌。"),
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


@pytest.mark.parametrize(
    ("question", "title", "text"),
    [
        ("Who is the CEO of Larkspur?", "Travel policy of Larkspur", "Owner: Finance."),
        ("What is the per diem for France?", "Per diem", "In Zurich the limit is 210 EUR."),
    ],
)
def test_a_title_answers_for_no_name_that_is_nowhere(question: str, title: str, text: str) -> None:
    hit = passage(text)
    hit = msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, title=title))
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, hit))
    assert found.refused


@pytest.mark.parametrize(("place", "told"), [("上海", True), ("广州", False)])
def test_a_row_of_another_place_is_no_answer(place: str, *, told: bool) -> None:
    table = "网点 | 电话\n上海服务中心 | 021-5588\n成都维修站 | 028-8123"
    request = asked(f"{place}服务中心的电话是多少？", table, language="zh", score=0.5)
    found = ExtractiveGenerator(WordCounter()).draft(request)
    assert found.refused != told
    assert ("021-5588" in "".join(found.pieces)) == told


PRICES = """model | name | range | price_eur | warranty_months
LK-200 | Pressure gauge | 0-16 bar | 480 | 24
LK-350 | Flow meter | 2-200 l/min | 1850 | 36
LK-360 | Flow meter | 10-900 l/min | 2640 | 36
TX-9 | Temperature probe | -40 to 180 °C | 210 | 12"""


@pytest.mark.parametrize(
    ("question", "table", "told"),
    [
        ("How much does the LK-350 cost?", "Model | Price (EUR)\nLK-350 | 420\nLK-90 | 75", "420"),
        ("How much does the LK-370 cost?", "Model | Price (EUR)\nLK-350 | 420\nLK-90 | 75", None),
        ("How much does the LK-370 cost?", PRICES, None),
        ("How much does the LK-360 cost?", PRICES, "2640"),
        ("LK-370多少钱？", PRICES, None),
        ("LK-360多少钱？", PRICES, "2640"),
        ("LK-350多少钱？", "型号 | 价格（元）\nLK-350 | 3200\nLK-90 | 580", "3200"),
        ("LK-370多少钱？", "型号 | 价格（元）\nLK-350 | 3200\nLK-90 | 580", None),
    ],
)
def test_a_row_of_another_code_is_no_answer(question: str, table: str, told: str | None) -> None:
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, table, language=language))
    assert found.refused == (told is None)
    assert told is None or told in "".join(found.pieces)
