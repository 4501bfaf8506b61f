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


def test_one_document_does_not_contradict_itself() -> None:
    """Rows of a list differ in their numbers: that is what they are there for."""
    first = passage("The north gate weighs 45 tonnes.", number=1)
    second = passage("The north gate weighs 38 tonnes.", number=2)
    chunk = msgspec.structs.replace(second.chunk, document_id=first.chunk.document_id)
    text = quoted(ENGLISH, first, msgspec.structs.replace(second, chunk=chunk))
    assert "45" in text and "38" not in text


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
