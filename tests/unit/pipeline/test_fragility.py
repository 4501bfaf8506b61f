"""What a fragile search or answer leads to: wider retrieval, caution, a step down that is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from forebay.app.composition import Citing
from forebay.context import ContextSettings, PromptBuilder
from forebay.context.attribution import unsupported_share
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Message, SearchRequest, SearchResult
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.fragility import CAUTION, Fragility, Spread, cautioned, is_fragile
from forebay.pipeline.messages import AnswerEnd, AnswerRequest
from forebay.policy.admission import Admission, AdmissionSettings, Desk, PoolRule
from forebay.policy.fragility import Bounds, FragilityChange, FragilitySettings
from forebay.policy.gate import GateSettings, PoolGate
from forebay.testing.generation import ScriptedGenerator, context, passage

COUNTER = EstimatedTokenCounter()
TEXTS = ("The portal resets passwords.", "密码在门户中重置。", "Lunch is at noon.")


class Searching:
    """As many hits as are asked for, up to eight; remembers how many that was."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.asked.append(request.top_k)
        hits = tuple(
            passage(TEXTS[number % 3], number=number) for number in range(min(8, request.top_k))
        )
        return SearchResult(hits, "vector+bm25", 3)


def fragility(value: float | None, **settings: Any) -> tuple[Fragility, list[FragilityChange]]:
    heard: list[FragilityChange] = []

    async def spread(kb: str, chunk_ids: Sequence[int]) -> Spread | None:
        return None if value is None else Spread(value, Bounds(0.03, 0.06))

    return (
        Fragility(FragilitySettings(**settings), spread, unsupported_share, heard.append),
        heard,
    )


def pipeline(watch: Fragility, generator: ScriptedGenerator) -> tuple[AnswerPipeline, Searching]:
    searching = Searching()
    desk = Desk(
        AdmissionSettings(),
        (PoolRule("pool", 4000, 400),),
        {"pool": PoolGate(GateSettings(), ["a"])},
        SystemClock(),
        WallClock(),
    )
    parts = AnswerParts(
        retriever=searching,
        prompting=PromptBuilder(ContextSettings(), COUNTER, "secret"),
        generator=generator,
        cite=Citing,
        admission=Admission(desk),
        count=lambda texts: sum(map(COUNTER.count, texts)),
        fragility=watch,
    )
    return AnswerPipeline(parts), searching


async def ask(answering: AnswerPipeline, question: str) -> AnswerEnd:
    request = AnswerRequest("kb", (Message("user", question),), top_k=3)
    events = [event async for event in answering.answer(context(), request)]
    assert isinstance(events[-1], AnswerEnd)
    return events[-1]


QUESTIONS = [("How are passwords reset?", "en"), ("密码怎么重置？", "zh")]


@pytest.mark.parametrize(("question", "language"), QUESTIONS)
async def test_a_fragile_search_is_widened_the_model_cautioned_and_the_answer_marked(
    question: str, language: str
) -> None:
    generator = ScriptedGenerator(["The portal resets passwords [1]."])
    answering, searching = pipeline(fragility(0.2)[0], generator)
    end = await ask(answering, question)
    assert searching.asked == [3, 6]
    assert ("fragility", "wider", "hits_disagree") in [
        (step.stage, step.rung, step.reason) for step in end.degradations
    ]
    assert CAUTION[language] in generator.requests[0].messages[0].content
    assert len(generator.requests[0].passages) > 3


@pytest.mark.parametrize(("question", "language"), QUESTIONS)
async def test_a_normal_search_is_left_alone(question: str, language: str) -> None:
    generator = ScriptedGenerator(["The portal resets passwords [1]."])
    answering, searching = pipeline(fragility(0.02)[0], generator)
    end = await ask(answering, question)
    assert searching.asked == [3]
    assert not [step for step in end.degradations if step.rung == "wider"]
    assert CAUTION[language] not in generator.requests[0].messages[0].content


@pytest.mark.parametrize(
    ("text", "fragile"),
    [
        ("The portal resets passwords.", False),
        ("密码在门户中重置。", False),
        ("The moon is made of fine green cheese.", True),
        ("月亮是由上好的绿色奶酪做成的。", True),
    ],
)
async def test_an_answer_without_support_is_told_as_a_step_down(text: str, fragile: bool) -> None:
    watch, _ = fragility(None)
    ctx = context()
    await watch.answered(ctx, "kb", text, [passage(each) for each in TEXTS])
    assert is_fragile(ctx) == fragile
    assert watch.statistics()["kb"]["unsupported"] == float(fragile)


async def test_nothing_found_and_nothing_more_to_find() -> None:
    watch, _ = fragility(0.2)
    searching = Searching()
    ctx = context()
    nothing = SearchResult((), "bm25", 1)
    wanted = SearchRequest(kb="kb", query="q", top_k=20)
    assert await watch.searched(ctx, wanted, nothing, searching.retrieve) is nothing
    assert not is_fragile(ctx)
    few = await searching.retrieve(ctx, wanted)
    assert await watch.searched(ctx, wanted, few, searching.retrieve) is few
    assert is_fragile(ctx)
    assert searching.asked == [20]


async def test_who_listens_hears_of_rolling_figures() -> None:
    watch, heard = fragility(0.2, window=10, least=10)
    wanted = SearchRequest(kb="kb", query="q", top_k=2)
    for _ in range(10):
        found = await Searching().retrieve(context(), wanted)
        await watch.searched(context(), wanted, found, Searching().retrieve)
    assert [(change.kb, change.sign, change.level) for change in heard] == [
        ("kb", "spread", "fragile")
    ]


async def test_rerank_confidence_counts_where_there_is_one() -> None:
    watch, _ = fragility(None)
    wanted = SearchRequest(kb="kb", query="q", top_k=1)
    plain = passage("a", score=0.5)
    for hit in (plain, msgspec.structs.replace(plain, score=0.1, rerank=0.9)):
        found = SearchResult((hit,), "r", 1)
        assert await watch.searched(context(), wanted, found, _never) is found
    assert watch.statistics()["kb"]["confidence"] == pytest.approx(0.04)


async def _never(ctx: RequestContext, request: SearchRequest) -> SearchResult:
    raise AssertionError("nothing was fragile")


def test_caution_is_one_more_rule_in_the_questions_language() -> None:
    asked = (Message("system", "be short"), Message("user", "问题"))
    assert cautioned(asked, "zh") == (Message("system", CAUTION["zh"]), *asked)
    assert cautioned(asked, "xx")[0].content == CAUTION["en"]


@pytest.mark.parametrize(("question", "language"), QUESTIONS)
async def test_a_search_that_is_shown_is_judged_and_told_but_no_wider(
    question: str, language: str
) -> None:
    watch, _ = fragility(0.2)
    answering, searching = pipeline(watch, ScriptedGenerator([]))
    ctx = context()
    found = await answering.search(ctx, SearchRequest("kb", question, 3))
    assert searching.asked == [3] and len(found.hits) == 3
    assert ("fragility", "told", "hits_disagree") in [
        (step.stage, step.rung, step.reason) for step in ctx.degradations
    ]
    assert watch.statistics()["kb"]
    ctx = context()
    answering, _ = pipeline(fragility(0.02)[0], ScriptedGenerator([]))
    await answering.search(ctx, SearchRequest("kb", question, 3))
    assert not ctx.degradations
