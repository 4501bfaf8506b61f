"""Reading ahead and noticing departures: whatever ends first, nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from forebay.gateway.lag import watch_lag
from forebay.gateway.watching import DisconnectWatch, ReadAhead
from forebay.kernel.clock import SystemClock
from forebay.kernel.streams import closing


class Source:
    """Yields its items and notes that it was closed."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.closed = False
        self.given = 0

    async def stream(self) -> AsyncGenerator[Any, None]:
        try:
            for item in self.items:
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    await asyncio.Event().wait()
                elif item == "tick":
                    await asyncio.sleep(0)
                else:
                    self.given += 1
                    yield item
        finally:
            await asyncio.sleep(0)
            self.closed = True


async def test_what_arrives_together_leaves_together() -> None:
    source = Source(1, 2, 3, "tick", "tick", "tick", 4)
    async with ReadAhead(source.stream()) as ahead:
        assert await ahead.batch() == [1, 2, 3]
        assert await ahead.batch() == [4]
        assert await ahead.batch() == []
    assert source.closed


async def test_an_error_comes_after_what_came_before_it() -> None:
    source = Source(1, ValueError("broken"))
    async with ReadAhead(source.stream()) as ahead:
        assert await ahead.batch() == [1]
        with pytest.raises(ValueError, match="broken"):
            await ahead.batch()
    assert source.closed


async def test_the_source_stands_still_at_the_bound() -> None:
    source = Source(*range(1, 100))
    async with ReadAhead(source.stream(), bound=10) as ahead:
        await asyncio.sleep(0.01)
        assert source.given == 10
        total = 0
        while batch := await ahead.batch():
            assert len(batch) <= 10
            total += len(batch)
        assert total == 99


async def test_joined_the_source_goes_on_as_far_as_joining_helps() -> None:
    def joined(numbers: list[int]) -> list[int]:
        return [sum(numbers)] if sum(numbers) < 1000 else numbers

    source = Source(*range(1, 100))
    async with ReadAhead(source.stream(), bound=10, join=joined) as ahead:
        await asyncio.sleep(0.01)
        assert 10 < source.given < 99
        total = 0
        while batch := await ahead.batch():
            assert len(batch) <= 10
            total += sum(batch)
        assert total == sum(range(1, 100))


async def test_leaving_early_closes_the_source() -> None:
    source = Source(1, None)
    async with ReadAhead(source.stream()) as ahead:
        assert await ahead.batch() == [1]
    assert source.closed


@pytest.mark.parametrize("turns", range(8))
async def test_cancelling_at_each_await_closes_the_source(turns: int) -> None:
    source = Source(1, "tick", 2, "tick", 3, None)

    async def use() -> None:
        async with ReadAhead(source.stream()) as ahead:
            while await ahead.batch():
                await asyncio.sleep(0)

    before = asyncio.all_tasks()
    task = asyncio.get_running_loop().create_task(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert source.closed or source.given == 0


async def test_closing_closes_generators_and_leaves_plain_iterators() -> None:
    source = Source(1, 2)
    async with closing(source.stream()) as events:
        assert await anext(events) == 1
    assert source.closed


async def test_a_departure_is_told_once() -> None:
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]
    gone: list[bool] = []

    async def receive() -> Any:
        await asyncio.sleep(0)
        return messages.pop(0)

    async with DisconnectWatch(receive, lambda: gone.append(True)):
        for _ in range(10):
            await asyncio.sleep(0)
    assert gone == [True]


async def test_a_watch_that_sees_nothing_ends_with_its_block() -> None:
    gone: list[bool] = []
    wait: Callable[[], Any] = asyncio.Event().wait
    before = asyncio.all_tasks()
    async with DisconnectWatch(wait, lambda: gone.append(True)):
        pass
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert not gone


async def test_a_blocked_loop_is_measured() -> None:
    import time

    seen: list[float] = []
    task = asyncio.get_running_loop().create_task(
        watch_lag(SystemClock(), seen.append, interval_s=0.01)
    )
    await asyncio.sleep(0.03)
    time.sleep(0.1)
    await asyncio.sleep(0.03)
    task.cancel()
    assert max(seen) > 0.05
    assert min(seen) < max(seen) / 2
