"""Grouped commits: one version per batch, own outcome per caller, bounded, cancellable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.documents import CommitReceipt, DocumentDraft, Outcome
from forebay.kernel.errors import DeadlineExceeded, Overloaded, StoreError, StoreFull, Unavailable
from forebay.pipeline.writer import CommitQueue, WriterSettings


def draft(document_id: str) -> DocumentDraft:
    return DocumentDraft(document_id, document_id, "hash", "", "text", ())


class Record:
    """Commits into a list; can be told to fail and to wait."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.poison: str | None = None
        self.full = False
        self.gate = asyncio.Event()
        self.gate.set()

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        if self.full:
            raise StoreFull("the disk is full; free some space.")
        ids = [put.document_id for put in puts]
        if self.poison in ids:
            raise StoreError("this document cannot be stored.")
        self.batches.append([*ids, *removes])
        outcomes: list[tuple[str, Outcome]] = [(name, "indexed") for name in ids]
        outcomes += [(name, "removed") for name in removes]
        return CommitReceipt(kb, len(self.batches), tuple(outcomes))

    def refresh(self, kb: str) -> int:
        return len(self.batches)

    async def run(self, work: Callable[[], CommitReceipt]) -> CommitReceipt:
        await self.gate.wait()
        return work()


@asynccontextmanager
async def running(record: Record, **settings: int) -> AsyncIterator[CommitQueue]:
    queue = CommitQueue(record, record, record.run, WriterSettings(**settings))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(queue.run())
        await asyncio.sleep(0)
        yield queue
        task.cancel()


def soon() -> Deadline:
    return Deadline.after(5, SystemClock())


async def test_concurrent_changes_share_commits_and_get_their_own_outcome() -> None:
    record = Record()
    async with running(record) as queue:
        record.gate.clear()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(queue.put("kb", draft(f"d{i}"), soon())) for i in range(20)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            record.gate.set()
        receipts = [task.result() for task in tasks]
    assert len(record.batches) <= 2
    assert [receipt.outcomes for receipt in receipts] == [
        ((f"d{i}", "indexed"),) for i in range(20)
    ]


async def test_two_changes_of_one_document_keep_their_order_in_two_commits() -> None:
    record = Record()
    async with running(record) as queue:
        record.gate.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.put("kb", draft("first"), soon()))
            await asyncio.sleep(0)
            group.create_task(queue.put("kb", draft("same"), soon()))
            await asyncio.sleep(0)
            group.create_task(queue.remove("kb", "same", soon()))
            await asyncio.sleep(0)
            record.gate.set()
    assert record.batches[-1] == ["same"]
    assert ["same"] in record.batches[:-1] or ["first", "same"] in record.batches[:-1]


async def test_a_bad_document_fails_alone() -> None:
    record = Record()
    record.poison = "bad"
    async with running(record) as queue:
        record.gate.clear()
        results = asyncio.gather(
            *(queue.put("kb", draft(name), soon()) for name in ("a", "bad", "c")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        record.gate.set()
        good, bad, also_good = await results
    assert isinstance(bad, StoreError)
    assert isinstance(good, CommitReceipt)
    assert isinstance(also_good, CommitReceipt)


async def test_a_full_disk_is_said_to_every_caller_and_the_writer_goes_on() -> None:
    record = Record()
    record.full = True
    async with running(record) as queue:
        with pytest.raises(StoreFull):
            await queue.put("kb", draft("a"), soon())
        record.full = False
        assert (await queue.put("kb", draft("a"), soon())).outcomes == (("a", "indexed"),)


async def test_the_queue_is_bounded() -> None:
    record = Record()
    record.gate.clear()
    async with running(record, max_queue=2, max_batch=1) as queue, asyncio.TaskGroup() as group:
        for name in ("held", "one", "two"):
            group.create_task(queue.put("kb", draft(name), soon()))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await queue.put("kb", draft("three"), soon())
        record.gate.set()


async def test_a_change_that_waits_past_its_deadline_says_so() -> None:
    record = Record()
    record.gate.clear()
    async with running(record) as queue:
        with pytest.raises(DeadlineExceeded):
            await queue.put("kb", draft("late"), Deadline.after(0.01, SystemClock()))
        record.gate.set()


async def test_after_the_end_changes_are_refused() -> None:
    record = Record()
    async with running(record) as queue:
        pass
    with pytest.raises(Unavailable):
        await queue.put("kb", draft("a"), soon())


class Machines:
    """Others that answer from ``shared``: changes wait for ``know``, or are refused."""

    def __init__(self) -> None:
        self.know = asyncio.Event()
        self.away = False

    async def settled(self) -> None:
        await self.know.wait()
        if self.away:
            raise Unavailable("another became the writer.")

    @asynccontextmanager
    async def changing(self, kb: str) -> AsyncIterator[Machines | None]:
        if self.away:
            raise Unavailable("the others cannot be told.")
        yield self if kb == "shared" else None


@asynccontextmanager
async def among(record: Record, machines: Machines) -> AsyncIterator[CommitQueue]:
    queue = CommitQueue(record, record, record.run, WriterSettings(), machines.changing)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(queue.run())
        await asyncio.sleep(0)
        yield queue
        task.cancel()


async def test_a_change_is_acknowledged_when_the_others_know_and_holds_up_no_other() -> None:
    record, machines = Record(), Machines()
    async with among(record, machines) as queue, asyncio.TaskGroup() as group:
        shared = [group.create_task(queue.put("shared", draft(f"s{i}"), soon())) for i in range(3)]
        await asyncio.sleep(0)
        assert (await queue.put("own", draft("o"), soon())).outcomes == (("o", "indexed"),)
        again = group.create_task(queue.put("shared", draft("s9"), soon()))
        await queue.put("own", draft("p"), soon())
        assert len(record.batches) == 4, "all are committed"
        assert not any(task.done() for task in (*shared, again))
        machines.know.set()
        assert [(await task).outcomes for task in shared] == [
            ((f"s{i}", "indexed"),) for i in range(3)
        ]
        await again


async def test_without_the_others_nothing_is_committed() -> None:
    record, machines = Record(), Machines()
    machines.away = True
    async with among(record, machines) as queue, asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(refused(queue, name))
    assert record.batches == []


async def test_what_is_not_in_force_is_refused_and_the_queue_goes_on() -> None:
    record, machines = Record(), Machines()
    async with among(record, machines) as queue, asyncio.TaskGroup() as group:
        lost = group.create_task(refused(queue, "a"))
        await asyncio.sleep(0)
        assert (await queue.put("own", draft("o"), soon())).outcomes == (("o", "indexed"),)
        machines.away = True
        machines.know.set()
        await lost
        machines.away = False
        assert (await queue.put("own", draft("p"), soon())).outcomes == (("p", "indexed"),)
    assert len(record.batches) == 3


async def refused(queue: CommitQueue, name: str) -> None:
    with pytest.raises(Unavailable):
        await queue.put("shared", draft(name), soon())


@pytest.mark.parametrize("steps", range(8))
async def test_a_writer_that_ends_leaves_nobody_waiting(steps: int) -> None:
    record, machines = Record(), Machines()
    async with among(record, machines) as queue:
        asked = [
            asyncio.ensure_future(queue.put("shared", draft(f"s{i}"), soon())) for i in range(3)
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
    async with asyncio.timeout(2):
        for each in asked:
            with suppress(Unavailable, asyncio.CancelledError):
                await each
    assert all(each.done() for each in asked)
