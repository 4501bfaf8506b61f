"""All questions are judged, or the judge is left alone after it failed often enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forebay.kernel.errors import ConfigError, EngineError
from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.judging.panel import Judging, judge_all, measures, summary
from forebay.lab.evaluate.judging.verdicts import (
    Judgement,
    Verdict,
    read_judgements,
    write_judgements,
)
from forebay.lab.evaluate.target import Outcome, Passage

ASKED = QuestionSet(
    "boats", tuple(Question(str(at), f"问题 {at}", "zh", {"a": 1}) for at in range(20))
)


def outcomes() -> dict[str, Outcome]:
    hits = tuple(Passage(name, f"段落 {name}") for name in "abcdefg")
    return {one.id: Outcome(searched=True, hits=hits) for one in ASKED.questions}


class Fixed:
    """Says that the first passage is good; fails from question ``fails_from`` on."""

    def __init__(self, fails_from: int = 1_000) -> None:
        self.asked = 0
        self._fails_from = fails_from

    async def judge(self, question: Question, passages: Sequence[Passage]) -> Judgement:
        self.asked += 1
        if int(question.id) >= self._fails_from:
            raise EngineError("the judge is tired.")
        good = [0.9, *[0.1] * (len(passages) - 1)]
        return Judgement(tuple(Verdict(value, value) for value in good))


async def test_every_question_is_judged_and_agreement_is_told() -> None:
    judge, found = Fixed(), outcomes()
    judged = await judge_all(judge, ASKED, found, Judging(top=3), lambda: None)
    assert len(judged.questions) == 20 and judge.asked == 20
    assert all(len(one.passages) == 3 for one in judged.questions)
    assert [one.label for one in judged.questions[0].passages] == [1, 0, 0]
    assert found["7"].judged["judged_precision"] == pytest.approx(1 / 3)
    told = summary(judged, {"kind": "model", "calls": 60})
    assert told["judged"] == 20 and told["failed"] == 0 and told["calls"] == 60
    assert told["agreement_with_labels"]["kappa"] == 1.0
    assert "error" not in told


async def test_a_judge_that_fails_is_left_alone() -> None:
    judge = Fixed(fails_from=4)
    judged = await judge_all(judge, ASKED, outcomes(), Judging(at_once=1), lambda: None)
    assert len(judged.questions) == 4 and judge.asked == 9
    told = summary(judged, {})
    assert told["gave_up"] and told["failed"] == 5 and told["error"] == "the judge is tired."


async def test_questions_without_passages_are_not_judged() -> None:
    judge = Fixed()
    found = {one.id: Outcome(searched=True) for one in ASKED.questions}
    judged = await judge_all(judge, ASKED, found, Judging(), lambda: None)
    assert judge.asked == 0 and summary(judged, {})["judged"] == 0


def test_measures_of_a_judgement() -> None:
    values = measures(Judgement((Verdict(0.2, 0.2), Verdict(0.8, 0.8))))
    assert values["judged_relevance"] == pytest.approx(0.5)
    assert values["judged_precision"] == 0.5 and 0.5 < values["judged_ndcg"] < 1.0
    assert measures(Judgement((Verdict(0.0, 0.0),)))["judged_ndcg"] == 0.0


async def test_judgements_are_kept_in_a_file(tmp_path: Path) -> None:
    judged = await judge_all(Fixed(), ASKED, outcomes(), Judging(), lambda: None)
    path = tmp_path / "judged.jsonl"
    write_judgements(path, judged.questions)
    assert list(read_judgements(path)) == judged.questions
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(ConfigError, match=r"judged\.jsonl:21 is no judgement"):
        list(read_judgements(path))
    with pytest.raises(ConfigError, match="cannot read"):
        list(read_judgements(tmp_path / "none"))
