"""The questions of a set that went wrong: why, what was expected, and what was said instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.measures import documents_of
from forebay.lab.evaluate.result import INVENTED, REFUSED, UNSURE, Failure, Row
from forebay.lab.evaluate.target import Outcome

FAILED, WRONG, NOT_FOUND = "failed", "answered_wrong", "not_found"
WORST_FIRST = (FAILED, INVENTED, WRONG, REFUSED, NOT_FOUND, UNSURE)
MOST = 50
"""Questions told of one set."""
_CHARACTERS = 300
_IDS = 3


def reasons(row: Row) -> tuple[str, ...]:
    """What went wrong with a question, worst first; empty when nothing did."""
    if row.error:
        return (FAILED,)
    values = row.values
    found = {name for name in (INVENTED, REFUSED, UNSURE) if values.get(name)}
    if values.get("answer_found") == 0.0 and not found:
        found.add(WRONG)
    depths = [name for name in values if name.startswith("recall@")]
    if depths and not max(values[name] for name in depths):
        found.add(NOT_FOUND)
    return tuple(name for name in WORST_FIRST if name in found)


def failures_of(
    rows: Sequence[Row], questions: Sequence[Question], outcomes: Mapping[str, Outcome]
) -> tuple[Failure, ...]:
    """At most ``MOST`` of them, every kind in turn, so that none hides another."""
    known = {question.id: question for question in questions}
    wrong = [(why, row) for row in rows if (why := reasons(row))]
    wrong.sort(key=lambda one: (WORST_FIRST.index(one[0][0]), one[1].values.get("f1", 0.0)))
    before: Counter[str] = Counter()
    turns = []
    for why, _ in wrong:
        turns.append(before[why[0]])
        before[why[0]] += 1
    chosen = sorted(range(len(wrong)), key=lambda at: (turns[at], at))[:MOST]
    return tuple(
        _failure(wrong[at][0], known[wrong[at][1].id], outcomes[wrong[at][1].id])
        for at in sorted(chosen)
    )


def _failure(why: tuple[str, ...], question: Question, outcome: Outcome) -> Failure:
    expected = " + ".join(question.parts) or " / ".join(question.answers)
    if not expected:
        expected = ", ".join(name for name, grade in question.relevance.items() if grade > 0)
    said = outcome.said.text if outcome.said is not None else ""
    documents = documents_of(hit.document_id for hit in outcome.hits)[:_IDS]
    return Failure(
        id=question.id,
        language=question.language,
        why=why,
        question=_shortened(question.text),
        expected=_shortened(expected),
        said=_shortened(outcome.error or said),
        found=tuple(map(_shortened, documents)),
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…"
