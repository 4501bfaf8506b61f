"""Late interaction ahead of questions: what is ingested is encoded while there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from forebay.app.late import Ahead, open_late
from forebay.app.records import BlockingPool
from forebay.app.runtime import Reading
from forebay.kernel.documents import ChangeSet
from forebay.kernel.errors import ConfigError, Gone
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead
from forebay.retrieval import search_executor
from forebay.testing.embedding import HashEmbedder, HashTokenEncoder
from forebay.testing.index_feed import MemoryIndexFeed
from tests.unit.rerank.heads import write_small_head


class Record(MemoryIndexFeed):
    """A record whose history can be cut."""

    cut = False

    def changes(self, kb: str, since: int) -> ChangeSet:
        if self.cut and since:
            raise Gone("the history was cut")
        return super().changes(kb, since)


class World:
    """One knowledge base and a reranker that reads ahead."""

    def __init__(self, folder: Path, settings: LateSettings) -> None:
        self.record = Record(8)
        self.threads = BlockingPool(search_executor(1))
        self.encoder = HashTokenEncoder()
        head = LateHead(write_small_head(folder, self.encoder.spec))
        self.late = LateReranker(self.encoder, head, settings, self.threads.executor)
        indexes = SimpleNamespace(names=lambda: ("kb",), version=lambda kb: self.record.version)
        reading = SimpleNamespace(indexes=indexes, reader=self.record, threads=self.threads)
        self.ahead = Ahead(cast(Reading, reading), self.late, settings)

    def encoded(self) -> list[str]:
        return [text for call in self.encoder.calls for text in call]


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.threads.close()


async def test_what_came_since_is_encoded_once(tmp_path: Path, worlds: list[World]) -> None:
    worlds.append(world := World(tmp_path, LateSettings(ahead=True)))
    world.record.add("the first text", title="Title")
    world.record.add("第二段文字")
    await world.ahead.look("kb")
    assert sorted(world.encoded()) == ["Title\nthe first text", "第二段文字"]
    await world.ahead.look("kb")
    world.record.add("the third text")
    await world.ahead.look("kb")
    assert world.encoded()[2:] == ["the third text"]
    assert world.late.statistics().entries == 3


async def test_it_ends_where_memory_ends(tmp_path: Path, worlds: list[World]) -> None:
    worlds.append(world := World(tmp_path, LateSettings(ahead=True, cache_bytes=20_000)))
    for number in range(200):
        world.record.add(f"text {number} " + "word " * 10)
    await world.ahead.look("kb")
    assert 0 < len(world.encoded()) < 100
    assert world.late.statistics().size_bytes <= 20_000


async def test_a_history_that_was_cut_is_read_from_its_begin(
    tmp_path: Path, worlds: list[World]
) -> None:
    worlds.append(world := World(tmp_path, LateSettings(ahead=True)))
    world.record.add("one")
    await world.ahead.look("kb")
    world.record.cut = True
    world.record.add("two")
    await world.ahead.round()
    await world.ahead.round()
    assert sorted(world.encoded()) == ["one", "two"]


async def test_an_embedder_without_tokens_is_refused() -> None:
    reading = cast(Reading, SimpleNamespace(embedder=HashEmbedder()))
    with pytest.raises(ConfigError, match="single tokens"):
        async with open_late(LateSettings(), reading):
            raise AssertionError("opened")
