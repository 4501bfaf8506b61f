"""Which questions went wrong, why, and how much of them is kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.failures import FAILED, MOST, NOT_FOUND, WRONG, reasons
from forebay.lab.evaluate.result import INVENTED, REFUSED, UNSURE, Row, SetResult
from forebay.lab.evaluate.scoring import Depths, score_set
from forebay.lab.evaluate.target import Outcome, Passage, Said


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({REFUSED: 0.0, UNSURE: 0.0, "answer_found": 1.0, "recall@1": 0.0, "recall@5": 0.5}, ()),
        ({REFUSED: 0.0, UNSURE: 0.0, "answer_found": 0.0, "recall@5": 1.0}, (WRONG,)),
        ({REFUSED: 1.0, UNSURE: 0.0, "answer_found": 0.0, "recall@5": 0.0}, (REFUSED, NOT_FOUND)),
        ({REFUSED: 0.0, UNSURE: 1.0, "answer_found": 0.0}, (UNSURE,)),
        ({INVENTED: 1.0, UNSURE: 0.0, "support": 1.0}, (INVENTED,)),
        ({INVENTED: 0.0, UNSURE: 1.0}, (UNSURE,)),
        ({"recall@1": 0.0, "recall@5": 0.0}, (NOT_FOUND,)),
        ({"support": 0.0}, ()),
        ({}, ()),
    ],
)
def test_why_a_question_went_wrong(values: dict[str, float], why: tuple[str, ...]) -> None:
    assert reasons(Row("1", "en", values)) == why
    assert reasons(Row("1", "en", values, error="late")) == (FAILED,)


def scored(said: Sequence[Said], answers: Sequence[tuple[str, ...]]) -> SetResult:
    questions = tuple(
        Question(f"q{at}", f"which\n one is {at}?", "en", {"a": 1}, own, (), bool(own))
        for at, own in enumerate(answers)
    )
    outcomes = {
        question.id: Outcome(True, (Passage("b" * 999, ""), Passage("a", "")), one)
        for question, one in zip(questions, said, strict=True)
    }
    return score_set(QuestionSet("s", questions), outcomes, lambda _a, _b: 1.0, Depths(), 1)


def test_texts_are_shortened_and_what_was_right_is_left_out() -> None:
    texts = [Said("x " * 500), Said("nine"), Said("No.", refused=True)]
    wrong, refused = scored(texts, [("nine", "9"), ("nine",), ("ten",)]).failures
    assert (wrong.id, wrong.why, wrong.question) == ("q0", (WRONG,), "which one is 0?")
    assert wrong.expected == "nine / 9" and wrong.found[1:] == ("a",)
    assert len(wrong.said) == len(wrong.found[0]) == 300 and wrong.said.endswith("…")
    assert (refused.why, refused.said) == ((REFUSED,), "No.")


def test_of_many_every_kind_is_told() -> None:
    said = [*[Said("wrong")] * 200, *[Said("No.", refused=True)] * 3, *[Said("made up")] * 100]
    answers: list[tuple[str, ...]] = [*[("nine",)] * 203, *[()] * 100]
    failures = scored(said, answers).failures
    assert len(failures) == MOST
    kinds = [failure.why[0] for failure in failures]
    assert [kinds.count(kind) for kind in (INVENTED, WRONG, REFUSED)] == [24, 23, 3]
    assert kinds == sorted(kinds, key=[INVENTED, WRONG, REFUSED].index)
