"""Connections to a Redis: the bound, the wait, the size that follows the rates, age."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from forebay.coordination.connections import IDLE_S, Connections
from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import AllInUse
from forebay.policy.connections import ConnectionSettings, ConnectionSizer


class Client:
    """Notes that it is closed."""

    def __init__(self, made: list[Client]) -> None:
        self.closed = False
        made.append(self)

    async def aclose(self, close_connection_pool: bool) -> None:
        assert close_connection_pool
        self.closed = True


class Place:
    def __init__(self, most: int = 12, least: int = 1) -> None:
        self.made: list[Client] = []
        self.clock = VirtualClock()
        sizer = ConnectionSizer(ConnectionSettings(least=least, most=most))
        make: Any = lambda: Client(self.made)  # noqa: E731
        self.connections = Connections(make, sizer, self.clock, most=most, acquire_s=0.01)

    @property
    def open(self) -> int:
        return sum(not client.closed for client in self.made)

    async def at_once(self, count: int, takes_s: float = 0.0) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(count):
                _ = await stack.enter_async_context(self.connections.use())
            self.clock.advance(takes_s)


async def test_one_after_the_other_needs_one() -> None:
    place = Place()
    for _ in range(20):
        await place.at_once(1, 0.001)
    assert len(place.made) == 1
    assert place.connections.statistics() == {"busy": 0, "idle": 1}


async def test_the_size_follows_rate_and_time() -> None:
    place = Place()
    # Fifty a second, six at once for 0.12 s each: N = 50 x 0.12 = 6, with its spread 8.45, so 12.
    for _ in range(200):
        await place.at_once(6, 0.12)
    assert place.open == 6
    # A pulse beside that is not kept when calm has come: 10 x 0.001 s are hardly one.
    await place.at_once(12, 0.01)
    for _ in range(300):
        await place.at_once(1, 0.001)
        place.clock.advance(0.1)
    assert place.open <= 2


async def test_what_nobody_used_for_five_minutes_is_closed() -> None:
    place = Place(least=4)
    await place.at_once(4, 0.01)
    assert place.open == 4
    for _ in range(10):
        place.clock.advance(IDLE_S / 8)
        await place.at_once(1)
    assert place.open == 1


async def test_when_all_are_in_use_the_wait_is_short_and_its_own_error() -> None:
    place = Place(most=2, least=2)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            _ = await stack.enter_async_context(place.connections.use())
        with pytest.raises(AllInUse):
            await place.at_once(1)
        assert place.connections.busy == 2
    await place.at_once(2)
    assert len(place.made) == 2


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_call_that_broke_takes_its_connection_along(cancelled: bool) -> None:
    place = Place(most=1)

    async def call() -> None:
        async with place.connections.use():
            if not cancelled:
                raise OSError("broken")
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError if cancelled else OSError):
        await asyncio.wait_for(call(), 0.01)
    assert (place.open, place.connections.busy) == (0, 0)
    await place.at_once(1)
    assert place.open == 1
