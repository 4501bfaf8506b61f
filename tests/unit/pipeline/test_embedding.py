"""Background embedding: everything gets a vector, in grouped commits, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import ChunkRow, Vectors
from forebay.kernel.errors import EngineError, EngineRefused
from forebay.kernel.stages import EmbedderSpec
from forebay.pipeline.embedding import (
    BackgroundEmbeddingSettings,
    EmbeddingFeeder,
    FeederParts,
    passage_text,
)


def row(chunk_id: int, text: str = "text", document_id: str = "doc") -> ChunkRow:
    return ChunkRow(
        chunk_id, document_id, 0, 0, len(text), text, "", 1, None, (), "", "", "en", (), (), {}, 1
    )


class Record:
    def __init__(self, rows: Sequence[ChunkRow]) -> None:
        self.rows = list(rows)
        self.stored: dict[int, bytes] = {}
        self.commits = 0

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> Sequence[ChunkRow]:
        rows = [r for r in self.rows if document_id in (None, r.document_id)]
        return [r for r in rows if r.chunk_id not in self.stored][:limit]

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int:
        size = vectors.dimensions * 4
        for position, chunk_id in enumerate(vectors.ids):
            self.stored[chunk_id] = vectors.data[position * size : (position + 1) * size]
        self.commits += 1
        return self.commits

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()


class Embedder:
    """One float per text: its length; refuses or fails on demand."""

    spec = EmbedderSpec("fake", "fake:1", 1, 512)

    def __init__(self) -> None:
        self.failures = 0
        self.fails_for: set[str] = set()
        self.refuses = False
        self.seen: list[str] = []

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise EngineError("the embedding service is down.")
        if not self.fails_for.isdisjoint(texts):
            raise EngineError("the embedding service failed.")
        if "poison" in texts or self.refuses:
            raise EngineRefused("refused", status=400)
        import struct

        self.seen += texts
        data = b"".join(struct.pack("<f", float(len(text))) for text in texts)
        return Vectors(tuple(range(len(texts))), 1, data)


@asynccontextmanager
async def feeding(record: Record, embedder: Embedder) -> AsyncIterator[EmbeddingFeeder]:
    parts = FeederParts(record, embedder, lambda kb: record.commits, record.run, SystemClock())
    settings = BackgroundEmbeddingSettings(
        flush_interval_s=0.01, batch_size=4, lanes=3, max_retry_s=0.1
    )
    feeder = EmbeddingFeeder("kb", parts, settings)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feeder.run())
        yield feeder
        task.cancel()


async def reach(feeder: EmbeddingFeeder, record: Record, count: int) -> None:
    async def reached() -> bool:
        return len(record.stored) >= count

    async with asyncio.timeout(10):
        await feeder.wait_until(reached)


async def test_every_chunk_gets_its_own_vector() -> None:
    import struct

    record = Record([row(i, "x" * (i + 1)) for i in range(100)])
    async with feeding(record, Embedder()) as feeder:
        await reach(feeder, record, 100)
    assert {i: struct.unpack("<f", data)[0] for i, data in record.stored.items()} == {
        i: float(i + 1) for i in range(100)
    }


async def test_new_chunks_after_idleness_are_found_by_a_kick() -> None:
    record = Record([row(1)])
    async with feeding(record, Embedder()) as feeder:
        await reach(feeder, record, 1)
        record.rows.append(row(2))
        feeder.kick()
        await reach(feeder, record, 2)


async def test_a_refused_chunk_does_not_take_its_neighbours_along() -> None:
    record = Record([row(1), row(2, "poison"), row(3), row(4)])
    async with feeding(record, Embedder()) as feeder:
        await reach(feeder, record, 3)
        assert feeder.statistics()["refused"] == 1
    assert set(record.stored) == {1, 3, 4}


async def test_a_passing_failure_loses_nothing() -> None:
    record = Record([row(i) for i in range(8)])
    embedder = Embedder()
    embedder.failures = 1
    async with feeding(record, embedder) as feeder:
        await reach(feeder, record, 8)
        assert feeder.error is None


async def test_chunks_that_the_embedder_fails_for_keep_no_other_back() -> None:
    # In every batch there is one, more of them than there are lanes.
    rows = [row(i, f"bad {i}" if i % 3 == 0 else "good") for i in range(30)]
    record = Record(rows)
    embedder = Embedder()
    embedder.fails_for = {one.text for one in rows if one.text != "good"}
    async with feeding(record, embedder) as feeder:
        await reach(feeder, record, 20)
        assert feeder.statistics()["failing"] == 10 and feeder.error is not None
        record.rows.append(row(100, "new"))
        feeder.kick()
        await reach(feeder, record, 21)
        # What fails now may not always, and what is gone is not waited for.
        embedder.fails_for = {"bad 0"}
        await reach(feeder, record, 30)
        record.rows = [one for one in record.rows if one.text != "bad 0"]
        async with asyncio.timeout(10):
            while feeder.statistics()["failing"]:
                await asyncio.sleep(0.01)


async def test_an_endpoint_that_refuses_everything_for_a_while_has_refused_no_chunk() -> None:
    record = Record([row(i) for i in range(8)])
    embedder = Embedder()
    embedder.refuses = True
    async with feeding(record, embedder) as feeder:
        async with asyncio.timeout(10):
            while feeder.error is None:
                await asyncio.sleep(0.01)
        embedder.refuses = False
        await reach(feeder, record, 8)
        assert feeder.statistics()["refused"] == 0


async def test_a_document_that_is_waited_for_comes_before_all_that_waits() -> None:
    record = Record([row(at) for at in range(2_000)])
    embedder = Embedder()
    async with feeding(record, embedder) as feeder:
        await reach(feeder, record, 4)
        own = range(5_000, 5_040)
        record.rows += [row(at, "own", "own") for at in own]
        before = len(embedder.seen)

        async def reached() -> bool:
            return record.stored.keys() >= set(own)

        async with asyncio.timeout(10):
            await feeder.wait_for("own", reached)
        last = max(at for at, text in enumerate(embedder.seen) if text == "own")
        # Beside its own those that were in work already, or came while it was looked up.
        assert last < before + 40 + 100, "nobody waits for the documents of others"
        await reach(feeder, record, 2_040)
    assert len(record.stored) == len(embedder.seen) == 2_040


async def test_who_waits_for_a_document_that_is_refused_is_told_at_once() -> None:
    record = Record([row(1, document_id="own"), row(2, "poison", "own"), row(3)])

    async def reached() -> bool:
        return record.stored.keys() >= {1, 2}

    async with feeding(record, Embedder()) as feeder, asyncio.timeout(10):
        await feeder.wait_for("own", reached)
        await feeder.wait_for("own", reached)
    assert 1 in record.stored and 2 not in record.stored


async def test_a_document_may_be_waited_for_by_many() -> None:
    record = Record([row(at, document_id=f"d{at % 7}") for at in range(700)])
    embedder = Embedder()
    embedder.failures = 2

    def of(document_id: str) -> Callable[[], Awaitable[bool]]:
        wanted = {one.chunk_id for one in record.rows if one.document_id == document_id}

        async def reached() -> bool:
            return record.stored.keys() >= wanted

        return reached

    async with feeding(record, embedder) as feeder, asyncio.timeout(20):
        names = [f"d{at % 7}" for at in range(14)]
        await asyncio.gather(*(feeder.wait_for(name, of(name)) for name in names))
    assert len(record.stored) == 700


def test_a_passage_carries_title_headings_and_table_header_once() -> None:
    chunk = ChunkRow(
        1, "d", 0, 0, 1, "A | 1", "name | price", 1, None, ("T", "Prices"), "T", "s", "en", (), (),
        {}, 1,
    )  # fmt: skip
    assert passage_text(chunk) == "T > Prices\nname | price\nA | 1"
