"""The bulkhead around retrieval."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import Overloaded
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.policy.bulkhead import RETRIEVAL_LINE, BoundedRetriever
from forebay.policy.limit import LimitSettings
from forebay.policy.line import LineSettings
from forebay.policy.pace import Pace, PaceSettings, Takes

FOUND = SearchResult((), "bm25", 1)
ASKED = SearchRequest("kb", "q")
TWO = LineSettings(max_waiting=3, limit=LimitSettings(initial=2, least=2, most=2))


class Slow:
    """Holds every search until told."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.working = self.most = 0

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await self.gate.wait()
            if request.query == "bad":
                raise ValueError("no")
            return FOUND
        finally:
            self.working -= 1


def context(within_s: float = 5.0) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r",
        principal=Principal(),
        deadline=Deadline.after(within_s, clock),
        clock=clock,
    )


async def test_work_and_line_are_bounded() -> None:
    inner = Slow()
    bounded = BoundedRetriever(inner, SystemClock(), TWO)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(bounded.retrieve(context(), ASKED)) for _ in range(8)]
    await asyncio.sleep(0.01)
    assert inner.working == 2
    refused = [task for task in tasks if task.done()]
    assert len(refused) == 3
    assert all(isinstance(task.exception(), Overloaded) for task in refused)
    inner.gate.set()
    done = await asyncio.gather(*(task for task in tasks if task not in refused))
    assert done == [FOUND] * 5
    assert inner.most == 2
    assert bounded.line.statistics()["in_flight"] == 0


async def test_cuts_and_errors_free_their_place() -> None:
    inner = Slow()
    bounded = BoundedRetriever(inner, SystemClock(), TWO)
    loop = asyncio.get_running_loop()
    for round_ in range(50):
        tasks = [loop.create_task(bounded.retrieve(context(), ASKED)) for _ in range(5)]
        for _ in range(round_ % 4):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
    inner.gate.set()
    with pytest.raises(ValueError, match="no"):
        await bounded.retrieve(context(), SearchRequest("kb", "bad"))
    figures = bounded.line.statistics()
    assert figures["in_flight"] == figures["queue_waiting"] == 0


async def test_a_laptop_with_eight_readers_is_never_refused() -> None:
    class Quick:
        async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
            await asyncio.sleep(0.001)
            return FOUND

    bounded = BoundedRetriever(Quick(), SystemClock(), RETRIEVAL_LINE)

    async def reader() -> None:
        for _ in range(60):
            assert await bounded.retrieve(context(), ASKED) == FOUND

    await asyncio.gather(*(reader() for _ in range(8)))


def answering(within_s: float = 5.0) -> RequestContext:
    """A context of an answer that holds a place."""
    ctx = context(within_s)
    ctx.placement = cast(Any, object())
    return ctx


def paced(inner: Slow, least: int = 2) -> BoundedRetriever:
    """Behind engines that are full and answer nothing: the pace is at its least."""
    pace = Pace(PaceSettings(least=least, refresh_s=1e6), lambda: Takes(0, 0))
    pace.took(0.01)
    return BoundedRetriever(inner, SystemClock(), RETRIEVAL_LINE, pace)


async def test_answers_keep_their_pace_and_searches_are_not_bound_by_it() -> None:
    inner = Slow()
    bounded = paced(inner)
    loop = asyncio.get_running_loop()
    answers = [loop.create_task(bounded.retrieve(answering(), ASKED)) for _ in range(6)]
    await asyncio.sleep(0.01)
    assert inner.working == 2
    searches = [loop.create_task(bounded.retrieve(context(), ASKED)) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert inner.working == 7
    figures = bounded.statistics()
    assert (figures["answers_at_work"], figures["answers_waiting"]) == (2, 4)
    inner.gate.set()
    assert await asyncio.gather(*answers, *searches) == [FOUND] * 11
    figures = bounded.statistics()
    assert figures["answers_at_work"] == figures["answers_waiting"] == 0


async def test_an_answer_waits_for_its_turn_no_longer_than_its_deadline() -> None:
    inner = Slow()
    bounded = paced(inner, least=1)
    loop = asyncio.get_running_loop()
    first = loop.create_task(bounded.retrieve(answering(), ASKED))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refused:
        await bounded.retrieve(answering(within_s=0.05), ASKED)
    assert refused.value.code == "overloaded_deadline"
    inner.gate.set()
    assert await first == FOUND
    assert await bounded.retrieve(answering(), ASKED) == FOUND


async def test_turns_come_back_wherever_an_answer_is_cut() -> None:
    inner = Slow()
    bounded = paced(inner)
    loop = asyncio.get_running_loop()
    for round_ in range(60):
        tasks = [loop.create_task(bounded.retrieve(answering(), ASKED)) for _ in range(6)]
        for step in range(6):
            await asyncio.sleep(0)
            if step == round_ % 6:
                inner.gate.set()  # turns are handed on while others leave
        for task in tasks[round_ % 3 :: 2]:
            task.cancel()
        for _ in range(round_ % 4):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        inner.gate.clear()
    figures = bounded.statistics()
    assert figures["answers_at_work"] == figures["answers_waiting"] == figures["in_flight"] == 0
    inner.gate.set()
    with pytest.raises(ValueError, match="no"):
        await bounded.retrieve(answering(), SearchRequest("kb", "bad"))
    assert bounded.statistics()["answers_at_work"] == 0
