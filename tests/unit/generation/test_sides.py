"""Which statements of other documents are quoted beside the best, as companies write them."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.documents import Hit
from forebay.testing.generation import passage
from tests.unit.generation.test_selection import quoted


def below(text: str, *headings: str, number: int = 2) -> Hit:
    """A passage under its title and headings."""
    hit = passage(text, number=number)
    chunk = msgspec.structs.replace(hit.chunk, title=headings[0], heading_path=headings)
    return msgspec.structs.replace(hit, chunk=chunk)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        # What is done to a thing is put in other words.
        (
            "By when do I have to submit a claim report?",
            "Claim reports must be submitted no later than 30 days after the loss.",
            "Claim reports are due within 14 days.",
        ),
        (
            "理赔单要在多少天内提交？",
            "理赔单须在出院后15天内提交。",
            "投保人应当在30日内提交理赔单。",
        ),
        # Working days are days.
        (
            "How many days does the repair take?",
            "The repair takes five working days.",
            "The repair takes 8 business days.",
        ),
        ("维修需要几天？", "维修需要五个工作日。", "维修需要8个工作日。"),
        # A prohibition has more than one word.
        ("参观当天早上可以饮水吗？", "参观当天早上可以饮水。", "参观当天早上禁食禁饮水。"),
        # Another class than the one that is asked for is a no.
        ("职员可以坐一等舱吗？", "职员可以坐一等舱。", "职员一律坐二等舱。"),
        # Where: in whatever words.
        ("月票在哪里办理？", "月票请到西侧大厅办理。", "月票改为在线办理。"),
        (
            "Where are parcels handed out?",
            "Parcels are handed out at gate 4.",
            "By now parcels are handed out in the canteen.",
        ),
    ],
)
def test_what_is_said_in_other_words_is_another_side(question: str, one: str, other: str) -> None:
    text = quoted(question, one, other)
    assert one in text and other in text


@pytest.mark.parametrize(
    ("question", "table", "told"),
    [
        (
            "How many calls per minute does the gateway allow?",
            "| Limit | Value |\n|---|---|\n| Calls per minute | 600 |\n| Pages | 50 |",
            "The gateway takes 1,000 calls per minute.",
        ),
        (
            "水箱的容量是多少？",
            "| 项目 | 参数 |\n|---|---|\n| 水箱容量 | 1.8升 |\n| 重量 | 9千克 |",
            "水箱的容量为1.5升。",
        ),
    ],
)
def test_a_row_and_a_sentence_contradict_each_other(question: str, table: str, told: str) -> None:
    text = quoted(question, told, below(table, "Gateway limits 水泵参数"))
    assert told in text and ("600" in text or "1.8" in text)


def test_what_stands_under_a_heading_is_said_of_it() -> None:
    question = "Can the pads of the Orion 5 be replaced?"
    best = "The pads of the Orion 5 are glued to the housing and cannot be replaced."
    pads = "Worn-out pads are simply pulled off."
    family = "The Orion family\n\nOrion 5\n\n" + pads
    assert pads in quoted(question, best, family)
    assert pads not in quoted(question, best, family.replace("Orion 5", "Orion 7"))
    assert pads in quoted(question, best, below(pads, "Orion", "Orion 5"))


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("When does the market begin?", "The market begins at 9 am.", "The market ends at 6 pm."),
        ("集市几点开始？", "集市九点开始。", "集市十八点结束。"),
        (
            "What is the minimum deposit?",
            "The minimum deposit is 50 euros.",
            "The maximum deposit is 900 euros.",
        ),
        ("最低押金是多少？", "最低押金为50元。", "最高押金为900元。"),
    ],
)
def test_an_opposite_is_another_thing(question: str, one: str, other: str) -> None:
    text = quoted(question, one, other)
    assert one in text and other not in text


def test_what_is_said_of_the_variant_named_above_is_no_other_side() -> None:
    question = "How long does the battery of the Orion Kids last?"
    best = below(
        "Its battery lasts as long as 50 hours.", "The Orion family", "Orion Kids", number=1
    )
    text = quoted(question, best, below("The battery lasts 38 hours.", "Orion 5"))
    assert "50" in text and "38" not in text
