"""From what a target found and said to measures: per question, then their means by language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from forebay.lab.evaluate.answers import exact_match, f1, holds, without_markers
from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.failures import failures_of
from forebay.lab.evaluate.intervals import mean_interval
from forebay.lab.evaluate.measures import Values, documents_of, mrr, ndcg, recall
from forebay.lab.evaluate.result import (
    ALL,
    ANSWER_S,
    INVENTED,
    REFUSED,
    SEARCH_S,
    TIMES,
    UNSURE,
    Mean,
    Row,
    SetResult,
)
from forebay.lab.evaluate.target import Outcome, Said
from forebay.lab.measure.histogram import layout, summarise
from forebay.lab.measure.result import Quantiles

Supporting = Callable[[str, Sequence[str]], float]
"""An answer and the texts it cites -> the share of its statements that they back, 0..1."""
FEW = 10


class Depths(msgspec.Struct, frozen=True):
    """How many documents measures look at."""

    recall: tuple[int, ...] = (1, 5, 10)
    mrr: tuple[int, ...] = (10,)
    ndcg: tuple[int, ...] = (5, 10)

    @property
    def deepest(self) -> int:
        """The most documents that any measure looks at."""
        return max((*self.recall, *self.mrr, *self.ndcg))


def score_set(
    asked: QuestionSet,
    outcomes: Mapping[str, Outcome],
    supporting: Supporting,
    depths: Depths,
    seed: int,
) -> SetResult:
    """Every measure of a set; ``outcomes`` by question id."""
    ranked = _ranked(asked.questions, outcomes, depths)
    rows = []
    for question in asked.questions:
        outcome = outcomes[question.id]
        values = {name: of[question.id] for name, of in ranked.items() if question.id in of}
        if outcome.said is not None:
            values |= score_answer(question, outcome.said, supporting)
        for name, seconds in ((SEARCH_S, outcome.search_s), (ANSWER_S, outcome.answer_s)):
            if seconds is not None:
                values[name] = seconds
        values |= outcome.judged
        rows.append(
            Row(question.id, question.language, values, outcome.rung, question.kind, outcome.error)
        )
    failures = failures_of(rows, asked.questions, outcomes)
    return msgspec.structs.replace(summarise_rows(asked, rows, seed), failures=failures)


def summarise_rows(asked: QuestionSet, rows: Sequence[Row], seed: int) -> SetResult:
    """Means, latencies and rungs of a set by language."""
    languages = sorted({row.language for row in rows})
    groups = {ALL: list(rows)}
    if len(languages) > 1:
        groups |= {one: [row for row in rows if row.language == one] for one in languages}
    elif languages:
        groups |= {languages[0]: list(rows)}
    return SetResult(
        name=asked.name,
        fingerprint=asked.fingerprint,
        documents=len(asked.documents),
        questions=len(rows),
        failed=sum(bool(row.error) for row in rows),
        measures={name: means(group, seed) for name, group in groups.items()},
        latency={name: latencies(group) for name, group in groups.items()},
        rungs=dict(Counter(row.rung for row in rows if row.rung)),
        rows=tuple(rows),
    )


def score_answer(question: Question, said: Said, supporting: Supporting) -> Values:
    """What one answer is worth; which measures there are depends on what is known.

    Support and citations are those of answers that were given. Citations are compared by document
    with the relevant ones; an answer that cites nothing has no right citation.
    """
    values: Values = {}
    if question.answerable is not None:
        if question.answerable:
            values[REFUSED] = float(said.refused)
        else:
            values[INVENTED] = float(not (said.refused or said.unsure))
        values[UNSURE] = float(said.unsure)
    text = "" if said.refused else without_markers(said.text)
    if question.answers:
        values["em"] = exact_match(text, question.answers)
        values["f1"] = f1(text, question.answers, question.language)
        values["answer_found"] = holds(text, question.answers, question.parts)
    if said.refused:
        return values
    values["support"] = supporting(said.text, [one.text for one in said.citations])
    relevant = {document for document, grade in question.relevance.items() if grade > 0}
    if relevant:
        cited = {one.document_id for one in said.citations}
        right = len(cited & relevant)
        values["citation_precision"] = right / len(cited) if cited else 0.0
        values["citation_recall"] = right / len(relevant)
    return values


def means(rows: Sequence[Row], seed: int) -> dict[str, Mean]:
    """Each measure's mean over the questions that have it; seconds are left to latencies."""
    names = dict.fromkeys(name for row in rows for name in row.values if name not in TIMES)
    found = {}
    for name in names:
        values = np.array([row.values[name] for row in rows if name in row.values])
        low, high = mean_interval(values, np.random.default_rng(seed))
        found[name] = Mean(float(values.mean()), len(values), low, high)
    return found


def latencies(rows: Sequence[Row]) -> dict[str, Quantiles]:
    """Percentiles of the seconds that searches and answers took."""
    found = {}
    for name in TIMES:
        seconds = np.array([row.values[name] for row in rows if name in row.values])
        if len(seconds):
            index, counts = np.unique(layout(3).index(seconds), return_counts=True)
            found[name.removesuffix("_s")] = summarise(
                index, counts, total_s=float(seconds.sum()), max_s=float(seconds.max())
            )
    return found


def _ranked(
    questions: Sequence[Question], outcomes: Mapping[str, Outcome], depths: Depths
) -> dict[str, Values]:
    searched = [question for question in questions if outcomes[question.id].searched]
    relevance = {question.id: question.relevance for question in searched}
    rankings = {
        question.id: documents_of(hit.document_id for hit in outcomes[question.id].hits)
        for question in searched
    }
    return {
        f"{name}@{depth}": measure(relevance, rankings, depth)
        for name, measure, wanted in (
            ("recall", recall, depths.recall),
            ("mrr", mrr, depths.mrr),
            ("ndcg", ndcg, depths.ndcg),
        )
        for depth in wanted
    }
