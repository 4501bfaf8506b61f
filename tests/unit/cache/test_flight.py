"""Single flight: one call for all, each waiting by its own deadline, whoever leaves."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from forebay.cache.flight import Flights
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.errors import DeadlineExceeded, EngineError, RateLimited, Unavailable

CLOCK = SystemClock()


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds, CLOCK)


class Work:
    """Counts how often it is begun and ended, and waits to be let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return f"made {self.begun}"


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_thousand_equal_calls_are_made_once() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    calls = [asyncio.create_task(flights.run("k", soon(), work)) for _ in range(1000)]
    await settle()
    work.go.set()
    results = await asyncio.gather(*calls)
    assert work.begun == 1
    assert [led for _, led in results].count(True) == 1
    assert {value for value, _ in results} == {"made 1"}
    assert flights.statistics() == {"under_way": 0, "made": 1, "joined": 999}


async def test_other_keys_do_not_wait() -> None:
    flights: Flights[str, str] = Flights()
    held, free = Work(), Work()
    free.go.set()
    waiting = asyncio.create_task(flights.run("a", soon(), held))
    await settle()
    assert await flights.run("b", soon(), free) == ("made 1", True)
    held.go.set()
    await waiting


async def test_the_work_goes_on_when_the_first_caller_leaves() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    first = asyncio.create_task(flights.run("k", soon(), work))
    await settle()
    second = asyncio.create_task(flights.run("k", soon(), work))
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.go.set()
    assert await second == ("made 1", False)
    assert (work.begun, work.cancelled) == (1, 0)


async def test_the_work_ends_when_the_last_caller_leaves() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    calls = [asyncio.create_task(flights.run("k", soon(), work)) for _ in range(3)]
    await settle()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(flights) == 0
    await settle()
    assert (work.begun, work.cancelled) == (1, 1)
    work.go.set()
    assert await flights.run("k", soon(), work) == ("made 2", True)


async def test_everybody_waits_by_their_own_deadline() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    patient = asyncio.create_task(flights.run("k", soon(), work))
    await settle()
    with pytest.raises(DeadlineExceeded):
        await flights.run("k", soon(0.01), work)
    work.go.set()
    assert await patient == ("made 1", True)


async def test_a_deadline_that_nobody_outlives_ends_the_work() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    with pytest.raises(DeadlineExceeded):
        await flights.run("k", soon(0.01), work)
    await settle()
    assert (len(flights), work.cancelled) == (0, 1)


async def test_a_failure_is_everybodys() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    work.error = EngineError("no")
    calls = [asyncio.create_task(flights.run("k", soon(), work)) for _ in range(3)]
    await settle()
    work.go.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, EngineError) for result in results)
    assert work.begun == 1


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), RateLimited("too much", retry_after_s=1.0)]
)
async def test_what_is_the_first_callers_own_is_not_the_others(error: Exception) -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    work.error = error
    calls = [asyncio.create_task(flights.run("k", soon(), work)) for _ in range(4)]
    await settle()
    work.go.set()
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert first is error
    assert [other[0] for other in others if not isinstance(other, BaseException)] == ["made 2"] * 3
    assert work.begun == 2


async def test_beyond_the_bound_each_makes_its_own() -> None:
    flights: Flights[str, str] = Flights(most=1)
    held, free = Work(), Work()
    free.go.set()
    waiting = asyncio.create_task(flights.run("a", soon(), held))
    await settle()
    assert await flights.run("b", soon(), free) == ("made 1", True)
    assert len(flights) == 1
    await flights.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("turns", range(12))
async def test_leaving_at_any_turn_leaves_nothing(turns: int) -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    calls = [asyncio.create_task(flights.run("k", soon(), work)) for _ in range(3)]
    for turn in range(turns):
        if turn == 6:
            work.go.set()
        await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await settle()
    assert len(flights) == 0


async def test_work_that_is_cancelled_from_within_is_the_leaders_own() -> None:
    flights: Flights[str, str] = Flights()
    begun = 0

    async def make() -> str:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        if begun == 1:
            raise asyncio.CancelledError
        return f"made {begun}"

    calls = [asyncio.create_task(flights.run("k", soon(), make)) for _ in range(3)]
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, Unavailable)
    assert others == [("made 2", True), ("made 2", False)]


async def test_a_deadline_that_is_over_begins_nothing() -> None:
    flights: Flights[str, str] = Flights()
    work = Work()
    with pytest.raises(DeadlineExceeded):
        await flights.run("k", soon(0.0), work)
    await settle()
    assert work.begun == 0


async def test_who_works_alone_has_a_deadline_too() -> None:
    flights: Flights[str, str] = Flights(most=0)
    work = Work()
    with pytest.raises(DeadlineExceeded):
        await flights.run("k", soon(0.01), work)
    assert work.cancelled == 1


async def test_the_end_waits_for_work_that_everybody_left_and_nothing_begins_after_it() -> None:
    flights: Flights[str, None] = Flights()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    over: list[bool] = []

    async def make() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            over.append(True)
            raise EngineError("while it was cleaning up")

    call = asyncio.create_task(flights.run("k", soon(), make))
    await settle()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert len(flights) == 0 and not over
    await flights.close()
    assert over
    with pytest.raises(Unavailable):
        await flights.run("k", soon(), make)
    gc.collect()
    assert told == []


async def test_a_few_that_nobody_waits_for_may_go_on() -> None:
    flights: Flights[str, str] = Flights(linger=1)
    kept, cut = Work(), Work()
    for key, work in (("kept", kept), ("cut", cut)):
        call = asyncio.create_task(flights.run(key, soon(), work))
        await settle()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await settle()
    assert (kept.cancelled, cut.cancelled) == (0, 1)
    # Who comes meanwhile joins it.
    joined = asyncio.create_task(flights.run("kept", soon(), kept))
    await settle()
    kept.go.set()
    assert await joined == ("made 1", False)
    assert len(flights) == 0
    # And there is room for another.
    again = Work()
    call = asyncio.create_task(flights.run("again", soon(), again))
    await settle()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await settle()
    assert again.cancelled == 0
    await flights.close()
    assert again.cancelled == 1
