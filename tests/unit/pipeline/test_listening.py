"""Listening changes nothing, labels requests and tells only what may be learned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from forebay.cache.prewarm import QUESTION_CHARACTERS, Asked
from forebay.cache.sessions import Sessions, SessionTierSettings
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext, StageRecord
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import Message, Sampling, SearchRequest, SearchResult
from forebay.pipeline.listening import Listening
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest, Usage

END = AnswerEnd("stop", (), Usage(1, 1), "m", "bm25", 1)
ASKED = AnswerRequest("kb", (Message("user", "What does error E21 mean?"),), Sampling(seed=3))


class Life:
    """The answering life; fails after the first word when told to."""

    def __init__(self) -> None:
        self.fails = False
        self.closed = 0

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        return SearchResult((), "bm25", 1)

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncIterator[AnswerDelta | AnswerEnd]:
        try:
            yield AnswerDelta("word")
            if self.fails:
                raise EngineError("gone.")
            yield END
        finally:
            self.closed += 1


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.told: list[Asked] = []
        self.life = Life()
        sessions = Sessions(SessionTierSettings(), self.clock)
        self.listening = Listening(self.life, sessions, self.told.append, self.clock)

    def ctx(self, *, no_cache: bool = False) -> RequestContext:
        ctx = RequestContext(
            request_id="r",
            principal=Principal(tenant="t", key_id="k", groups=frozenset({"b", "a"})),
            deadline=Deadline.after(10.0, self.clock),
            clock=self.clock,
            no_cache=no_cache,
        )
        ctx.address = "10.0.0.1"
        return ctx

    def ask(self, request: AnswerRequest, ctx: RequestContext) -> list[object]:
        async def run() -> list[object]:
            return [event async for event in self.listening.answer(ctx, request)]

        return asyncio.run(run())


def test_an_answer_passes_as_it_is_and_is_told_with_its_labels() -> None:
    world = World()
    ctx = world.ctx()
    ctx.cache["retrieval"] = "miss"
    ctx.stages.append(StageRecord("retrieval", 0.0, worked_s=0.02))
    assert world.ask(ASKED, ctx) == [AnswerDelta("word"), END]
    assert ctx.labels == {"intent": "fact", "urgency": "normal", "entities": "1"}
    (told,) = world.told
    assert (told.kind, told.cold_s) == ("fact+normal", 0.02)
    assert told.question.groups == ("a", "b")
    assert told.question.sampling == Sampling(seed=3)
    assert "10.0.0.1" not in told.who and told.who != "k"


def test_a_turn_of_a_conversation_is_no_answer_to_make_beforehand() -> None:
    world = World()
    turns = (Message("user", "hi"), Message("assistant", "yes?"), *ASKED.messages)
    world.ask(msgspec.structs.replace(ASKED, messages=turns), world.ctx())
    world.ask(msgspec.structs.replace(ASKED, extras=b"x"), world.ctx())
    assert [one.question.sampling for one in world.told] == [None, None]


@pytest.mark.parametrize("text", ["x" * (QUESTION_CHARACTERS + 1), ""])
def test_what_nobody_asks_twice_is_not_told(text: str) -> None:
    world = World()
    world.ask(msgspec.structs.replace(ASKED, messages=(Message("user", text),)), world.ctx())
    assert world.told == []


def test_who_wants_nothing_kept_is_not_listened_to() -> None:
    world = World()
    world.ask(ASKED, world.ctx(no_cache=True))
    asyncio.run(world.listening.search(world.ctx(no_cache=True), SearchRequest("kb", "q?")))
    assert world.told == []


def test_what_failed_or_was_left_is_not_told_and_is_closed() -> None:
    world = World()
    world.life.fails = True
    with pytest.raises(EngineError):
        world.ask(ASKED, world.ctx())

    async def leave() -> None:
        events = world.listening.answer(world.ctx(), ASKED)
        await anext(events)
        await events.aclose()

    asyncio.run(leave())
    assert world.told == [] and world.life.closed == 2


def test_searches_are_told_too() -> None:
    world = World()
    asyncio.run(world.listening.search(world.ctx(), SearchRequest("kb", "怎么退货？", 7)))
    assert (world.told[0].kind, world.told[0].question.top_k) == ("faq-normal", 7)


def test_switched_off_it_only_passes_on() -> None:
    world = World()
    ctx = world.ctx()
    silent = Listening(world.life, None, None, world.clock)

    async def run() -> list[object]:
        await silent.search(ctx, SearchRequest("kb", "q?"))
        return [event async for event in silent.answer(ctx, ASKED)]

    assert asyncio.run(run()) == [AnswerDelta("word"), END]
    assert ctx.labels == {}
