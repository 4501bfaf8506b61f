"""Text of engines that goes straight to the request's sink, once an answer has begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from forebay.generation.openai import OpenAIGenerator
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.errors import DeadlineExceeded, EngineError
from forebay.kernel.stages import Finished, TextDelta
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import context, generation_request
from tests.unit.generation.test_hedging import Placed
from tests.unit.generation.test_openai import REQUEST, chunk

WORDS = tuple(f"w{number} " for number in range(30))


class Client:
    """Reads a stream whose text may come past it; takes ``most`` texts that way, then declines."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.streamed: list[str] = []
        self.direct: list[str] = []
        self.texts: list[str] = []
        self.finished: Finished | None = None

    def sink(self, text: str) -> bool:
        self.direct.append(text)
        self.texts.append(text)
        return len(self.direct) % self.most != 0

    async def read(self, generator: OpenAIGenerator, timeout_s: float = 60.0) -> None:
        ctx = context(timeout_s=timeout_s)
        ctx.direct = self.sink
        async with aclosing(generator.generate(ctx, REQUEST)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self.streamed.append(event.text)
                    self.texts.append(event.text)
                else:
                    self.finished = event


@asynccontextmanager
async def engine(
    *pieces: str, settings: EngineSettings | None = None
) -> AsyncIterator[tuple[EngineServer, OpenAIGenerator]]:
    async with EngineServer(pieces or WORDS) as server:
        pool = PoolSettings(name="p", base_urls=(server.base_url,), model="m")
        generator = OpenAIGenerator((pool,), settings or EngineSettings(), WordCounter())
        try:
            yield server, generator
        finally:
            await generator.close()


@pytest.mark.parametrize("most", [1, 3, 1000])
async def test_the_text_is_the_same_whichever_way_it_goes(most: int) -> None:
    async with engine() as (_, generator):
        client = Client(most)
        await client.read(generator)
    assert "".join(client.texts) == "".join(WORDS)
    assert client.streamed and client.streamed[0] == client.texts[0]
    assert client.direct
    assert client.finished == Finished("stop", 11, len(WORDS), "m")


async def test_the_first_text_and_what_comes_with_the_end_take_the_stream() -> None:
    async with engine() as (server, generator):
        events = [chunk("a"), chunk("b"), chunk("c")]
        last = [chunk("d"), chunk(None, "stop"), b"[DONE]"]
        server.raw = [b"data: " + event + b"\n\n" for event in events]
        server.raw.append(b"".join(b"data: " + event + b"\n\n" for event in last))
        client = Client()
        await client.read(generator)
    assert "".join(client.texts) == "abcd"
    assert client.streamed[0][0] == "a" and client.streamed[-1][-1] == "d"
    assert client.finished is not None and client.finished.reason == "stop"


async def test_each_read_is_a_sign_of_life() -> None:
    async with engine() as (_, generator):
        ctx, client = context(), Client()
        ctx.placement = placed = Placed()
        placed.hedging = None  # type: ignore[assignment]
        ctx.direct = client.sink
        said = [event async for event in generator.generate(ctx, generation_request("?", []))]
        [replica] = generator.pools[0].replicas
        assert placed.tokens == len(said) + len(client.direct)
        assert replica.answered_at > float("-inf")


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        (b"data: not json\n\n", "something else"),
        (b'data: {"error": {"message": "secret"}}\n\n', "reported an error"),
        (b"data: " + chunk("lorem ipsum " * 50_000) + b"\n\n", "far more"),
        (b"", "broke"),
    ],
)
async def test_what_breaks_an_answer_is_told_as_ever(rest: bytes, told: str) -> None:
    async with engine() as (server, generator):
        server.raw = [*(b"data: " + chunk(word) + b"\n\n" for word in WORDS), rest]
        client = Client()
        with pytest.raises(EngineError, match=told):
            await client.read(generator)
    assert "".join(client.texts) == "".join(WORDS)
    assert generator.statistics()["p"]["outstanding"] == 0


@pytest.mark.parametrize("late", [EngineError, DeadlineExceeded])
async def test_silence_and_deadlines_end_it(late: type[Exception]) -> None:
    idle_s, timeout_s = (0.05, 60.0) if late is EngineError else (60.0, 0.3)
    settings = EngineSettings(idle_timeout_s=idle_s)
    async with engine(*["a"] * 1000, settings=settings) as (server, generator):
        client = Client()
        server.hold_after = 5
        with pytest.raises(late):
            await client.read(generator, timeout_s)
        async with asyncio.timeout(5):
            await server.gone.wait()
    assert client.texts


async def test_an_engine_sees_that_nobody_listens_any_more() -> None:
    async with engine(*["a"] * 1000) as (server, generator):
        server.hold_after = 5
        client = Client()
        task = asyncio.get_running_loop().create_task(client.read(generator))
        async with asyncio.timeout(5):
            while "".join(client.texts) != "aaaaa":
                await asyncio.sleep(0.001)
        task.cancel()
        async with asyncio.timeout(0.2):
            await server.gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
