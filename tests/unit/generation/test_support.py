"""How much of a question's terms passages hold."""

from __future__ import annotations

import pytest

from forebay.generation import ExtractiveGenerator
from forebay.generation.terms import question_terms
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("每人每年有八天年假。", 1.0),
        ("每人一次给足八天年休假。", 0.8),
        # 假 stands behind a comma, or further off: another word.
        ("每到新年，假山要修八天。", 0.0),
        ("每到年底修八天的假山。", 0.0),
    ],
)
def test_two_characters_may_stand_for_a_longer_word(text: str, held: float) -> None:
    question = "年假有几天？"
    request = asked(question, passage(text), language="zh")
    reading = ExtractiveGenerator(WordCounter()).read(question_terms(question), request)
    assert reading.held == (held,)


OFFICES = """# Our offices

## Brussels

- Phone: 02 555 12 00

## Hasselt

- Phone: 011 55 34 00
"""
CARDS = """# 会员套餐

## 银卡

- 月费：29元

## 金卡

- 月费：59元
"""


@pytest.mark.parametrize(
    ("text", "question", "language", "told"),
    [
        (
            OFFICES,
            "What is the phone number of the Hasselt office?",
            "en",
            "Hasselt: Phone: 011 55",
        ),
        (
            OFFICES,
            "What is the phone number of the Brussels office?",
            "en",
            "Brussels: Phone: 02 55",
        ),
        (CARDS, "金卡月费多少？", "zh", "金卡：月费：59元"),
        (CARDS, "银卡月费多少？", "zh", "银卡：月费：29元"),
    ],
)
def test_what_stands_under_a_heading_is_said_of_it(
    text: str, question: str, language: str, told: str
) -> None:
    request = asked(question, passage(text), language=language)
    draft = ExtractiveGenerator(WordCounter()).draft(request)
    answer = "".join(draft.pieces)
    assert told in answer and answer.count(">") == 1
