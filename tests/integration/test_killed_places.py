"""Places of a tenant at work that a process held when it was killed are back in seconds."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from forebay.kernel.clock import SystemClock
from forebay.kernel.quotas import QuotaAuthority
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
