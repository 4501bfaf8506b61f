"""Connections to a replica: the bound, the wait for one, those that stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from forebay.generation.connections import Connections, KeepAll
from forebay.generation.openai import OpenAIGenerator
from forebay.generation.pools import open_pools
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import ConfigError, DeadlineExceeded, EngineError, Overloaded
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import generation_request
from forebay.testing.generator_suite import collect


class Fixed:
    """Two are worth keeping."""

    def __init__(self) -> None:
        self.busy = 0

    def began(self, now: float) -> None:
        self.busy += 1

    def ended(self, now: float) -> None:
        self.busy -= 1

    def kept(self, now: float) -> int:
        return 2


def context(left_s: float = 9.0) -> RequestContext:
    clock = VirtualClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(left_s, clock), clock=clock
    )


def connections(sizing: Fixed, acquire_s: float = 0.02) -> Connections:
    return Connections(EngineSettings(max_connections=5, acquire_timeout_s=acquire_s), sizing)


async def test_a_connection_beyond_twice_the_size_is_not_kept() -> None:
    sizing = Fixed()
    held = connections(sizing)
    async with AsyncExitStack() as stack:
        closes = []
        for _ in range(5):
            await stack.enter_async_context(held.use(context()))
            closes.append(held.closes(0.0))
        assert closes == [False] * 4 + [True]
        assert (held.busy, sizing.busy) == (5, 5)
    assert (held.busy, sizing.busy) == (0, 0)


async def test_the_wait_for_one_is_bounded_by_its_time_out_and_by_the_deadline() -> None:
    sizing = Fixed()
    held = connections(sizing)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(held.use(context()))
        with pytest.raises(Overloaded):
            async with held.use(context()):
                pass
        with pytest.raises(DeadlineExceeded):
            async with held.use(context(left_s=0.01)):
                pass
        assert (held.busy, sizing.busy) == (5, 5)
    assert (held.busy, sizing.busy) == (0, 0)


async def test_who_leaves_the_line_frees_his_place_in_it() -> None:
    sizing = Fixed()
    held = connections(sizing, acquire_s=30.0)

    async def wait() -> None:
        async with held.use(context()):
            pass

    async with AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(held.use(context()))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait())
            while sizing.busy < 6:
                await asyncio.sleep(0)
            waiting.cancel()
        assert sizing.busy == 5
    async with held.use(context()):
        assert held.busy == 1


@asynccontextmanager
async def engines(url: str, settings: EngineSettings) -> AsyncIterator[OpenAIGenerator]:
    pool = PoolSettings(name="p", base_urls=(url,), model="m")
    generator = OpenAIGenerator((pool,), settings, WordCounter(), lambda _settings: Fixed())
    try:
        yield generator
    finally:
        await generator.close()


async def test_after_a_pulse_only_twice_the_size_stays_open() -> None:
    async with EngineServer() as engine, engines(engine.base_url, EngineSettings()) as generator:
        request = generation_request("?", [])
        engine.gate.clear()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(collect(generator, request))
            while engine.active < 8:
                await asyncio.sleep(0)
            [pool] = generator.pools
            assert pool.connections(0.0) == {"connections": 8, "connections_kept": 2}
            engine.gate.set()
        assert len(engine.connections) == 8
        [client] = generator._clients.values()
        assert client.idle == 4
        await collect(generator, request)
        assert len(engine.connections) == 8, "the next request took one that was kept"


def test_a_least_above_the_most_is_refused() -> None:
    pool = PoolSettings(name="p", base_urls=("http://127.0.0.1:1/v1",), model="m")
    with pytest.raises(ConfigError, match="min_connections"):
        open_pools((pool,), EngineSettings(min_connections=9, max_connections=8), KeepAll)


SAID = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Keep-Alive: timeout=5, max=100\r\n\r\n"
)
HELLO = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}'
    b"\n\ndata: [DONE]\n\n"
)


@asynccontextmanager
async def hasty(*, answers: bool) -> AsyncIterator[tuple[str, list[int]]]:
    """An engine that says it keeps connections and closes each after its stream, or without."""
    taken: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(0)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if answers:
            writer.write(SAID + b"%x\r\n%b\r\n0\r\n\r\n" % (len(HELLO), HELLO))
            await writer.drain()
            # The end of the stream is read, and the next request sent, before this is.
            await asyncio.sleep(0.02)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", taken


async def test_a_kept_connection_that_was_closed_is_no_failure_of_the_engine() -> None:
    async with hasty(answers=True) as (url, taken):
        pool = PoolSettings(name="p", base_urls=(url,), model="m")
        generator = OpenAIGenerator((pool,), EngineSettings(), WordCounter())
        request = generation_request("Who?", ["Me."])
        try:
            for _ in range(8):
                text, finished = await collect(generator, request)
                assert text == "Hello" and finished.reason == "stop"
        finally:
            await generator.close()
    assert len(taken) == 8


async def test_an_engine_that_closes_a_new_connection_is_not_asked_again() -> None:
    async with hasty(answers=False) as (url, taken):
        pool = PoolSettings(name="p", base_urls=(url,), model="m")
        generator = OpenAIGenerator((pool,), EngineSettings(), WordCounter())
        try:
            with pytest.raises(EngineError, match="broke the connection"):
                await collect(generator, generation_request("Who?", ["Me."]))
        finally:
            await generator.close()
    assert len(taken) == 1
