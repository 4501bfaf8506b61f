"""Has the passages found for many questions judged, and sums up what the judge said and cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from forebay.kernel.errors import ForebayError, first_error
from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.judging.agreement import Agreement, with_labels
from forebay.lab.evaluate.judging.verdicts import (
    CONSISTENT,
    RELEVANT,
    Judge,
    JudgedPassage,
    JudgedQuestion,
    Judgement,
)
from forebay.lab.evaluate.target import Outcome

GIVE_UP_AFTER = 5
"""Questions in a row without a judgement, after which the judge is asked no more."""
Done = Callable[[], object]


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """How much is judged, and how many questions at a time."""

    top: int = 5
    """Passages of each question, the first that were found."""
    at_once: int = 4


class Judged(msgspec.Struct):
    """Everything a judge said of one set; ``error`` is the first it failed with."""

    questions: list[JudgedQuestion] = []
    failed: int = 0
    in_a_row: int = 0
    error: str = ""

    @property
    def gave_up(self) -> bool:
        """Whether the judge failed so often that it is left alone."""
        return self.in_a_row >= GIVE_UP_AFTER


async def judge_all(
    judge: Judge,
    asked: QuestionSet,
    outcomes: Mapping[str, Outcome],
    judging: Judging,
    done: Done,
) -> Judged:
    """Judge what was found for every question of a set; adds ``judged_…`` to the outcomes."""
    found = Judged()
    waiting = iter([one for one in asked.questions if outcomes[one.id].hits])
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(judging.at_once):
                group.create_task(
                    _judge_some(judge, asked.name, waiting, (outcomes, judging, found, done))
                )
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    found.questions.sort(key=lambda one: one.id)
    return found


def summary(found: Judged, costs: Mapping[str, Any]) -> dict[str, Any]:
    """What a result tells of its judge; agreement only where the set has labels."""
    told: dict[str, Any] = {
        **costs,
        "judged": len(found.questions),
        "failed": found.failed,
        "gave_up": found.gave_up,
        "inconsistent": sum(one.consistency < CONSISTENT for one in found.questions),
    }
    if found.error:
        told["error"] = found.error
    labelled = [
        one for one in found.questions if any((each.label or 0) > 0 for each in one.passages)
    ]
    if labelled:
        told["agreement_with_labels"] = _plain(with_labels(labelled))
        told["agreement_with_labels_uncorrected"] = _plain(with_labels(labelled, raw=True))
    return told


async def _judge_some(
    judge: Judge,
    name: str,
    waiting: Iterator[Question],
    how: tuple[Mapping[str, Outcome], Judging, Judged, Done],
) -> None:
    outcomes, judging, found, done = how
    for question in waiting:
        if found.gave_up:
            return
        outcome = outcomes[question.id]
        hits = outcome.hits[: judging.top]
        try:
            judgement = await judge.judge(question, hits)
        except ForebayError as error:
            found.failed += 1
            found.in_a_row += 1
            found.error = found.error or error.message
        else:
            found.in_a_row = 0
            outcome.judged = measures(judgement)
            found.questions.append(_kept(name, question, outcome, judgement))
        done()


def measures(judgement: Judgement) -> dict[str, float]:
    """A question's measures by its judge.

    ``judged_relevance``: mean score. ``judged_precision``: share of relevant passages.
    ``judged_ndcg``: how near the order of the search is to the judge's own.
    """
    scores = [one.corrected for one in judgement.verdicts]
    discounts = 1 / np.log2(np.arange(len(scores)) + 2)
    best = float(discounts @ np.sort(scores)[::-1])
    return {
        "judged_relevance": float(np.mean(scores)),
        "judged_precision": float(np.mean([score >= RELEVANT for score in scores])),
        "judged_ndcg": float(discounts @ np.array(scores)) / best if best else 0.0,
    }


def _kept(name: str, question: Question, outcome: Outcome, judgement: Judgement) -> JudgedQuestion:
    known = bool(question.relevance)
    return JudgedQuestion(
        set=name,
        id=question.id,
        question=question.text,
        language=question.language,
        passages=tuple(
            JudgedPassage(
                hit, verdict, rank, question.relevance.get(hit.document_id, 0) if known else None
            )
            for rank, (hit, verdict) in enumerate(
                zip(outcome.hits, judgement.verdicts, strict=False), 1
            )
        ),
        consistency=judgement.consistency,
    )


def _plain(found: Agreement) -> dict[str, Any]:
    """As JSON has it: what cannot be told is null."""
    value: dict[str, Any] = msgspec.to_builtins(found)
    return {
        name: None if isinstance(each, float) and math.isnan(each) else each
        for name, each in value.items()
    }
