"""A model judges in three steps; what it says is checked, read and freed of its bias."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from forebay.kernel.errors import EngineError
from forebay.lab.evaluate.datasets import Question, language_of
from forebay.lab.evaluate.judging.agreement import agreement
from forebay.lab.evaluate.judging.endpoint import JudgeEndpoint, open_endpoint
from forebay.lab.evaluate.judging.model import ModelJudge, consistency
from forebay.lab.evaluate.target import Passage
from tests.unit.lab.evaluate.judging.judges import ScriptedJudge, completion
from tests.unit.lab.evaluate.scripted import Scripted

FERRY = Question("1", "When does the ferry leave?", "en")
PASSAGES = (
    Passage("ferry", "The ferry leaves at nine.", title="Ferry"),
    Passage("lock", "The lock is closed in January."),
    Passage("sluice", "水闸每天早上八点打开。"),
)


def truth(question: str, passage: str) -> float:
    wanted = "八点" if "水闸" in question else "ferry leaves"
    return 0.9 if wanted in passage else 0.1


@asynccontextmanager
async def judging(script: Callable[..., Any], **how: Any) -> AsyncIterator[ModelJudge]:
    async with Scripted(script) as server:
        endpoint = JudgeEndpoint(url=server.url, model="m", backoff_s=0.001)
        async with open_endpoint(endpoint, random.Random(1)) as chat:
            yield ModelJudge(chat, lambda text: len(text.split()), **how)


async def test_three_steps_make_a_judgement() -> None:
    judge = ScriptedJudge(truth)
    async with judging(judge) as model:
        found = await model.judge(FERRY, PASSAGES)
    assert len(judge.asked) == 3
    ferry, lock, sluice = found.verdicts
    assert ferry.place == 1 and ferry.relevance == ferry.information == 0.9
    assert ferry.score == pytest.approx(0.5 * 0.9 + 0.3 * 0.9 + 0.2)
    assert ferry.corrected > 0.5 > max(lock.corrected, sluice.corrected)
    assert sum(one.importance for one in found.verdicts) == pytest.approx(1.0)
    assert found.consistency == 1.0 and not found.revised


@pytest.mark.parametrize("forms", [True, False])
async def test_each_step_asks_for_its_form_where_the_endpoint_takes_it(forms: bool) -> None:
    judge, asked = ScriptedJudge(truth), []

    def script(path: str, body: dict[str, Any]) -> Any:
        form = body.get("response_format")
        asked.append(form and form["json_schema"]["name"])
        return web.Response(status=400) if form and not forms else judge(path, body)

    async with judging(script) as model:
        found = await model.judge(FERRY, PASSAGES)
    assert found.verdicts[0].place == 1
    assert (model.replies, model.malformed) == (3, 0)
    assert asked == (["order", "scores", "check"] if forms else ["order", None, None, None])


async def test_a_chinese_question_is_judged_in_chinese() -> None:
    judge = ScriptedJudge(truth)
    async with judging(judge) as model:
        found = await model.judge(Question("2", "水闸几点打开？", "zh"), PASSAGES)
    assert all(language_of(text.split('"""')[-1]) == "zh" for text in judge.asked)
    assert found.verdicts[2].place == 1


async def test_passages_come_in_a_drawn_order_that_the_seed_decides() -> None:
    def firsts(asked: list[str]) -> list[str]:
        return [text.split('"""')[1][:8] for text in asked[::3]]

    seen = []
    for seed in (1, 1, 2):
        judge = ScriptedJudge(truth)
        async with judging(judge, seed=seed) as model:
            for number in range(12):
                await model.judge(Question(str(number), FERRY.text, "en"), PASSAGES)
        seen.append(firsts(judge.asked))
    assert seen[0] == seen[1] != seen[2]
    assert len(set(seen[0])) == 3, "each passage is first for some question"


async def test_a_judge_that_favours_ends_and_length_agrees_better_when_corrected() -> None:
    chance = random.Random(5)
    worth = {f"p{number}": chance.random() for number in range(400)}
    judge = ScriptedJudge(
        lambda _, passage: 0.75 * worth[passage.split()[0]], ends=0.15, length=0.02, noise=0.02
    )
    raw, fair = [], []
    async with judging(judge) as model:
        for number in range(40):
            names = [f"p{10 * number + at}" for at in range(10)]
            passages = [Passage(name, f"{name} " + "w " * chance.randint(0, 400)) for name in names]
            found = await model.judge(Question(str(number), "which?", "en"), passages)
            truths = [0.75 * worth[name] for name in names]
            raw.append(([one.score for one in found.verdicts], truths))
            fair.append(([one.corrected for one in found.verdicts], truths))
    before, after = agreement(raw), agreement(fair)
    assert after.pairwise > before.pairwise + 0.02
    assert after.kappa > before.kappa


async def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    judge = ScriptedJudge(truth)
    replies = iter(
        [completion("Passage 1 is best."), None, completion('{"scores": {}}'), None, None]
    )

    def script(path: str, body: dict[str, Any]) -> Any:
        return next(replies) or judge(path, {**body, "messages": body["messages"][:2]})

    async with judging(script) as model:
        found = await model.judge(FERRY, PASSAGES)
    assert model.malformed == 2 and found.verdicts[0].place == 1


@pytest.mark.parametrize(
    "reply",
    ["", "no", '{"order": [1, 1, 2]}', '{"order": [1]}', '{"order": null}', "{" * 5_000],
)
async def test_and_not_a_third_time(reply: str) -> None:
    async with judging(lambda *_: completion(reply)) as model:
        with pytest.raises(EngineError, match=r"cannot be read|must name.*twice"):
            await model.judge(FERRY, PASSAGES)
    assert model.malformed == 2


async def test_a_judge_may_change_its_mind() -> None:
    judge = ScriptedJudge(lambda *_: 0.2)

    def script(path: str, body: dict[str, Any]) -> Any:
        if '"consistent"' in body["messages"][1]["content"]:
            return completion('{"consistent": false, "relevance": {"1": 10}}')
        return judge(path, body)

    async with judging(script) as model:
        found = await model.judge(FERRY, PASSAGES)
    assert found.revised
    assert sorted(one.relevance for one in found.verdicts) == [0.2, 0.2, 0.6]


async def test_nothing_found_needs_no_judge() -> None:
    async with judging(lambda *_: completion("")) as model:
        assert (await model.judge(FERRY, [])).verdicts == ()
        judge = ScriptedJudge(truth)
    async with judging(judge) as model:
        (only,) = (await model.judge(FERRY, PASSAGES[:1])).verdicts
    assert only.score == pytest.approx(0.9) and only.corrected == pytest.approx(0.9, abs=0.01)


def test_consistency_is_the_share_of_pairs_put_alike() -> None:
    assert consistency([1, 2, 3], [9, 5, 1]) == 1.0
    assert consistency([3, 2, 1], [9, 5, 1]) == 0.0
    assert consistency([1, 2, 3], [5, 5, 5]) == 1.0
    assert consistency([2, 1, 3], [9, 5, 1]) == pytest.approx(2 / 3)
