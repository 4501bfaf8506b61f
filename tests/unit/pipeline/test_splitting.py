"""Texts beyond the window, answered in parts: what is asked, merged, cited, charged and freed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from forebay.app.composition import Citing
from forebay.context import ContextSettings, PromptBuilder
from forebay.ingest import EstimatedTokenCounter, TextSplitter
from forebay.kernel.clock import Clock, SystemClock, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    ContextTooLong,
    EngineError,
    InvalidRequest,
    RateLimited,
    StoreError,
    Unavailable,
)
from forebay.kernel.stages import (
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    Sampling,
    SearchRequest,
    SearchResult,
    TextDelta,
)
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest
from forebay.pipeline.splitting import Splitting, SplittingAnswers
from forebay.policy.admission import Admission, AdmissionSettings, Desk, DimensionLimits, PoolRule
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.limit import LimitSettings
from forebay.policy.quota import Limit
from forebay.policy.splitting import SplittingSettings
from forebay.testing.generation import context, passage

COUNTER = EstimatedTokenCounter()
WINDOW = 1600
FACTS = re.compile(r"(?:Gate|闸门) \d+ (?:weighs|重) \d+ (?:tonnes|吨)")


def english(gates: int) -> str:
    filling = "The rest of this chapter is about other things that nobody asks for. " * 8
    return "\n\n".join(
        f"## Chapter {gate}\n\n{filling}Gate {gate} weighs {gate}5 tonnes. {filling.strip()}"
        for gate in range(1, gates + 1)
    )


def chinese(gates: int) -> str:
    filling = "本章其余内容讲的是没有人问的别的事情。" * 12
    return "\n\n".join(
        f"第{gate}章 概述\n\n{filling}闸门 {gate} 重 {gate}5 吨。{filling}"
        for gate in range(1, gates + 1)
    )


class Searching:
    """Finds one passage for every query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.failure: Exception | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.queries.append(request.query)
        if self.failure is not None:
            raise self.failure
        return SearchResult((passage("All gates were made in Linz.", number=7),), "bm25", 3)


class Reading:
    """Says the facts of the passages it is shown, each with its number, or that there is none."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.active = self.most = 0
        self.fails_at: int | None = None
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.cut = False

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        self.requests.append(request)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if self.fails_at == len(self.requests):
                raise EngineError("broken")
            asked = request.messages[-1].content
            if any(sign in asked for sign in self.fails):
                raise EngineError("broken")
            if any(sign in asked for sign in self.hangs):
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            await self.gate.wait()
            said = []
            for number, hit in enumerate(request.passages, 1):
                facts = FACTS.findall(hit.chunk.text)
                said += [f"{fact} [{number}]." for fact in facts]
                if "Linz" in hit.chunk.text and said:
                    said.append(f"Made in Linz [{number}].")
            for word in said or ["NONE" if request.language == "en" else "无。"]:
                yield TextDelta(word + "\n")
            reason: FinishReason = "length" if self.cut else "stop"
            yield Finished(reason, request.prompt_tokens, 3 * len(said) + 1, "reader")
        finally:
            self.active -= 1


class Service:
    """The answering life in front of one pool."""

    def __init__(self, *, limit: int = 8, burst: float = 0.0, **splitting: Any) -> None:
        clock: Clock = SystemClock()
        gate = GateSettings(limit=LimitSettings(initial=limit, most=limit))
        limits = DimensionLimits(tenant=Limit(1.0, burst) if burst else None)
        self.gate = PoolGate(gate, ["a"])
        self.desk = Desk(
            AdmissionSettings(limits=limits),
            (PoolRule("pool", WINDOW, 400),),
            {"pool": self.gate},
            clock,
            WallClock(),
        )
        settings = ContextSettings(window_tokens=2 * WINDOW, input_share=0.5, max_passages=100)
        prompting = PromptBuilder(settings, COUNTER, "secret")
        self.retriever, self.generator = Searching(), Reading()
        parts = AnswerParts(
            retriever=self.retriever,
            prompting=prompting,
            generator=self.generator,
            cite=Citing,
            admission=Admission(self.desk),
            count=lambda texts: sum(map(COUNTER.count, texts)),
        )
        self.answering = SplittingAnswers(
            AnswerPipeline(parts),
            parts,
            Splitting(TextSplitter(COUNTER), prompting, SplittingSettings(**splitting), WINDOW),
        )

    async def ask(
        self, message: str, ctx: RequestContext | None = None, **more: Any
    ) -> tuple[str, AnswerEnd]:
        request = self.request(message, **more)
        text, end = "", None
        async for event in self.answering.answer(ctx or context(), request):
            if isinstance(event, AnswerDelta):
                text += event.text
            else:
                end = event
        assert end is not None
        return text, end

    def request(self, message: str, rules: Sequence[str] = (), **more: Any) -> AnswerRequest:
        system = tuple(Message("system", rule) for rule in rules)
        return AnswerRequest("kb", (*system, Message("user", message)), **more)

    def held(self) -> dict[str, float]:
        """What is still taken."""
        found = self.gate.statistics()
        return {
            "in_flight": found["in_flight"],
            "cost": found["in_flight_cost"],
            "waiting": found["queue_waiting"],
            "in_work": sum(self.desk._in_work.values()),
        }


NOTHING = {"in_flight": 0, "cost": 0, "waiting": 0, "in_work": 0}


@pytest.mark.parametrize(
    ("text", "asked", "fact", "title"),
    [
        (english(9), "How much does each gate weigh?", "Gate {} weighs {}5 tonnes", "part 1 of"),
        (chinese(9), "每个闸门有多重？", "闸门 {} 重 {}5 吨", "第 1 部分"),
    ],
)
async def test_a_text_beyond_the_window_is_answered_in_parts_and_merged(
    text: str, asked: str, fact: str, title: str
) -> None:
    service = Service()
    message = f"{text}\n\n{asked}"
    ctx = context()
    said, end = await service.ask(message, ctx)
    for gate in range(1, 10):
        assert fact.format(gate, gate) in said
    *parts, merging = service.generator.requests
    assert 3 <= len(parts) <= 8
    assert all(one.prompt_tokens <= WINDOW for one in service.generator.requests)
    assert all(one.messages[-1].content.startswith(asked) for one in service.generator.requests)
    assert service.retriever.queries == [asked]
    # Each part's fact cites its place in the message; what the notes cited is cited on.
    sources = [one for one in end.citations if one.source == "request"]
    assert len(sources) == len(parts)
    assert title in sources[0].title
    for one in sources:
        assert FACTS.search(message[one.start : one.end])
        assert message[one.start : one.end].startswith(one.text.removesuffix("…"))
    assert [one.document_id for one in end.citations if one.source != "request"] == ["document-7"]
    assert end.invalid_citations == 0
    assert [(one.stage, one.rung) for one in end.degradations] == [("generation", "split")]
    assert f"{len(parts)} parts" in end.degradations[0].reason
    assert end.usage.prompt_tokens == sum(one.prompt_tokens for one in service.generator.requests)
    assert end.rests is None  # nobody keeps it
    assert (end.rung, end.kb_version) == ("bm25", 3)
    names = [record.name for record in ctx.stages]
    assert names.count("generation") == names.count("admission") == len(parts) + 1
    assert names.count("parts") == names.count("retrieval") == 1
    assert len(merging.passages) == len(parts) + 1
    assert service.held() == NOTHING


async def test_what_fits_goes_its_usual_way() -> None:
    service = Service()
    said, end = await service.ask(f"{english(1)}\n\nHow heavy is the gate?")
    assert len(service.generator.requests) == 1
    assert end.degradations == ()
    assert "Gate" not in said  # the text is no passage then


async def test_parts_that_hold_nothing_leave_no_trace() -> None:
    service = Service()
    text = re.sub(r"Gate [3-6] weighs", "A gate has", english(9))
    said, end = await service.ask(f"How much does each gate weigh?\n\n{text}")
    assert "NONE" not in said
    parts = len(service.generator.requests) - 1
    assert len([one for one in end.citations if one.source == "request"]) < parts
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", said)]
    assert set(numbers) == {one.index for one in end.citations}


@pytest.mark.parametrize("text", [english(1) + "x " * 3000, chinese(1) + "另外的事。" * 800])
async def test_a_text_without_any_answer_is_said_to_have_none(text: str) -> None:
    service = Service()
    text = FACTS.sub("", text)
    said, _ = await service.ask(f"What does gate 1 weigh?\n\n{text}")
    assert said.strip() in ("NONE", "无。")
    assert service.generator.requests[-1].passages  # what the knowledge base has


async def test_a_text_alone_is_summarised() -> None:
    service = Service()
    said, _ = await service.ask(chinese(9))
    assert "闸门 9 重 95 吨" in said
    assert service.generator.requests[0].question.startswith("概括")


async def test_rules_and_sampling_reach_every_part_but_its_form_only_the_end() -> None:
    service = Service()
    sampling = Sampling(temperature=0.2, max_tokens=300, stop=("END",))
    message = f"{english(6)}\n\nHow much does each gate weigh?"
    await service.ask(message, rules=("Speak softly.",), sampling=sampling)
    *parts, merging = service.generator.requests
    for one in service.generator.requests:
        assert "Speak softly." in one.messages[0].content
        assert one.sampling.temperature == 0.2
    assert merging.sampling == sampling
    assert all(one.sampling.stop is None for one in parts)
    assert all((one.sampling.max_tokens or 0) < 300 for one in parts)


async def test_notes_that_were_cut_are_told_of() -> None:
    service = Service()
    service.generator.cut = True
    _, end = await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    parts = len(service.generator.requests) - 1
    assert re.search(
        rf"{parts} parts, {parts} of them cut at \d+ tokens", end.degradations[0].reason
    )


async def test_no_more_parts_are_in_work_than_set_and_each_waits_for_its_place() -> None:
    service = Service(at_once=3)
    await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert service.generator.most == 3
    narrow = Service(at_once=3, limit=1)
    await narrow.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert narrow.generator.most == 1


async def test_too_many_parts_are_refused_before_anything_is_taken() -> None:
    service = Service(max_parts=3)
    with pytest.raises(ContextTooLong, match=r"parts, of which at most 3 are") as refused:
        await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert refused.value.param == "messages"
    assert service.generator.requests == []
    assert service.retriever.queries == []
    assert service.held() == NOTHING


async def test_the_sum_is_reserved_and_what_was_used_is_settled() -> None:
    service = Service(burst=30_000.0)
    service.generator.gate.clear()
    ctx = context()
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    asking = asyncio.get_running_loop().create_task(service.ask(message, ctx))
    while service.generator.active < 2:
        await asyncio.sleep(0)
    assert ctx.rate is not None
    reserved = 30_000 - ctx.rate.remaining_tokens
    assert reserved > COUNTER.count(message)
    assert sum(service.desk._in_work.values()) == 1
    service.generator.gate.set()
    _, end = await asking
    used = end.usage.prompt_tokens + end.usage.completion_tokens
    assert used < reserved
    after = context()
    await service.ask("Hello", after)
    assert after.rate is not None
    left = 30_000 - used - after.rate.remaining_tokens
    assert 0 <= left < 2500  # the second request's own


async def test_a_quota_that_cannot_pay_for_all_parts_refuses_before_the_first() -> None:
    poor = Service(burst=4_000.0)
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    with pytest.raises(InvalidRequest) as refused:
        await poor.ask(message)
    assert refused.value.code == "quota_too_small"
    used_up = Service(burst=12_000.0)
    await used_up.ask(message)
    with pytest.raises(RateLimited):
        await used_up.ask(message)
    assert poor.generator.requests == []
    assert poor.held() == used_up.held() == NOTHING


ASKED = [
    (f"{english(9)}\n\nHow much does each gate weigh?", "is part", "are notes on", "part 2 of"),
    (f"{chinese(9)}\n\n每个闸门有多重？", "是一篇长文的", "部分的笔记", "第 2 部分"),
]


def reasons(end: AnswerEnd) -> dict[tuple[str, str], str]:
    return {(one.stage, one.rung): one.reason for one in end.degradations}


@pytest.mark.parametrize(("message", "part", "merge", "second"), ASKED)
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_part_that_fails_or_hangs_is_missing_and_the_answer_says_which(
    message: str, part: str, merge: str, second: str, how: str
) -> None:
    service = Service(at_once=3)
    getattr(service.generator, how).add(second)
    began = asyncio.get_running_loop().time()
    said, end = await service.ask(message, context(timeout_s=2.0 if how == "hangs" else 20.0))
    assert asyncio.get_running_loop().time() - began < 2.0
    count = len([one for one in service.generator.requests if part in one.messages[-1].content])
    assert f"answered in {count} parts, without part 2" in reasons(end)["generation", "split"]
    assert f"part 2 of {count}" in said or f"第 2 部分（共 {count} 部分）" in said
    assert len([one for one in end.citations if one.source == "request"]) == count - 1
    assert end.rests is None and service.held() == NOTHING


async def test_the_failure_of_all_parts_is_told_as_it_is() -> None:
    service = Service(at_once=3)
    service.generator.fails.add("")
    ctx = context()
    with pytest.raises(EngineError, match="broken"):
        await service.ask(ASKED[0][0], ctx)
    assert service.generator.active == 0
    assert service.held() == NOTHING
    assert ctx.degradations == []


@pytest.mark.parametrize(("message", "part", "merge", "second"), ASKED)
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_notes_that_nobody_merges_are_the_answer(
    message: str, part: str, merge: str, second: str, how: str
) -> None:
    service = Service(at_once=3)
    getattr(service.generator, how).add(merge)
    said, end = await service.ask(message, context(timeout_s=2.0 if how == "hangs" else 20.0))
    assert len(FACTS.findall(said)) == 9
    assert "not merged" in reasons(end)["generation", "notes"]
    assert end.citations and end.invalid_citations == 0 and end.model == "reader"
    assert service.held() == NOTHING


@pytest.mark.parametrize("failure", [Unavailable("Nothing."), StoreError("damaged")])
async def test_a_text_is_answered_without_the_knowledge_base_where_that_fails(
    failure: Exception,
) -> None:
    service = Service()
    service.retriever.failure = failure
    said, end = await service.ask(ASKED[0][0])
    assert len(FACTS.findall(said)) == 9 and end.rung == "none"
    assert ("retrieval", "none") in reasons(end)
    assert {one.source for one in end.citations} == {"request"}


async def test_leaving_at_any_point_frees_everything() -> None:
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    loop = asyncio.get_running_loop()
    for turns in range(0, 120, 3):
        service = Service(limit=2, at_once=3)
        if turns % 2:
            service.generator.gate.clear()
        asking = loop.create_task(service.ask(message))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        done, _ = await asyncio.wait([asking], timeout=5)
        assert done
        assert service.generator.active == 0
        assert service.held() == NOTHING


async def test_a_reader_who_stops_reading_frees_everything() -> None:
    service = Service()
    request = service.request(f"{english(9)}\n\nHow much does each gate weigh?")
    events: Any = service.answering.answer(context(), request)
    async with aclosing(events):
        assert isinstance(await anext(events), AnswerDelta)
        assert service.held()["in_flight"] == 1
    assert service.held() == NOTHING


async def test_a_long_history_is_left_out_and_makes_nothing_too_long() -> None:
    service = Service()
    before = (Message("user", english(9)), Message("assistant", "I have read it."))
    request = AnswerRequest("kb", (*before, Message("user", "And where is Linz?")))
    events = [event async for event in service.answering.answer(context(), request)]
    assert isinstance(events[-1], AnswerEnd)
    (asked,) = service.generator.requests
    assert asked.prompt_tokens <= WINDOW
    assert before[0] not in asked.messages
    assert service.held() == NOTHING
