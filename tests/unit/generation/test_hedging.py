"""Races of two replicas: who goes on, who is closed, what is raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from forebay.generation.hedging import hedged
from forebay.generation.openai import OpenAIGenerator
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import HedgeOutcome, Principal, RequestContext
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import Finished
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import generation_request


class Hedge:
    """Says yes once, and keeps what came of it."""

    def __init__(self, after_s: float | None = 0.0, second: int | None = 1) -> None:
        self._after_s = after_s
        self._second = second
        self.outcomes: list[tuple[int, HedgeOutcome]] = []

    def after_s(self) -> float | None:
        return self._after_s

    def begin(self) -> int | None:
        return self._second

    def ended(self, second: int, outcome: HedgeOutcome) -> None:
        self.outcomes.append((second, outcome))


class Script:
    """A replica that says its name twice once ``go`` is set, or fails then."""

    def __init__(self, name: str, *, fails: bool = False, ready: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.go = asyncio.Event()
        self.closed = False
        self.began = False
        if ready:
            self.go.set()

    async def events(self) -> AsyncGenerator[str, None]:
        self.began = True
        try:
            await self.go.wait()
            if self.fails:
                raise EngineError(self.name)
            yield self.name
            yield self.name
        finally:
            self.closed = True


async def run(hedge: Hedge | None, first: Script, second: Script) -> list[str]:
    async with asyncio.timeout(5):
        async with aclosing(hedged(hedge, first.events(), lambda _: second.events())) as events:
            said = [event async for event in events]
    assert first.closed
    assert second.closed == second.began
    return said


async def test_without_hedging_or_while_late_is_not_known_there_is_one() -> None:
    for hedge in (None, Hedge(after_s=None), Hedge(after_s=5.0), Hedge(second=None)):
        first, second = Script("first", ready=True), Script("second", ready=True)
        assert await run(hedge, first, second) == ["first", "first"]
        assert not second.began
        assert hedge is None or hedge.outcomes == []


async def test_a_second_that_is_quicker_goes_on() -> None:
    hedge, first = Hedge(), Script("first")
    assert await run(hedge, first, Script("second", ready=True)) == ["second", "second"]
    assert hedge.outcomes == [(1, "won")]


async def test_a_first_that_begins_after_all_goes_on() -> None:
    hedge, first, second = Hedge(), Script("first"), Script("second")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(run(hedge, first, second))
        while not second.began:
            await asyncio.sleep(0)
        first.go.set()
    assert asked.result() == ["first", "first"]
    assert hedge.outcomes == [(1, "lost")]


async def test_failures_on_either_side_leave_the_other() -> None:
    hedge, first, second = Hedge(), Script("first", fails=True), Script("second")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(run(hedge, first, second))
        while not second.began:
            await asyncio.sleep(0)
        first.go.set()
        while not first.closed:
            await asyncio.sleep(0)
        second.go.set()
    assert asked.result() == ["second", "second"]
    assert hedge.outcomes == [(1, "alone")]
    hedge, first, second = Hedge(), Script("first"), Script("second", fails=True, ready=True)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(run(hedge, first, second))
        while not second.closed:
            await asyncio.sleep(0)
        first.go.set()
    assert asked.result() == ["first", "first"]
    assert hedge.outcomes == [(1, "failed")]


async def test_when_both_fail_the_first_ones_failure_is_told() -> None:
    hedge, first = Hedge(), Script("first", fails=True)
    second = Script("second", fails=True, ready=True)

    async def release() -> None:
        while not second.closed:
            await asyncio.sleep(0)
        first.go.set()

    said, _ = await asyncio.gather(run(hedge, first, second), release(), return_exceptions=True)
    assert isinstance(said, EngineError)
    assert said.message == "first"
    assert hedge.outcomes == [(1, "failed")]


async def test_whoever_leaves_during_the_race_stops_both() -> None:
    hedge, first, second = Hedge(), Script("first"), Script("second")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(run(hedge, first, second))
        while not second.began:
            await asyncio.sleep(0)
        asked.cancel()
    assert first.closed
    assert second.closed
    assert hedge.outcomes == [(1, "lost")]


class Placed:
    """Admission's side of one request: the first of two replicas, a hedge to the other."""

    pool = "p"
    replica = 0
    max_output_tokens = 16

    def __init__(self) -> None:
        self.hedging = Hedge(after_s=0.02)
        self.tokens = 0

    def token(self) -> None:
        self.tokens += 1

    def unless_hung(self, leave: Callable[[], None] | None) -> None:
        pass

    def again(self) -> bool:
        return False


async def test_the_engine_that_lost_is_told_to_stop() -> None:
    async with EngineServer() as slow, EngineServer(("Quick", ".")) as quick:
        slow.gate.clear()
        pool = PoolSettings(name="p", base_urls=(slow.base_url, quick.base_url), model="m")
        generator = OpenAIGenerator((pool,), EngineSettings(), WordCounter())
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r", principal=Principal(), deadline=Deadline.after(9, clock), clock=clock
        )
        placed = Placed()
        ctx.placement = placed
        async with aclosing(generator.generate(ctx, generation_request("?", []))) as events:
            said = [event async for event in events]
        assert isinstance(said[-1], Finished)
        assert said[-1].completion_tokens == 2
        assert placed.hedging.outcomes == [(1, "won")]
        assert placed.tokens == len(said)
        async with asyncio.timeout(5):
            await slow.gone.wait()
        assert all(one.outstanding == 0 for one in generator.pools[0].replicas)
        assert generator.pools[0].connections(0.0)["connections"] == 0
        await generator.close()
