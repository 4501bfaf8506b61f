"""Labels by a judge, for questions of which nobody knows what answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from forebay.lab.evaluate.datasets import QuestionSet
from forebay.lab.evaluate.judging.panel import Judged, Judging, judge_all
from forebay.lab.evaluate.judging.verdicts import RELEVANT, Judge, JudgedPassage
from forebay.lab.evaluate.target import Outcome, Passage
from forebay.lab.tune.objectives import Evaluator
from forebay.lab.tune.questions import Place, Question, Target
from forebay.lab.tune.space import Values

_GRADES = 3


class Panel(msgspec.Struct, frozen=True):
    """Who judges what: the best hits of several ways of searching, so that none is favoured."""

    judge: Judge
    judging: Judging
    ways: Sequence[Values]
    done: Callable[[], object] = lambda: None


async def label_by_judge(
    asked: QuestionSet, evaluator: Evaluator, panel: Panel
) -> tuple[tuple[Question, ...], Judged]:
    """Return the questions with what the judge calls relevant, and all that it said.

    A passage's grade is its corrected score in thirds, from the half on. What none of the ways
    has found is not judged and counts as not relevant. Questions without a relevant passage are
    left out.
    """
    bare = tuple(Question(each.id, each.text, ()) for each in asked.questions)
    seen = [(await evaluator.observe(way, bare)).found for way in panel.ways]
    pools = {
        question.id: _pool([found.get(question.id, ()) for found in seen], panel.judging.top)
        for question in bare
    }
    outcomes = {
        name: Outcome(hits=tuple(Passage(place.document_id, place.text) for place in pool))
        for name, pool in pools.items()
    }
    everything = msgspec.structs.replace(panel.judging, top=_most(pools.values()))
    judged = await judge_all(panel.judge, asked, outcomes, everything, panel.done)
    told = {one.id: _targets(pools[one.id], one.passages) for one in judged.questions}
    labelled = [
        msgspec.structs.replace(question, targets=told[question.id])
        for question in bare
        if told.get(question.id)
    ]
    return tuple(labelled), judged


def _pool(rankings: Sequence[Sequence[Place]], top: int) -> list[Place]:
    """The first ``top`` of each ranking, place by place, each passage once."""
    pool: dict[tuple[str, int, int], Place] = {}
    for rank in range(top):
        for ranking in rankings:
            if rank < len(ranking):
                place = ranking[rank]
                pool.setdefault((place.document_id, place.start, place.end), place)
    return list(pool.values())


def _most(pools: Iterable[Sequence[Place]]) -> int:
    return max((len(pool) for pool in pools), default=1)


def _targets(pool: Sequence[Place], passages: Sequence[JudgedPassage]) -> tuple[Target, ...]:
    targets = []
    for place, passage in zip(pool, passages, strict=False):
        score = passage.verdict.corrected
        if score >= RELEVANT:
            grade = max(1, round(score * _GRADES))
            targets.append(Target(place.document_id, grade, place.start, place.end))
    return tuple(targets)
