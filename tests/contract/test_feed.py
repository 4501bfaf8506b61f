"""The record in memory and the one on disk keep the same rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from forebay.kernel.documents import ChangeSet, ChunkRow, KbInfo, Vectors
from forebay.store import StoreWriter
from forebay.testing.feed_suite import FeedConformance, FeedRecord
from forebay.testing.store import MemoryFeed


class DiskFeed(StoreWriter):
    """The writer with its reader's calls beside it."""

    def prune(self, kb: str, oldest_needed: int) -> None:
        self.maintain({kb: oldest_needed})

    def kb(self, name: str) -> KbInfo:
        return self.reader.kb(name)

    def changes(self, kb: str, since: int) -> ChangeSet:
        return self.reader.changes(kb, since)

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        return self.reader.rows(kb, chunk_ids)

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors:
        return self.reader.vectors(kb, chunk_ids)


class TestMemory(FeedConformance):
    @pytest.fixture
    def record(self) -> FeedRecord:
        return MemoryFeed()


class TestDisk(FeedConformance):
    @pytest.fixture
    def record(self, tmp_path: Path) -> Iterator[FeedRecord]:
        disk = DiskFeed(tmp_path)
        yield disk
        assert disk.reader.check() == ()
        disk.close()
