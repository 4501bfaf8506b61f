"""What a process may serve: a writer and a reader over one folder, and the races between them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from timeit import timeit
from typing import NamedTuple, cast

import msgspec
import pytest

from forebay.app.indexes import IndexSet
from forebay.app.runtime import Process, open_process
from forebay.app.serving_versions import ProcessVersions
from forebay.app.settings import Settings, StoreSettings
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.caching import Served
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.errors import DeadlineExceeded, NotFound
from forebay.pipeline.messages import Upload
from forebay.store import StoreReader
from forebay.store.announced import Announced

NEVER_MS = 500


class Pair(NamedTuple):
    writer: Process
    reader: Process

    async def put(self, kb: str, name: str) -> int:
        assert self.writer.writing is not None
        upload = Upload(f"{name}.md", f"# {name}\n".encode(), f"{name}.md")
        return (await self.writer.writing.put(kb, upload, "committed", soon())).version


def soon(seconds: float = 5.0) -> Deadline:
    return Deadline.after(seconds, SystemClock())


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    settings = Settings(
        store=StoreSettings(path=str(tmp_path / "store"), poll_ms=NEVER_MS),
        embedding=EmbeddingSettings(backend="none"),
    )
    async with open_process(settings, write=True) as writer:
        assert writer.writing is not None
        await writer.writing.ensure("kb")
        async with open_process(settings, write=False) as reader:
            yield Pair(writer, reader)


async def served(process: Process, kb: str) -> Served:
    versions = process.reading.versions
    return versions.current(kb) or await versions.renew(kb, soon())


async def test_each_change_is_served_at_once_by_both(pair: Pair) -> None:
    for number in range(5):
        version = await pair.put("kb", f"d{number}")
        assert pair.writer.reading.versions.current("kb") == Served(version)
        # The reader has not looked yet, and knows that.
        assert pair.reader.reading.versions.current("kb") is None
        assert await served(pair.reader, "kb") == Served(version)
        assert pair.reader.reading.versions.current("kb") == Served(version)


async def test_a_change_of_one_kb_does_not_hold_up_another(pair: Pair) -> None:
    await pair.put("other", "d")
    await served(pair.reader, "other")
    await pair.put("kb", "d")
    assert pair.reader.reading.versions.current("other") is not None


async def test_a_new_kb_is_served_at_once_and_a_dropped_one_no_more(pair: Pair) -> None:
    writing = pair.writer.writing
    assert writing is not None
    await served(pair.reader, "kb")
    for _ in range(3):
        version = await pair.put("new", "d")
        assert await served(pair.reader, "new") == Served(version)
        await writing.drop("new")
        for process in pair:
            assert process.reading.versions.current("new") is None
            with pytest.raises(NotFound):
                await served(process, "new")
    # Its slot goes to another name while the reader has the old index open.
    await pair.put("new", "d")
    await served(pair.reader, "new")
    await writing.drop("new")
    version = await pair.put("other", "d")
    assert pair.reader.reading.versions.current("new") is None
    assert await served(pair.reader, "other") == Served(version)


async def test_a_kb_made_anew_is_another_for_a_reader_that_missed_the_drop(pair: Pair) -> None:
    writing = pair.writer.writing
    assert writing is not None
    await pair.put("kb", "first")
    old = await served(pair.reader, "kb")
    await writing.drop("kb")
    version = await pair.put("kb", "second")
    assert version > old.version
    assert await served(pair.reader, "kb") == Served(version)
    reading = pair.reader.reading
    lexical = reading.indexes.get("kb").snapshot().lexical
    assert lexical.chunks == 1


async def test_unknown_names_are_unknown_and_leave_nothing_behind(pair: Pair) -> None:
    versions = pair.reader.reading.versions
    for number in range(50):
        with pytest.raises(NotFound):
            await versions.renew(f"nothing{number}", soon())
    assert len(versions._turns) <= 1, "the one in the last traceback"


async def test_one_brings_the_index_up_for_all(pair: Pair) -> None:
    await served(pair.reader, "kb")
    versions, calls = pair.reader.reading.versions, 0
    run = versions._run

    async def counted(work: Callable[[], int | None]) -> int | None:
        nonlocal calls
        calls += 1
        return await run(work)

    versions._run = counted
    version = await pair.put("kb", "d")
    found = await asyncio.gather(*(versions.renew("kb", soon()) for _ in range(100)))
    assert set(map(msgspec.structs.astuple, found)) == {(version, True)}
    assert calls == 1


async def test_who_leaves_hands_over(pair: Pair) -> None:
    await served(pair.reader, "kb")
    version = await pair.put("kb", "d")
    versions = pair.reader.reading.versions
    for give_up_after in range(4):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(versions.renew("kb", soon()))
            second = group.create_task(versions.renew("kb", soon()))
            for _ in range(give_up_after):
                await asyncio.sleep(0)
            first.cancel()
        assert second.result() == Served(version)


class Index:
    """An index that shows what it is told to."""

    def __init__(self, shown: int) -> None:
        self.shown = self.searched = shown

    def version(self, _kb: str) -> int:
        return self.searched

    def refresh(self, _kb: str) -> int:
        self.searched = self.shown
        return self.shown

    def drop(self, _kb: str) -> None:
        self.searched = 0


class Record:
    def __init__(self, version: int) -> None:
        self.version = version

    def versions(self) -> dict[str, int]:
        return {"kb": self.version}


class Staged(NamedTuple):
    table: Announced
    shows: Index
    record: Record
    versions: ProcessVersions


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    table, index, record = Announced(tmp_path, writable=True), Index(4), Record(4)

    async def run(work: Callable[[], int | None]) -> int | None:
        await asyncio.sleep(0)
        return work()

    versions = ProcessVersions(cast("IndexSet", index), table, cast("StoreReader", record), run)
    table.announce("kb", 4)
    return Staged(table, index, record, versions)


async def test_what_is_in_the_record_but_not_announced_keeps_nobody_waiting(
    staged: Staged,
) -> None:
    staged.record.version = 5  # its writer died before it could show and announce this
    assert staged.versions.current("kb") == Served(4)
    assert await staged.versions.renew("kb", soon()) == Served(4)


async def test_what_is_announced_is_waited_for(staged: Staged) -> None:
    staged.record.version = 6
    staged.table.announce("kb", 5)
    assert staged.versions.current("kb") is None
    with pytest.raises(DeadlineExceeded):
        await staged.versions.renew("kb", soon(0.03))
    waiting = asyncio.ensure_future(staged.versions.renew("kb", soon()))
    await asyncio.sleep(0)
    staged.shows.shown = 5
    assert await waiting == Served(5)


async def test_a_table_ahead_of_the_record_is_not_believed(staged: Staged) -> None:
    staged.table.announce("kb", 9)  # a power loss took the last commits
    assert await staged.versions.renew("kb", soon()) == Served(4)


async def test_looking_takes_a_fraction_of_a_microsecond(staged: Staged) -> None:
    rounds = 20_000
    took = min(timeit(lambda: staged.versions.current("kb"), number=rounds) for _ in range(5))
    # A coverage run counts every line, and that is not what a query pays.
    assert took / rounds < (8e-6 if sys.gettrace() is not None else 2e-6)
