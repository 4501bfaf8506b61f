"""Writing behind and noticing departures: whatever ends first, nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import pytest

from forebay.gateway.lag import watch_lag
from forebay.gateway.watching import DisconnectWatch, WriteBehind
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


class Reader:
    """Takes what is written: slowly, not at all, or until it breaks."""

    def __init__(self, *, breaks_at: int | None = None, stands: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.goes_on = asyncio.Event()
        if not stands:
            self.goes_on.set()
        self._breaks_at = breaks_at

    @property
    def written(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    async def write(self, batch: list[Any]) -> None:
        self.batches.append(batch)
        if len(self.batches) == self._breaks_at:
            raise ConnectionError("gone")
        await self.goes_on.wait()


async def relay(source: Source, reader: Reader, **more: Any) -> None:
    async with WriteBehind(reader.write, **more) as behind, closing(source.stream()) as items:
        async for item in items:
            if behind.put(item):
                await behind.room()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_arrives_together_leaves_together() -> None:
    source, reader = Source(1, 2, 3, "tick", "tick", "tick", 4), Reader()
    await relay(source, reader)
    assert reader.batches == [[1, 2, 3], [4]]
    assert source.closed


async def test_what_is_over_within_one_turn_is_written_in_it() -> None:
    reader = Reader()
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    async with WriteBehind(reader.write) as behind:
        behind.put(1)
        behind.put(2)
    assert reader.batches == [[1, 2]]
    async with WriteBehind(reader.write):
        pass
    with pytest.raises(ValueError, match="refused"):
        async with WriteBehind(reader.write):
            raise ValueError("refused")
    assert len(reader.batches) == 1
    assert turned == []


@pytest.mark.parametrize("before", [(1,), (1, "tick"), (1, "tick", "tick", 2)])
async def test_an_error_comes_after_what_came_before_it(before: tuple[Any, ...]) -> None:
    source, reader = Source(*before, ValueError("broken")), Reader()
    with pytest.raises(ValueError, match="broken"):
        await relay(source, reader)
    assert reader.written == [item for item in before if item != "tick"]
    assert source.closed


async def test_the_source_stands_still_at_the_bound() -> None:
    source, reader = Source("tick", *range(1, 100)), Reader(stands=True)
    task = asyncio.get_running_loop().create_task(relay(source, reader, bound=10))
    await turns()
    assert source.given <= 20
    reader.goes_on.set()
    await task
    assert max(map(len, reader.batches)) <= 10
    assert reader.written == list(range(1, 100))


async def test_joined_the_source_goes_on_as_far_as_joining_helps() -> None:
    def joined(numbers: list[int]) -> list[int]:
        return [sum(numbers)] if sum(numbers) < 1000 else numbers

    source, reader = Source("tick", *range(1, 100)), Reader(stands=True)
    task = asyncio.get_running_loop().create_task(relay(source, reader, bound=10, join=joined))
    await turns()
    assert 20 < source.given < 99
    reader.goes_on.set()
    await task
    assert max(map(len, reader.batches)) <= 10
    assert sum(reader.written) == sum(range(1, 100))


@pytest.mark.parametrize("source", [Source(1, "tick", None), Source(1, "tick", *range(99))])
async def test_a_reader_that_breaks_ends_the_source(source: Source) -> None:
    reader = Reader(breaks_at=1)
    before = asyncio.all_tasks()
    with pytest.raises(ConnectionError):
        await relay(source, reader, bound=10)
    assert source.closed
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    await turns(1)
    assert asyncio.all_tasks() == before


async def test_a_reader_that_breaks_at_the_end_is_told() -> None:
    with pytest.raises(ConnectionError):
        await relay(Source(1, "tick", "tick", 2), Reader(breaks_at=2))
    with pytest.raises(ConnectionError):
        await relay(Source(1), Reader(breaks_at=1))


async def test_a_cancellation_counts_beside_a_reader_that_breaks() -> None:
    reader = Reader(stands=True, breaks_at=2)
    task = asyncio.get_running_loop().create_task(relay(Source(1, "tick", 2, None), reader))
    await turns(5)
    reader.goes_on.set()
    await turns(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_time_that_runs_out_is_told_as_such() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await relay(Source(1, "tick", None), Reader(stands=True))


@pytest.mark.parametrize("stands", [False, True])
@pytest.mark.parametrize("count", range(8))
async def test_cancelling_at_each_await_closes_the_source(count: int, stands: bool) -> None:
    source = Source(1, "tick", 2, "tick", 3, None)
    before = asyncio.all_tasks()
    task = asyncio.get_running_loop().create_task(relay(source, Reader(stands=stands)))
    await turns(count)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns(1)
    assert asyncio.all_tasks() == before
    assert source.closed or source.given == 0


async def test_what_can_be_written_at_once_needs_no_task() -> None:
    """The first batch is a task's, as is what has to wait; the order is that of coming."""
    reader, now = Reader(), Reader()
    open_, tasks = True, asyncio.all_tasks()

    def at_once(batch: list[Any]) -> bool:
        if open_:
            now.batches.append(batch)
        return open_

    async with WriteBehind(reader.write, at_once=at_once) as behind:
        behind.put(1)
        behind.put(2)
        await turns(2)
        assert reader.batches == [[1, 2]]
        behind.put(3)
        behind.put(4)
        idle = [behind.idle]  # who came now would come after what waits
        await turns(2)
        assert [*idle, behind.idle] == [False, True]
        assert now.batches == [[3, 4]]
        assert asyncio.all_tasks() == tasks
        open_ = False
        behind.put(7)
        behind.put(8)
        await turns(2)
        assert reader.batches == [[1, 2], [7, 8]]
        behind.put(9)
    assert reader.batches[-1] == [9]
    assert asyncio.all_tasks() == tasks


async def test_an_error_at_once_ends_the_source() -> None:
    def at_once(_batch: list[Any]) -> bool:
        raise ConnectionError("gone")

    reader = Reader()

    async def answer() -> None:
        async with WriteBehind(reader.write, at_once=at_once) as behind:
            behind.put(1)
            await turns(2)
            behind.put(2)
            await asyncio.Event().wait()

    with pytest.raises(ConnectionError):
        await answer()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert reader.batches == [[1]]


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


@pytest.mark.parametrize("items", [(1, 2), (1, "tick", "tick", 2), (1, "tick", None)])
async def test_nothing_is_left_to_the_garbage_collector(items: tuple[Any, ...]) -> None:
    """A collection stops everything, the longer the more there is in memory."""

    async def answer() -> None:
        async with DisconnectWatch(asyncio.Event().wait, lambda: None):
            await relay(Source(*items), Reader())

    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await answer()
    await turns(3)
    gc.collect()
    gc.disable()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await answer()
        await turns(3)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [one for one in gc.garbage if isinstance(one, asyncio.Task)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
