"""Looking at engines."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web

from forebay.generation.signals import EngineEye, EngineSignal, look_at_all, read_signal

VLLM = b"""# HELP vllm:num_requests_waiting Requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_requests_waiting_other 9
"""


def test_pages_of_several_engines() -> None:
    assert read_signal(VLLM) == EngineSignal(True, 7, 0.75)
    assert read_signal(b"llamacpp:requests_deferred 2\n") == EngineSignal(True, 2, None)
    assert read_signal(b"sglang:token_usage 1e-1\n\xff\xfe") == EngineSignal(True, None, 0.1)
    assert read_signal(b"") == EngineSignal(True)


@pytest.mark.parametrize("number", ["1.2.3", "--", "e", "1e999", "1e300", "-5", "NaN", "+Inf", ""])
def test_numbers_that_cannot_be_are_not_there(number: str) -> None:
    lines = f"vllm:num_requests_waiting {number}\nvllm:kv_cache_usage_perc {number}\n"
    assert read_signal(lines.encode()) == EngineSignal(True)
    assert read_signal(VLLM + lines.encode()) == EngineSignal(True, 7, 0.75)


def test_memory_in_per_cent_is_no_share() -> None:
    assert read_signal(b"vllm:kv_cache_usage_perc 45\n") == EngineSignal(True)


@pytest.mark.parametrize(
    ("health", "metrics", "expected"),
    [
        (200, 200, EngineSignal(True, 7, 0.75)),
        (404, 200, EngineSignal(True, 7, 0.75)),
        (200, 404, EngineSignal(True)),
        (503, 200, EngineSignal(False)),
    ],
)
async def test_a_look(health: int, metrics: int, expected: EngineSignal) -> None:
    asked = 0

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(status=health)

    async def figures(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=metrics, body=VLLM)

    app = web.Application()
    app.router.add_get("/health", healthy)
    app.router.add_get("/metrics", figures)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    eye = EngineEye(2.0)
    try:
        for _ in range(2):
            assert await eye.look(f"http://{host}:{port}/v1/") == expected
        # Who has no figures is not asked for them again.
        assert asked == {200: 2, 404: 1}[metrics] * (health != 503)
    finally:
        await eye.close()
        await runner.cleanup()


async def test_a_page_in_many_pieces_is_read_whole() -> None:
    async def figures(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while line := await reader.readuntil(b"\r\n\r\n"):
                page = b"# HELP x\n" * 20_000 + VLLM if b"/metrics" in line else b""
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page))
                for at in range(0, len(page), 65_536):
                    writer.write(page[at : at + 65_536])
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()

    engine = await asyncio.start_server(figures, "127.0.0.1", 0)
    port = engine.sockets[0].getsockname()[1]
    eye = EngineEye(5.0)
    try:
        assert await eye.look(f"http://127.0.0.1:{port}/v1") == EngineSignal(True, 7, 0.75)
    finally:
        await eye.close()
        engine.close()


@pytest.mark.parametrize("page", ["broken", "hung"])
async def test_an_engine_lives_whatever_becomes_of_its_figures(page: str) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while line := await reader.readuntil(b"\r\n\r\n"):
                if b"/metrics" not in line:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                elif page == "broken":
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvllm")
                    break
        writer.close()

    server = await asyncio.start_server(engine, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    eye = EngineEye(0.2)
    try:
        assert await eye.look(f"http://127.0.0.1:{port}/v1") == EngineSignal(True)
    finally:
        await eye.close()
        server.close()


async def test_the_dead_and_the_silent_are_not_alive() -> None:
    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    eye = EngineEye(0.2)
    try:
        urls = ("http://127.0.0.1:9/v1", f"http://127.0.0.1:{port}/v1")
        assert await look_at_all(eye, urls) == [EngineSignal(False)] * 2
    finally:
        await eye.close()
        silent.close()
