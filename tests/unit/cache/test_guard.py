"""The guard: what does not exist is stopped, what was acknowledged never is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.guard import LEAST_CAPACITY, BloomFilter, NameGuard, Names, filter_of
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.errors import NotFound, Unavailable

DOCUMENTS = 20_000


class Record:
    """Names by the version they came with; ``announced`` may be behind it."""

    def __init__(self, *names: str) -> None:
        self.names: dict[str, int] = dict.fromkeys(names, 1)
        self.version = 1
        self.announced: int | None = 1
        self.reads: list[int] = []
        self.gone = self.busy = False
        self.late: Callable[[], None] | None = None

    def add(self, *names: str, announce: bool = True) -> None:
        self.version += 1
        self.names.update(dict.fromkeys(names, self.version))
        if announce:
            self.announced = self.version

    def since(self, kb: str, version: int) -> Names:
        del kb
        self.reads.append(version)
        if self.gone or self.busy:
            raise NotFound("gone") if self.gone else Unavailable("busy")
        found = tuple(name for name, at in self.names.items() if at > version)
        read = Names(self.version, found)
        if self.late is not None:
            self.late()
        return read


async def at_once(work: Callable[[], None]) -> None:
    await asyncio.sleep(0)
    work()


@asynccontextmanager
async def guarding(record: Record, *, built: bool = True) -> AsyncIterator[NameGuard]:
    guard = NameGuard(lambda kb: record.announced, record.since, at_once)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(guard.run())
        if built:
            assert await asks(guard, "anything")
            await settled()
        yield guard
        running.cancel()


def damaged() -> None:
    raise ValueError("damaged")


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def asks(guard: NameGuard, name: str) -> bool:
    return await guard.may_exist("kb", name, Deadline.after(1.0, VirtualClock()))


@pytest.mark.parametrize("shape", ["{}", "docs/2024/{:06}.md", "文档-{}"])
async def test_of_bogus_ids_992_in_a_thousand_are_stopped_and_no_true_one(shape: str) -> None:
    ids = [shape.format(number) for number in range(DOCUMENTS)]
    record = Record(*ids)
    async with guarding(record) as guard:
        assert all([await asks(guard, one) for one in ids])
        bogus = [shape.format(number) for number in range(DOCUMENTS, 3 * DOCUMENTS)]
        bogus += [one + "x" for one in ids]
        stopped = sum([not await asks(guard, one) for one in bogus])
        assert stopped >= 0.992 * len(bogus)
        assert guard.statistics()["stopped"] == stopped
        assert record.reads == [0]


@pytest.mark.parametrize("rate", [0.05, 0.008, 0.0005])
def test_the_rate_at_capacity_is_the_one_asked_for(rate: float) -> None:
    full = BloomFilter(5000, rate)
    for number in range(5000):
        full.add(f"d{number}")
    wrong = sum(f"b{number}" in full for number in range(100_000)) / 100_000
    assert wrong <= 1.3 * rate + 0.0001
    assert full.size_bytes <= 5000 * 17 / 8


@settings(deadline=None)
@given(st.lists(st.text()), st.lists(st.text()))
def test_no_known_name_is_ever_stopped(before: list[str], later: list[str]) -> None:
    built = filter_of(before, len(before))
    for name in later:
        built.add(name)
    assert all(name in built for name in before + later)


async def test_until_there_is_a_filter_everything_may_exist() -> None:
    async with guarding(Record("a"), built=False) as guard:
        assert await asks(guard, "x")
        await settled()
        assert await asks(guard, "a") and not await asks(guard, "x")


async def test_what_was_announced_is_never_stopped() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.add("b")
        assert await asks(guard, "b")
        record.add("c", announce=False)  # committed, not acknowledged: nobody can rely on it yet
        await asks(guard, "c")
        record.announced = record.version
        assert await asks(guard, "c")


async def test_what_comes_while_it_reads_is_read_next_time() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.late = lambda: record.add("late") if "late" not in record.names else None
        record.add("b")
        assert not await asks(guard, "late")  # it began before that was announced
        assert await asks(guard, "late")


async def test_one_reads_for_all_and_once_for_a_version() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.add("b")
        asked = await asyncio.gather(*(asks(guard, f"bogus {n}") for n in range(100)))
        assert not any(asked)
        assert not await asks(guard, "bogus")
        assert record.reads == [0, 1]
        assert guard.statistics()["read"] == 1


async def test_a_name_that_is_known_needs_no_catching_up() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.add("b")
        assert await asks(guard, "a")
        assert record.reads == [0]


async def test_the_record_is_asked_when_it_cannot_be_read() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.add("b")
        record.busy = True
        assert await asks(guard, "x") and await asks(guard, "b")
        record.busy, record.announced = False, None
        assert await asks(guard, "x")


async def test_names_that_cannot_be_read_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    record = Record("a")
    async with guarding(record, built=False) as guard:
        record.late = damaged
        assert await asks(guard, "x")
        await settled()
        assert "damaged" in caplog.text
        record.late = None
        assert await asks(guard, "x")
        await settled()
        assert not await asks(guard, "x")


async def test_a_kb_that_is_gone_is_forgotten_and_begins_anew() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        record.add("b")
        record.gone = True
        assert await asks(guard, "x")
        assert guard.statistics()["bytes"] == 0
        record.gone = False
        assert await asks(guard, "x")
        await settled()
        assert not await asks(guard, "x") and await asks(guard, "b")


async def test_a_crowded_filter_is_built_anew() -> None:
    record = Record("a")
    async with guarding(record) as guard:
        before = guard.statistics()["bytes"]
        record.add(*(f"n{number}" for number in range(2 * LEAST_CAPACITY)))
        assert await asks(guard, "n1")
        await asks(guard, "bogus")
        await settled()
        assert guard.statistics()["bytes"] > 2 * before
        assert not await asks(guard, "bogus") and await asks(guard, "n2")


async def test_nobody_waits_beyond_his_deadline() -> None:
    record = Record("a")
    held = asyncio.Event()

    async def slowly(work: Callable[[], None]) -> None:
        await held.wait()
        work()

    async with guarding(record) as guard:
        guard._run_blocking = slowly
        record.add("b")
        soon = Deadline.after(0.0, VirtualClock())
        assert await guard.may_exist("kb", "b", soon)
        held.set()
        assert not await asks(guard, "x")


@pytest.mark.parametrize(("capacity", "rate"), [(0, 0.1), (1, 0.0), (1, 1.0)])
def test_a_filter_of_nothing_is_refused(capacity: int, rate: float) -> None:
    with pytest.raises(ValueError, match="filter"):
        BloomFilter(capacity, rate)
