"""Which units are quoted where documents disagree, and that nothing else is made of numbers."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.kernel.documents import Hit
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked

ENGLISH = "How much does the north gate weigh?"
CHINESE = "北闸门有多重？"


def quoted(question: str, *texts: str | Hit) -> str:
    language = "en" if question.isascii() else "zh"
    draft = ExtractiveGenerator(WordCounter()).draft(asked(question, *texts, language=language))
    assert not draft.refused
    return "".join(draft.pieces)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (ENGLISH, "The north gate weighs 45 tonnes.", "The north gate weighs 38 tonnes."),
        (CHINESE, "北闸门重45吨。", "北闸门重38吨。"),
    ],
)
def test_documents_that_contradict_each_other_are_both_quoted(
    question: str, one: str, other: str
) -> None:
    text = quoted(question, one, other)
    assert f"{one} [1]" in text and f"{other} [2]" in text


@pytest.mark.parametrize(
    ("question", "text"),
    [(ENGLISH, "The north gate weighs 45 tonnes."), (CHINESE, "北闸门重45吨。")],
)
def test_documents_that_agree_are_quoted_once(question: str, text: str) -> None:
    assert quoted(question, text, text).count("45") == 1


def test_another_sentence_with_a_number_contradicts_nothing() -> None:
    text = quoted(ENGLISH, "The north gate weighs 45 tonnes.", "The north gate has 38 bolts.")
    assert "45" in text and "38" not in text


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (ENGLISH, "The north gate weighs 45 tonnes.", "The north gate weighs 38 tonnes."),
        (CHINESE, "北闸门重45吨。", "检修时测得北闸门重38吨。"),
    ],
)
def test_one_document_that_contradicts_itself_is_quoted_twice(
    question: str, one: str, other: str
) -> None:
    first, second = passage(one, number=1), passage(other, number=2)
    chunk = msgspec.structs.replace(second.chunk, document_id=first.chunk.document_id)
    text = quoted(question, first, msgspec.structs.replace(second, chunk=chunk))
    assert f"{one} [1]" in text and f"{other} [2]" in text


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What do children pay?", "Children pay 3 euros. Adults pay 6 euros."),
        ("儿童票多少钱？", "儿童票3元。成人票6元。"),
        ("How much does the north gate weigh?", "- North gate: 45 tonnes\n- North gate: 38 tonnes"),
    ],
)
def test_what_one_document_says_of_others_or_lists_is_no_contradiction(
    question: str, text: str
) -> None:
    """Rows of a list differ in their numbers: that is what they are there for."""
    found = quoted(question, text)
    assert ("3" in found or "45" in found) and "6" not in found and "38" not in found


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who is the captain of the submarine?", "The north gate weighs 45 tonnes."),
        ("潜艇的艇长是谁？", "北闸门重45吨。"),
    ],
)
def test_without_an_answer_there_is_a_refusal(question: str, text: str) -> None:
    language = "en" if question.isascii() else "zh"
    draft = ExtractiveGenerator(WordCounter()).draft(asked(question, text, language=language))
    assert draft.refused and "45" not in "".join(draft.pieces)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (CHINESE, "北闸门重 45 吨，2018 年重新涂装。", "北闸门重 38 吨，在高水位时开启。"),
        ("水泵的质保期是多久？", "水泵的质保期为十二个月。", "自交货起，水泵的质保期为18个月。"),
        ("谁是仓库的主管？", "仓库的主管是赵敏。", "仓库的主管是孙立，2020年上任。"),
        ("电梯哪天检修？", "电梯每周三检修。", "电梯改在星期五检修，停用两小时。"),
        ("学员可以带食物进车间吗？", "学员可以带食物进车间。", "学员不得带食物进车间，饮水除外。"),
        (ENGLISH, "The north gate weighs 45 tonnes.", "Painted, the north gate weighs 47 tonnes."),
        (
            "How long is the guarantee of dryers?",
            "The guarantee of dryers is twelve months.",
            "From delivery on, dryers have a guarantee of 18 months.",
        ),
        (
            "Who is the manager of the depot?",
            "The manager of the depot is Mary Holm.",
            "Since spring Peter Kern is manager of the depot.",
        ),
        ("When are the boats washed?", "The boats are washed on Monday.", "Boats: washed Fridays."),
        (
            "When is the fair held?",
            "The fair is held in early March.",
            "Each year the fair is held in October.",
        ),
        (
            "May trainees use the crane?",
            "Trainees may use the crane.",
            "Trainees must never use the crane, whoever is with them.",
        ),
        ("What colour is the buoy?", "The buoy's colour is red.", "The buoy's colour is green."),
    ],
)
def test_unlike_sentences_that_contradict_each_other_are_both_quoted(
    question: str, one: str, other: str
) -> None:
    for texts in ((one, other), (other, one)):
        text = quoted(question, *texts)
        assert f"{texts[0]} [1]" in text and f"{texts[1]} [2]" in text


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("When is the fair held?", "The fair is held on 3 May.", "The fair is held on 9 May."),
        ("展会什么时候举行？", "展会五月三日举行。", "展会五月九日举行。"),
    ],
)
def test_items_of_two_minutes_contradict_each_other(question: str, one: str, other: str) -> None:
    text = quoted(question, f"1. {one}\n2. -", f"- {other}")
    assert f"{one} [1]" in text and f"{other} [2]" in text


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("水泵的质保期是多久？", "水泵的质保期为十二个月。", "自交货起，水泵的质保期为12个月。"),
        ("水泵的质保期是多久？", "水泵的质保期为12个月。", "阀门的质保期为18个月。"),
        ("电梯哪天检修？", "电梯每周三检修。", "电梯在星期三检修，停用两小时。"),
        (
            "学员可以带食物进车间吗？",
            "学员可以带食物进车间。",
            "学员可以带食物进车间，不超过一份。",
        ),
        (
            "How long is the guarantee of dryers?",
            "The guarantee of dryers is twelve months.",
            "From delivery on, dryers have a guarantee of 12 months.",
        ),
        (
            "How long is the guarantee of dryers?",
            "The guarantee of dryers is 12 months.",
            "The guarantee of ovens is 18 months.",
        ),
        (
            "May trainees use the crane?",
            "Trainees may use the crane.",
            "Trainees may use the crane for no more than an hour.",
        ),
        (
            "Who is the manager of the depot?",
            "The manager of the depot is Mary Holm.",
            "Since spring Mary Holm is manager of the depot.",
        ),
    ],
)
def test_what_says_the_same_or_speaks_of_another_thing_is_no_other_side(
    question: str, one: str, other: str
) -> None:
    text = quoted(question, one, other)
    assert one in text and other not in text


@pytest.mark.parametrize(
    ("question", "text", "known"),
    [
        ("南闸门有多重？", "北闸门重45吨。", "北闸门有多重？"),
        ("风机的质保期是多久？", "水泵的质保期为12个月。", "水泵的质保期是多久？"),
        ("产假有多少天？", "员工每年有十五天年假。", "年假有多少天？"),
        (
            "What does the south gate weigh?",
            "The north gate weighs 45 tonnes.",
            "What does the north gate weigh?",
        ),
        (
            "What is the guarantee of ovens?",
            "The guarantee of dryers is 12 months.",
            "What is the guarantee of dryers?",
        ),
        (
            "How many days of maternity leave are there?",
            "Employees have 12 days of annual leave.",
            "How many days of annual leave are there?",
        ),
    ],
)
def test_another_thing_of_the_kind_is_no_answer(question: str, text: str, known: str) -> None:
    language = "en" if question.isascii() else "zh"
    draft = ExtractiveGenerator(WordCounter()).draft(asked(question, text, language=language))
    assert draft.refused and text not in "".join(draft.pieces)
    assert text in quoted(known, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What does the heavy gate weigh?", "The gate weighs 45 tonnes."),
        ("What does a replacement badge cost?", "A lost badge costs 60 euros: the badge's cost."),
        ("重型闸门有多重？", "闸门重45吨。"),
    ],
)
def test_a_word_more_in_the_question_is_no_other_thing(question: str, text: str) -> None:
    assert "60" in (answer := quoted(question, text)) or "45" in answer
