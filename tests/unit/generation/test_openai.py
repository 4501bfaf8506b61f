"""Engines over HTTP: streams as they come in the wild, failures, replicas, cancellation."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from forebay.generation.openai import OpenAIGenerator
from forebay.generation.pools import open_pools
from forebay.generation.reading import Patience
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.errors import (
    ConfigError,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    ForebayError,
    Overloaded,
)
from forebay.kernel.stages import Finished, GenerationRequest, Sampling, TextDelta
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import context, generation_request
from forebay.testing.generator_suite import collect

REQUEST = generation_request("How long?", ["Ten days."])


@asynccontextmanager
async def engines(
    *urls: str, settings: EngineSettings | None = None, key: str = ""
) -> AsyncIterator[OpenAIGenerator]:
    pool = PoolSettings(name="p", base_urls=urls, model="m", api_key=key)
    generator = OpenAIGenerator((pool,), settings or EngineSettings(), WordCounter())
    try:
        yield generator
    finally:
        await generator.close()


def dead_url() -> str:
    """An address nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def chunk(text: str | None = None, reason: str | None = None, **more: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return json.dumps({"choices": [choice], **more}, ensure_ascii=False).encode()


async def test_request_and_answer() -> None:
    async with EngineServer() as engine, engines(engine.base_url + "/", key="k-1") as generator:
        sampling = Sampling(temperature=0.2, stop=("END",), max_tokens=7, seed=3)
        request = generation_request("问", ["十天。"], language="zh", sampling=sampling)
        text, finished = await collect(generator, request)
    assert text == "Hello there."
    assert finished == Finished("stop", 11, 3, "m")
    assert engine.keys == ["Bearer k-1"]
    [body] = engine.requests
    assert body["messages"][-1] == {"role": "user", "content": "问"}
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (7, 0.2, 3)
    assert body["stop"] == ["END"]
    assert "top_p" not in body
    assert "response_format" not in body


async def test_own_count_where_the_engine_gives_none() -> None:
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        engine.usage = False
        _, finished = await collect(generator, REQUEST)
    assert finished.prompt_tokens == REQUEST.prompt_tokens
    assert finished.completion_tokens == WordCounter().count("Hello there.")


@pytest.mark.parametrize(
    "usage", ["-5,-1000", "0,0", "1e18,1e18", "9223372036854775808,3", "null,null"]
)
async def test_own_count_where_the_engines_cannot_be(usage: str) -> None:
    prompt, completion = usage.split(",")
    counts = f'{{"prompt_tokens": {prompt}, "completion_tokens": {completion}}}'
    last = f'data: {{"choices": [], "usage": {counts}}}\n\ndata: [DONE]\n\n'
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        events = (b"data: " + chunk("Ten days."), b"data: " + chunk(None, "stop"), last.encode())
        engine.raw = [b"\n\n".join(events)]
        text, finished = await collect(generator, REQUEST)
    assert text == "Ten days."
    assert finished.prompt_tokens == REQUEST.prompt_tokens
    assert finished.completion_tokens in (WordCounter().count(text), 3)


async def test_an_engine_that_keeps_to_no_bound_is_left() -> None:
    endless = b"data: " + chunk("lorem ipsum dolor " * 500) + b"\n\n"
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        engine.raw = [endless] * 500
        with pytest.raises(EngineError, match="far more than it was asked for"):
            await collect(generator, REQUEST)


async def test_a_deadline_that_passes_between_two_reads_is_told() -> None:
    class Body:
        broken: BaseException | None = None

        def breaks(self, error: BaseException) -> None:
            self.broken = error

    body = Body()
    patience = Patience(context(timeout_s=0.0), body)  # type: ignore[arg-type]
    for _ in range(2):
        # The second read finds the timer of a time that has passed.
        patience.begin(20.0)
        patience.end()
    patience.begin(20.0)
    await asyncio.sleep(0.01)
    assert isinstance(body.broken, DeadlineExceeded)
    patience.close()


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "The engine refused the request (HTTP 401 Unauthorized)."),
        (403, "The engine refused the request (HTTP 403 Forbidden)."),
        (500, "The engine failed (HTTP 500 Internal Server Error)."),
        (429, "The engine is overloaded."),
        (400, ""),
    ],
)
async def test_a_failure_that_goes_on_is_told_once_and_without_the_key(
    status: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with EngineServer() as engine, engines(engine.base_url, key="k-secret") as generator:
        [replica] = generator.pools[0].replicas
        engine.status = status
        for _ in range(3):
            with pytest.raises(ForebayError):
                await collect(generator, REQUEST)
        assert replica.failure == told
        lines = [record.getMessage() for record in caplog.records]
        assert [told in line for line in lines] == [True] * bool(told)
        assert all(replica.url in line and "k-secret" not in line for line in lines)
        engine.status = 200
        await collect(generator, REQUEST)
        assert replica.failure == ""


def test_what_comes_back_is_told_again_but_not_each_time() -> None:
    [pool] = open_pools(
        (PoolSettings(name="p", base_urls=("http://a",), model="m"),), EngineSettings()
    )
    [replica] = pool.replicas
    assert [pool.failed(replica, "x", now) for now in (0.0, 1.0, 100.0)] == [True, False, False]
    assert pool.failed(replica, "y", 101.0)
    for again_at, news in ((101.5, True), (102.5, False), (200.0, True)):
        replica.answered_at = again_at - 0.1
        assert pool.failed(replica, "x", again_at) is news


async def test_connections_are_used_again() -> None:
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        for _ in range(3):
            await collect(generator, REQUEST)
        assert len(engine.connections) == 1


WILD = (
    b": a comment\r\n\r\ndata:"
    + chunk("你好")
    + b"\r\n\r\nid: 7\r\nevent: message\r\ndata: "
    + chunk("，世界 🌊")
    + b"\r\n\r\ndata: "
    + chunk(None, None)
    + b"\n\ndata: "
    + chunk(None, "stop")
    + b"\n\n: ping\n\ndata: "
    + json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}).encode()
    + b"\n\ndata: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_streams_cut_anywhere(size: int) -> None:
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        engine.raw = [WILD[at : at + size] for at in range(0, len(WILD), size)]
        text, finished = await collect(generator, REQUEST)
    assert text == "你好，世界 🌊"
    assert finished == Finished("stop", 5, 9, "m")


@pytest.mark.parametrize(
    "ending", [b"data: " + chunk(None, "length") + b"\n\n", b"data: " + chunk(None, "length")]
)
async def test_a_stream_may_end_without_done(ending: bytes) -> None:
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        engine.raw = [b"data: " + chunk("a") + b"\n\n", ending]
        text, finished = await collect(generator, REQUEST)
    assert (text, finished.reason) == ("a", "length")


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"data: [DONE]\n\n",
        b"data: not json\n\n",
        b"data: " + json.dumps({"error": {"message": "secret"}}).encode() + b"\n\n",
        b'data: {"object": "error", "message": "secret"}\n\n',
        b"event: error\ndata: {}\n\n",
        b"data: " + chunk(None, "abort") + b"\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: " + chunk("x" * 3000),
    ],
)
async def test_a_stream_that_breaks_off_is_an_engine_error(rest: bytes) -> None:
    settings = EngineSettings(max_event_bytes=2048)
    async with EngineServer() as engine, engines(engine.base_url, settings=settings) as generator:
        engine.raw = [b"data: " + chunk("begun") + b"\n\n", rest]
        seen: list[str] = []

        async def read() -> None:
            async for event in generator.generate(context(), REQUEST):
                assert isinstance(event, TextDelta)
                seen.append(event.text)

        with pytest.raises(EngineError) as caught:
            await read()
    assert "secret" not in caught.value.message
    assert seen in (["begun"], [])


async def test_an_answer_in_one_piece_is_understood() -> None:
    from aiohttp import web

    async def whole(_: web.Request) -> web.Response:
        choice = {"index": 0, "message": {"content": "All at once."}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", whole)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with engines(f"http://{host}:{port}/v1") as generator:
        text, finished = await collect(generator, REQUEST)
    await runner.cleanup()
    assert (text, finished.reason) == ("All at once.", "stop")


@pytest.mark.parametrize(
    ("status", "error", "tries"),
    [
        (400, EngineRefused, 1),
        (401, EngineRefused, 1),
        (404, EngineRefused, 1),
        (429, Overloaded, 2),
        (503, Overloaded, 2),
        (500, EngineError, 2),
        (302, EngineError, 2),
    ],
)
async def test_statuses(status: int, error: type[ForebayError], tries: int) -> None:
    async with EngineServer() as engine, engines(engine.base_url, engine.base_url) as generator:
        engine.status = status
        engine.headers = {"retry-after": "7"}
        with pytest.raises(error) as caught:
            await collect(generator, REQUEST)
    assert "secret" not in caught.value.message
    assert len(engine.requests) == tries
    if isinstance(caught.value, Overloaded):
        assert caught.value.retry_after_s == 7.0
    if isinstance(caught.value, EngineRefused):
        assert caught.value.status == status


async def test_the_next_replica_answers_until_a_token_is_out() -> None:
    async with EngineServer() as bad, EngineServer() as good:
        bad.break_after = 0
        async with engines(dead_url(), bad.base_url, good.base_url) as generator:
            for _ in range(4):
                text, _ = await collect(generator, REQUEST)
                assert text == "Hello there."
            assert generator.statistics() == {
                "p": {"outstanding": 0, "replicas": 3},
            }
    async with EngineServer() as bad, EngineServer() as good:
        bad.break_after = 1
        async with engines(bad.base_url, good.base_url) as generator:
            with pytest.raises(EngineError, match="broke"):
                await collect(generator, REQUEST)
            assert not good.requests


async def test_nobody_there() -> None:
    async with engines(dead_url()) as generator:
        with pytest.raises(EngineError, match="cannot be reached"):
            await collect(generator, REQUEST)


async def test_pools_by_prompt_length() -> None:
    async with EngineServer() as engine:
        pools = (
            PoolSettings(name="s", base_urls=(engine.base_url,), model="s", max_input_tokens=10),
            PoolSettings(
                name="l",
                base_urls=(engine.base_url,),
                model="l",
                max_input_tokens=100,
                max_output_tokens=2,
            ),
        )
        generator = OpenAIGenerator(pools, EngineSettings(), WordCounter())
        for tokens, model in ((10, "s"), (11, "l")):
            _, finished = await collect(generator, asked(tokens))
            assert finished.model == model
        assert engine.requests[-1]["max_tokens"] == 2
        with pytest.raises(ContextTooLong):
            await collect(generator, asked(101))
        await generator.close()


def asked(prompt_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        question="q",
        language="en",
        messages=REQUEST.messages,
        passages=(),
        sampling=Sampling(),
        max_output_tokens=50,
        prompt_tokens=prompt_tokens,
    )


@pytest.mark.parametrize("begun", [False, True])
async def test_an_engine_sees_within_200_ms_that_nobody_reads(begun: bool) -> None:
    async with EngineServer(["a"] * 1000) as engine, engines(engine.base_url) as generator:
        engine.gate.clear() if not begun else None
        ready = asyncio.Event()

        async def read() -> None:
            async with aclosing(generator.generate(context(), REQUEST)) as events:
                async for _ in events:
                    engine.gate.clear()
                    ready.set()

        task = asyncio.get_running_loop().create_task(read())
        async with asyncio.timeout(5):
            if begun:
                await ready.wait()
            while not engine.active:
                await asyncio.sleep(0.001)
        task.cancel()
        async with asyncio.timeout(0.2):
            await engine.gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert generator.statistics()["p"]["outstanding"] == 0


async def test_deadlines_and_silence() -> None:
    settings = EngineSettings(first_token_timeout_s=0.05, idle_timeout_s=0.05)
    async with EngineServer(["a"] * 1000) as engine:
        engine.gate.clear()
        async with engines(engine.base_url) as generator:
            with pytest.raises(DeadlineExceeded):
                await collect(generator, REQUEST, timeout_s=0.05)
        async with engines(engine.base_url, settings=settings) as generator:
            with pytest.raises(EngineError, match="in time"):
                await collect(generator, REQUEST)
            engine.gate.set()

            async def read() -> None:
                async for _ in generator.generate(context(), REQUEST):
                    engine.gate.clear()

            with pytest.raises(EngineError, match="in time"):
                await read()


async def test_a_deadline_ends_an_answer_that_has_begun() -> None:
    async with EngineServer(["a"] * 1000) as engine, engines(engine.base_url) as generator:
        texts = []

        async def read() -> None:
            async for event in generator.generate(context(timeout_s=0.2), REQUEST):
                texts.append(event)
                engine.gate.clear()

        with pytest.raises(DeadlineExceeded):
            await read()
        assert texts


async def test_a_reader_that_takes_its_time_is_no_silent_engine() -> None:
    settings = EngineSettings(first_token_timeout_s=1.0, idle_timeout_s=0.05)
    async with (
        EngineServer(["a"] * 3000) as engine,
        engines(engine.base_url, settings=settings) as generator,
    ):
        said = []
        async for event in generator.generate(context(), REQUEST):
            said.append(event)
            await asyncio.sleep(0.1)
        assert isinstance(said[-1], Finished)


async def test_no_more_in_work_than_allowed() -> None:
    settings = EngineSettings(max_waiting=1)
    async with EngineServer() as engine, engines(engine.base_url, settings=settings) as generator:
        async with aclosing(generator.generate(context(), REQUEST)) as events:
            await anext(events)
            with pytest.raises(Overloaded):
                await collect(generator, REQUEST)
        await collect(generator, REQUEST)


async def test_a_lone_surrogate_is_sent_as_a_question_mark() -> None:
    async with EngineServer() as engine, engines(engine.base_url) as generator:
        await collect(generator, generation_request("why \ud800?"))
        assert engine.requests[0]["messages"][-1]["content"] == "why ??"


async def test_contradictions_fail_at_the_start() -> None:
    for pools in (
        (),
        (PoolSettings(name="a", base_urls=("ftp://x",), model="m"),),
        (PoolSettings(name="a", base_urls=("http://x",), model="m"),) * 2,
    ):
        with pytest.raises(ConfigError):
            OpenAIGenerator(pools, EngineSettings(), WordCounter())
