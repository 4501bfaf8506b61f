"""What the answering life does on the event loop, and what beside it; how long its prompts are."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.app.composition import Citing
from forebay.context import ContextSettings, PromptBuilder
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.clock import Deadline, SystemClock, WallClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Generator,
    Message,
    Retriever,
    Sampling,
    SearchRequest,
    SearchResult,
    TextDelta,
)
from forebay.pipeline.answer import INLINE_CHARACTERS, AnswerParts, AnswerPipeline
from forebay.pipeline.messages import AnswerRequest
from forebay.policy.admission import Admission, AdmissionSettings, Desk, PoolRule
from forebay.policy.gate import GateSettings, PoolGate
from forebay.testing.generation import passage

COUNTER = EstimatedTokenCounter()


class _Nothing:
    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        return SearchResult(hits=(), rung="bm25", kb_version=1)


@pytest.mark.parametrize("characters", [10, INLINE_CHARACTERS + 1])
async def test_long_queries_are_counted_beside_the_loop(characters: int) -> None:
    counted: list[threading.Thread] = []

    def count(texts: Sequence[str]) -> int:
        counted.append(threading.current_thread())
        return len(texts)

    absent = cast(Any, None)
    clock = SystemClock()
    admission = Admission(Desk(AdmissionSettings(), (), {}, clock, WallClock()))
    parts = AnswerParts(
        cast(Retriever, _Nothing()), absent, absent, cite=absent, admission=admission, count=count
    )
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(5.0, clock), clock=clock
    )
    wanted = SearchRequest(kb="kb", query="!" * characters, top_k=1)
    await AnswerPipeline(parts).search(ctx, wanted)
    on_the_loop = counted == [threading.main_thread()]
    assert on_the_loop == (characters <= INLINE_CHARACTERS)


class _Counting:
    """An engine that counts half as much again as the estimate."""

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        return sum(COUNTER.count(one.content) for one in messages) * 3 // 2

    def written(self, pool: str, text: str) -> int | None:
        return None


class _Full:
    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        text = "The spillway is long. 溢洪道很长。" * 12
        hits = tuple(passage(f"{number}: {text}", number=number) for number in range(1, 6))
        return SearchResult(hits=hits, rung="bm25", kb_version=1)


@pytest.mark.parametrize("question", ["How long is the spillway?", "溢洪道有多长？"])
async def test_a_prompt_is_as_long_as_its_pool_takes_by_the_engines_count(question: str) -> None:
    clock, asked = SystemClock(), []

    async def generate(
        _ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        asked.append(request)
        yield TextDelta("Long.")
        yield Finished("stop", request.prompt_tokens, 1, "sim")

    rule = PoolRule("pool", 1000, 100)
    gates = {"pool": PoolGate(GateSettings(), ["one"])}
    desk = Desk(AdmissionSettings(), (rule,), gates, clock, WallClock())
    parts = AnswerParts(
        retriever=_Full(),
        prompting=PromptBuilder(ContextSettings(), COUNTER, "secret"),
        generator=cast(Generator, SimpleNamespace(generate=generate)),
        cite=Citing,
        admission=Admission(desk),
        count=lambda texts: sum(map(COUNTER.count, texts)),
        tokens=_Counting(),
    )
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(5.0, clock), clock=clock
    )
    wanted = AnswerRequest(
        kb="kb", messages=(Message("user", question),), sampling=Sampling(), top_k=5
    )
    async for _ in AnswerPipeline(parts).answer(ctx, wanted):
        pass
    [prompt] = asked
    assert 0 < len(prompt.passages) < 5
    assert 500 < prompt.prompt_tokens <= 1000


@pytest.mark.parametrize(("asked", "planned"), [(2, 2), (50, 3)])
async def test_no_more_passages_are_planned_than_a_prompt_holds(asked: int, planned: int) -> None:
    clock = SystemClock()
    gate = PoolGate(GateSettings(), ["one"])
    seen: list[float] = []

    class Looking(_Full):
        async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
            seen.append(gate.loads[0].cost)
            return await super().retrieve(ctx, request)

    async def generate(*_: object) -> AsyncGenerator[TextDelta | Finished, None]:
        yield TextDelta("Long.")
        yield Finished("stop", 20, 1, "sim")

    rule = PoolRule("pool", 100_000, 100)
    settings = AdmissionSettings(passage_tokens=1000, prompt_tokens=200)
    parts = AnswerParts(
        retriever=Looking(),
        prompting=PromptBuilder(ContextSettings(max_passages=3), COUNTER, "secret"),
        generator=cast(Generator, SimpleNamespace(generate=generate)),
        cite=Citing,
        admission=Admission(Desk(settings, (rule,), {"pool": gate}, clock, WallClock())),
        count=lambda texts: sum(map(COUNTER.count, texts)),
        most_passages=3,
    )
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(5.0, clock), clock=clock
    )
    messages = (Message("user", "How long is it?"),)
    wanted = AnswerRequest(kb="kb", messages=messages, sampling=Sampling(), top_k=asked)
    async for _ in AnswerPipeline(parts).answer(ctx, wanted):
        pass
    assert int(seen[0] / 1000) == planned
