"""The bulkhead around retrieval."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import Overloaded
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.policy.bulkhead import RETRIEVAL_GATE, BoundedRetriever
from forebay.policy.gate import GateSettings
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings

FOUND = SearchResult((), "bm25", 1)
ASKED = SearchRequest("kb", "q")
TWO = GateSettings(
    queue=QueueSettings(max_waiting=3), limit=LimitSettings(initial=2, least=2, most=2)
)


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
    assert bounded.gate.statistics()["in_flight"] == 0


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
    figures = bounded.gate.statistics()
    assert figures["in_flight"] == figures["queue_waiting"] == 0


async def test_a_laptop_with_eight_readers_is_never_refused() -> None:
    class Quick:
        async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
            await asyncio.sleep(0.001)
            return FOUND

    bounded = BoundedRetriever(Quick(), SystemClock(), RETRIEVAL_GATE)

    async def reader() -> None:
        for _ in range(60):
            assert await bounded.retrieve(context(), ASKED) == FOUND

    await asyncio.gather(*(reader() for _ in range(8)))
