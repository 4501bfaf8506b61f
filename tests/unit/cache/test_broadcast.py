"""Streams with several listeners: heard from the beginning, closed when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from forebay.cache.broadcast import Broadcasts, HandOver
from forebay.cache.memory import deep_bytes
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.errors import DeadlineExceeded, EngineError, Overloaded, RateLimited

CLOCK = SystemClock()


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds, CLOCK)


class Source:
    """A stream whose pieces are let go one by one."""

    def __init__(self, pieces: int = 3) -> None:
        self.pieces = pieces
        self.made = 0
        self.closed = 0
        self.go = asyncio.Semaphore(0)
        self.error: BaseException | None = None

    async def __call__(self) -> AsyncGenerator[str, None]:
        self.made += 1
        try:
            for piece in range(self.pieces):
                await self.go.acquire()
                if self.error is not None:
                    raise self.error
                yield f"{piece}"
        finally:
            self.closed += 1

    def release(self, pieces: int) -> None:
        for _ in range(pieces):
            self.go.release()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def heard(streams: Broadcasts[str, str], source: Source, deadline: Deadline) -> list[str]:
    stream, leads = streams.join("k", source, deadline)
    return [event async for event in stream.events(deadline, leads=leads)]


async def test_all_hear_everything_and_it_is_made_once() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(1000)]
    await settle()
    source.release(2)
    await settle()
    late = asyncio.create_task(heard(streams, source, soon()))
    await settle()
    source.release(1)
    for told in await asyncio.gather(*listeners, late):
        assert told == ["0", "1", "2"]
    assert (source.made, source.closed) == (1, 1)
    assert streams.statistics() == {"under_way": 0, "made": 1, "joined": 1000}


async def test_it_goes_on_when_the_one_who_began_it_leaves() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    first = asyncio.create_task(heard(streams, source, soon()))
    await settle()
    second = asyncio.create_task(heard(streams, source, soon()))
    source.release(1)
    await settle()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert source.closed == 0
    source.release(2)
    assert await second == ["0", "1", "2"]


async def test_it_is_closed_when_the_last_one_leaves() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(3)]
    source.release(1)
    await settle()
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    # Whoever has left finds it closed: the engine is told before the request is over.
    assert (source.made, source.closed) == (1, 1)
    assert streams.statistics()["under_way"] == 0


async def test_who_stops_listening_in_the_middle_leaves_it_to_the_others() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    stream, leads = streams.join("k", source, soon())
    events = stream.events(soon(), leads=leads)
    source.release(1)
    assert await anext(events) == "0"
    other = asyncio.create_task(heard(streams, source, soon()))
    await settle()
    source.release(2)
    await events.aclose()
    assert await other == ["0", "1", "2"]


async def test_everybody_listens_by_their_own_deadline() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    patient = asyncio.create_task(heard(streams, source, soon()))
    await settle()
    with pytest.raises(DeadlineExceeded):
        await heard(streams, source, soon(0.01))
    source.release(3)
    assert await patient == ["0", "1", "2"]


async def test_a_failure_is_everybodys_after_what_was_said() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(3)]
    source.release(1)
    await settle()
    source.error = EngineError("no")
    source.release(1)
    results = await asyncio.gather(*listeners, return_exceptions=True)
    assert all(isinstance(result, EngineError) for result in results)


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), RateLimited("too much", retry_after_s=1.0)]
)
async def test_what_is_the_first_ones_own_is_handed_over(error: Exception) -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    source.error = error
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(3)]
    await settle()
    source.release(1)
    first, *others = await asyncio.gather(*listeners, return_exceptions=True)
    assert first is error
    assert all(isinstance(other, HandOver) for other in others)


async def test_after_the_first_word_it_cannot_be_handed_over() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(2)]
    source.release(1)
    await settle()
    source.error = DeadlineExceeded("late")
    source.release(1)
    results = await asyncio.gather(*listeners, return_exceptions=True)
    assert all(isinstance(result, DeadlineExceeded) for result in results)


async def test_the_end_of_all_ends_it_for_everybody() -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listener = asyncio.create_task(heard(streams, source, soon()))
    source.release(1)
    await settle()
    await streams.close()
    with pytest.raises(DeadlineExceeded):
        await listener
    assert source.closed == 1


@pytest.mark.parametrize("turns", range(16))
async def test_leaving_at_any_turn_leaves_nothing(turns: int) -> None:
    streams: Broadcasts[str, str] = Broadcasts()
    source = Source()
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(3)]
    for turn in range(turns):
        if turn in (4, 6, 8):
            source.release(1)
        await asyncio.sleep(0)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    assert source.made == source.closed
    assert streams.statistics()["under_way"] == 0


PIECES = 40
FEW_BYTES = 8 * deep_bytes("0")


async def test_beyond_the_bound_the_slow_one_is_cut_and_who_comes_hears_another() -> None:
    streams: Broadcasts[str, str] = Broadcasts(max_bytes=FEW_BYTES)
    source = Source(PIECES)
    fast = asyncio.create_task(heard(streams, source, soon()))
    stream, leads = streams.join("k", source, soon())
    slow = stream.events(soon(), leads=leads)
    source.release(1)
    assert await anext(slow) == "0"
    source.release(6)
    await settle()
    joined = asyncio.create_task(heard(streams, source, soon()))
    await settle()
    assert source.made == 1
    source.release(PIECES - 7)
    assert await fast == await joined == [f"{piece}" for piece in range(PIECES)]
    with pytest.raises(Overloaded):
        await anext(slow)
    assert streams.statistics()["under_way"] == 0
    late = asyncio.create_task(heard(streams, source, soon()))
    source.release(PIECES)
    assert len(await late) == PIECES
    assert (source.made, source.closed) == (2, 2)


async def test_beyond_the_bound_a_stream_that_nobody_waits_for_is_not_read_on() -> None:
    streams: Broadcasts[str, str] = Broadcasts(max_bytes=FEW_BYTES)
    source = Source(PIECES)
    listeners = []
    for _ in range(2):
        stream, leads = streams.join("k", source, soon())
        listeners.append(stream.events(soon(), leads=leads))
    source.release(PIECES)
    for listener in listeners:
        assert await anext(listener) == "0"
    await settle()
    assert source.go._value > PIECES - 12
    for piece in range(1, PIECES):
        for listener in listeners:
            assert await anext(listener) == f"{piece}"
    for listener in listeners:
        with pytest.raises(StopAsyncIteration):
            await anext(listener)
    assert source.closed == 1


async def test_beyond_the_bound_a_stream_ends_when_no_deadline_is_left() -> None:
    streams: Broadcasts[str, str] = Broadcasts(max_bytes=FEW_BYTES)
    source = Source(PIECES)
    stream, leads = streams.join("k", source, soon())
    listener = stream.events(soon(0.02), leads=leads)
    source.release(PIECES)
    assert await anext(listener) == "0"
    async with asyncio.timeout(5):
        while not source.closed:
            await asyncio.sleep(0.001)
    with pytest.raises(DeadlineExceeded):
        [event async for event in listener]


@pytest.mark.parametrize("turns", range(16))
async def test_leaving_a_full_stream_at_any_turn_leaves_nothing(turns: int) -> None:
    streams: Broadcasts[str, str] = Broadcasts(max_bytes=FEW_BYTES)
    source = Source(PIECES)
    source.release(PIECES - 1)
    listeners = [asyncio.create_task(heard(streams, source, soon())) for _ in range(2)]
    stream, leads = streams.join("k", source, soon())
    slow = stream.events(soon(), leads=leads)
    await anext(slow)
    for _ in range(turns):
        await asyncio.sleep(0)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    await slow.aclose()
    await settle()
    assert source.made == source.closed == 1
    assert not streams._running and streams.statistics()["under_way"] == 0


async def test_the_end_of_all_ends_also_what_nobody_can_join() -> None:
    streams: Broadcasts[str, str] = Broadcasts(max_bytes=FEW_BYTES)
    source = Source(PIECES)
    listener = asyncio.create_task(heard(streams, source, soon()))
    source.release(PIECES - 1)
    await settle()
    await settle()
    assert streams.statistics()["under_way"] == 0 and len(streams._running) == 1
    await streams.close()
    assert source.closed == 1
    with pytest.raises(DeadlineExceeded):
        await listener


async def test_nobody_joins_what_breaks_off_long_before_their_deadline() -> None:
    """Who asked first with little time must not cost the others their answers."""
    streams: Broadcasts[str, str] = Broadcasts()
    hasty, patient = Source(1), Source(1)
    first = asyncio.create_task(heard(streams, hasty, soon(1.0)))
    await settle()
    second = asyncio.create_task(heard(streams, patient, soon(60.0)))
    third = asyncio.create_task(heard(streams, hasty, soon(50.0)))
    await settle()
    assert (hasty.made, patient.made, streams.joined) == (1, 1, 1)
    hasty.release(1)
    patient.release(1)
    assert [*await asyncio.gather(first, second, third)] == [["0"], ["0"], ["0"]]
    assert streams.statistics()["under_way"] == 0
