"""Engines are warmed before ready and after idleness, and give way to real work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.app.warming import AGAIN_S, Warmer
from forebay.generation.openai import OpenAIGenerator
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.clock import VirtualClock
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import generation_request
from forebay.testing.generator_suite import collect


class Busy:
    def __init__(self) -> None:
        self.now = False

    def __call__(self, pool: str) -> bool:
        assert pool == "p"
        return self.now


class Warmed:
    """A warmer, its clock and what it works on."""

    def __init__(self, generator: OpenAIGenerator, settings: EngineSettings) -> None:
        self.generator = generator
        self.clock = VirtualClock(1000.0)
        self.busy = Busy()
        self.resting: frozenset[tuple[str, int]] = frozenset()
        self.warmer = Warmer(generator, self.busy, settings, self.clock, lambda: self.resting)


@asynccontextmanager
async def warmed(*urls: str, timeout_s: float = 5.0, after_s: float = 600) -> AsyncIterator[Warmed]:
    settings = EngineSettings(warm_timeout_s=timeout_s, warm_after_s=after_s)
    pool = PoolSettings(name="p", base_urls=urls, model="m")
    generator = OpenAIGenerator((pool,), settings, WordCounter())
    try:
        yield Warmed(generator, settings)
    finally:
        await generator.close()


@asynccontextmanager
async def running(held: Warmed) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(held.warmer.run())
        try:
            async with asyncio.timeout(5):
                await held.warmer.done()
                yield
        finally:
            task.cancel()


async def test_every_replica_writes_one_token_before_ready() -> None:
    async with (
        EngineServer() as first,
        EngineServer() as second,
        warmed(first.base_url, second.base_url) as held,
    ):
        assert held.warmer.waiting() == ("warming the engines",)
        async with running(held):
            assert held.warmer.waiting() == ()
        assert held.warmer.shortcomings() == ()
        for engine in (first, second):
            [asked] = engine.requests
            assert (asked["max_tokens"], asked["model"]) == (1, "m")


async def test_an_engine_that_fails_degrades_until_it_answers() -> None:
    async with EngineServer() as engine, warmed(engine.base_url) as held:
        engine.status = 500
        async with running(held):
            pass
        sentence = (
            "replica 1 of pool p failed when it was warmed: "
            "The engine failed (HTTP 500 Internal Server Error)"
        )
        assert held.warmer.shortcomings() == (sentence,)
        engine.status = 200
        await held.warmer.look()
        assert held.warmer.shortcomings() == (sentence,)
        held.clock.advance(AGAIN_S)
        await held.warmer.look()
        assert held.warmer.shortcomings() == ()


async def test_an_engine_that_hangs_is_waited_for_no_longer_than_set() -> None:
    async with EngineServer() as engine, warmed(engine.base_url, timeout_s=0.05) as held:
        engine.gate.clear()
        async with running(held):
            [told] = held.warmer.shortcomings()
            assert told.endswith("failed when it was warmed: no token in time")
            async with asyncio.timeout(5):
                await engine.gone.wait()


async def test_a_client_that_was_answered_shows_that_it_lives() -> None:
    async with EngineServer() as engine, warmed(engine.base_url) as held:
        engine.status = 401
        async with running(held):
            pass
        [told] = held.warmer.shortcomings()
        assert told.endswith("The engine refused the request (HTTP 401 Unauthorized)")
        engine.status = 200
        await collect(held.generator, generation_request("?", []))
        [pool] = held.generator.pools
        pool.replicas[0].answered_at = held.clock.now() + 1
        await held.warmer.look()
        assert held.warmer.shortcomings() == ()
        assert len(engine.requests) == 2


async def test_idle_engines_are_warmed_again_but_never_beside_work() -> None:
    async with EngineServer() as engine, warmed(engine.base_url) as held:
        async with running(held):
            pass
        held.clock.advance(599)
        await held.warmer.look()
        assert len(engine.requests) == 1
        held.clock.advance(2)
        held.busy.now = True
        await held.warmer.look()
        assert len(engine.requests) == 1
        held.busy.now = False
        await held.warmer.look()
        await held.warmer.look()
        assert len(engine.requests) == 2


async def test_both_can_be_switched_off() -> None:
    async with EngineServer() as engine, warmed(engine.base_url, timeout_s=0, after_s=0) as held:
        async with running(held):
            assert held.warmer.waiting() == ()
        held.clock.advance(1e6)
        await held.warmer.look()
        assert engine.requests == []


async def test_an_engine_that_is_left_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with EngineServer() as first, warmed(first.base_url) as held:
        held.resting = frozenset({("p", 0)})
        sentence = "replica 1 of pool p fails or hangs and is left alone"
        assert held.warmer.shortcomings() == (sentence,)
        await held.warmer.look()
        await held.warmer.look()
        held.resting = frozenset()
        await held.warmer.look()
        assert held.warmer.shortcomings() == ()
        told = [record.getMessage() for record in caplog.records]
        [replica] = held.generator.pools[0].replicas
        replica.fail("HTTP 401 Unauthorized.", held.clock.now())
        held.resting = frozenset({("p", 0)})
        assert held.warmer.shortcomings() == (f"{sentence} (HTTP 401 Unauthorized)",)
        where = f"engine {first.base_url}/chat/completions of pool p"
        assert told == [f"{where} fails or hangs: left alone", f"{where} is used again"]
