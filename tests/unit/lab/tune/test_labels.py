"""Labels by a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from forebay.kernel.errors import Unavailable
from forebay.lab.evaluate.datasets import Question as Asked
from forebay.lab.evaluate.datasets import QuestionSet
from forebay.lab.evaluate.judging.panel import Judging
from forebay.lab.evaluate.judging.verdicts import Judgement, Verdict
from forebay.lab.evaluate.target import Passage
from forebay.lab.tune.labels import Panel, label_by_judge
from forebay.lab.tune.objectives import Observed
from forebay.lab.tune.questions import Place, Question
from forebay.lab.tune.space import Values

WORDS = [Place("a", 0, 9, "right"), Place("b", 0, 9, "wrong"), Place("c", 0, 9, "beyond")]
VECTORS = [Place("丙", 5, 20, "fairly right 对"), Place("a", 0, 9, "right")]
SCORES = {"right": 0.95, "fairly right 对": 0.5, "wrong": 0.49, "beyond": 1.0}


class TwoWays:
    """Finds by words or by vectors, as it is told."""

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        places = VECTORS if values.get("way") == "vectors" else WORDS
        found: Mapping[str, Sequence[Place]] = {
            each.id: [] if each.text == "nothing" else places for each in questions
        }
        return Observed(found, [], [], 0)


class Scoring:
    """Scores by text, and notes what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

    async def judge(self, question: Asked, passages: Sequence[Passage]) -> Judgement:
        self.shown.append([passage.text for passage in passages])
        if question.text == "broken":
            raise Unavailable("gone")
        scores = [SCORES[passage.text] * (question.text != "无关") for passage in passages]
        return Judgement(tuple(Verdict(score, score) for score in scores))


def label(*texts: str) -> tuple[tuple[Question, ...], Scoring, int]:
    judge = Scoring()
    asked = QuestionSet("s", tuple(Asked(text, text, "zh") for text in texts))
    panel = Panel(judge, Judging(top=2, at_once=1), ({}, {"way": "vectors"}))
    found, judged = asyncio.run(label_by_judge(asked, TwoWays(), panel))
    return found, judge, judged.failed


def test_the_first_of_every_way_are_judged_once_each() -> None:
    _, judge, _ = label("问")
    assert judge.shown == [["right", "fairly right 对", "wrong"]]


def test_relevant_parts_become_targets_with_grades() -> None:
    [question] = label("问")[0]
    told = [(each.document_id, each.start, each.end, each.grade) for each in question.targets]
    assert told == [("a", 0, 9, 3), ("丙", 5, 20, 2)]


def test_questions_without_a_relevant_part_or_a_judgement_are_left_out() -> None:
    found, judge, failed = label("问", "无关", "nothing", "broken")
    assert [question.id for question in found] == ["问"]
    assert failed == 1
    assert len(judge.shown) == 3
