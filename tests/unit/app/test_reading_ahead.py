"""Term counts are read ahead, index by index; one that fails does not keep the others from it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from forebay.app.indexes import IndexSet
from forebay.app.reading_ahead import AT_ONCE, ReadingAhead
from forebay.app.records import BlockingPool
from forebay.kernel.errors import Unavailable
from forebay.retrieval import KbIndex, search_executor
from forebay.testing.index_feed import MemoryIndexFeed


def index_of(folder: Path, chunks: int) -> KbIndex:
    record = MemoryIndexFeed()
    record.add(*(f"parcel {number}" for number in range(chunks)))
    index = KbIndex.open(folder, "kb", record, writable=True)
    index.maintain(force=True)
    return index


class Damaged:
    def snapshot(self) -> object:
        raise Unavailable("the files cannot be read")


async def test_every_index_that_was_searched_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = 2 * AT_ONCE + 5
    used, unused = (index_of(tmp_path / name, chunks) for name in ("used", "unused"))
    known = {"a": Damaged(), "used": used, "unused": unused}

    def get(kb: str) -> object:
        if kb == "gone":
            raise Unavailable("dropped meanwhile")
        return known[kb]

    indexes = SimpleNamespace(names=lambda: (*known, "gone"), get=get)
    view = used.snapshot().lexical
    view.search(view.parse("parcel 7"), (), 3)
    threads = BlockingPool(search_executor(1))
    with caplog.at_level("INFO"):
        await ReadingAhead(cast(IndexSet, indexes), threads).round()
    facts = [each.snapshot().lexical.base._facts for each in (used, unused)]
    assert [len(each._entries) for each in facts] == [chunks, 0]
    assert "term counts of a are not read ahead now" in caplog.text
    threads.close()
    for each in (used, unused):
        each.close()
