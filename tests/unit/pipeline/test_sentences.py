"""Sentences get their vectors after everything else, whatever fails, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineError, EngineRefused, NotFound
from forebay.kernel.sentences import LackingSentences, SentenceText
from forebay.kernel.stages import EmbedderSpec
from forebay.pipeline import sentences
from forebay.pipeline.sentences import SentenceFeeder, SentenceParts, SentenceSettings


class Record:
    """Chunks by id; odd ones have nothing to embed."""

    def __init__(self, count: int) -> None:
        self.texts: dict[int, tuple[str, ...]] = {
            at: (f"sentence {at}", "二") for at in range(1, count + 1)
        }
        self.kept: dict[int, int] = {}
        self.gone = False
        self.changed = asyncio.Event()

    def lacking(self, kb: str, after: tuple[int, int], limit: int) -> LackingSentences:
        if self.gone:
            raise NotFound("there is no such knowledge base.")
        rest = [at for at in self.texts if at > after[1] and at not in self.kept][:limit]
        texts = tuple(SentenceText(at, self.texts[at]) for at in rest if at % 2 == 0)
        return LackingSentences(texts, (1, rest[-1]) if rest else after, len(self.kept))

    def keep(self, kb: str, made: Mapping[int, tuple[SentenceText, Vectors]]) -> int:
        self.kept |= {at: len(vectors.ids) for at, (_, vectors) in made.items()}
        self.changed.set()
        return len(made)

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.kept) < count:
                self.changed.clear()
                await self.changed.wait()


class Embedder:
    """Fails so many times or over one text, and refuses some texts."""

    spec = EmbedderSpec("fake", "fake:1", 1, 512)

    def __init__(self, failures: int = 0, refused: str = "", breaks_over: str = "") -> None:
        self.failures = failures
        self.breaks_over = breaks_over
        self.refused = refused
        self.asked = 0

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        assert kind == "passage"
        self.asked += 1
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise EngineError("the embedding service is down.")
        if self.breaks_over in texts:
            raise EngineError("the embedding service answered with status 500.")
        if self.refused in texts:
            raise EngineRefused("refused", status=400)
        return Vectors(tuple(range(len(texts))), 1, bytes(4 * len(texts)))


@asynccontextmanager
async def feeding(
    record: Record,
    embedder: Embedder,
    rested: asyncio.Event | None = None,
    **settings: Any,
) -> AsyncIterator[SentenceFeeder]:
    async def rest() -> None:
        if rested is not None:
            await rested.wait()

    parts = SentenceParts(record, embedder, record.run, rest)
    feeder = SentenceFeeder("kb", parts, SentenceSettings(**settings))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feeder.run())
        yield feeder
        task.cancel()


async def test_every_chunk_that_needs_them_gets_them() -> None:
    record = Record(80)
    async with feeding(record, Embedder()) as feeder:
        await record.until(40)
        assert feeder.made == 40
    assert record.kept == dict.fromkeys(range(2, 81, 2), 2)


async def test_chunks_own_vectors_come_first() -> None:
    record, embedder, rested = Record(4), Embedder(), asyncio.Event()
    async with feeding(record, embedder, rested):
        for _ in range(20):
            await asyncio.sleep(0)
        assert embedder.asked == 0
        rested.set()
        await record.until(2)


async def test_new_chunks_are_found_by_a_kick() -> None:
    record = Record(2)
    async with feeding(record, Embedder()) as feeder:
        await record.until(1)
        record.texts[4] = ("new",)
        feeder.kick()
        await record.until(2)
    assert record.kept == {2: 2, 4: 1}


async def test_it_tells_when_nothing_is_lacking() -> None:
    record, rested = Record(40), asyncio.Event()
    async with feeding(record, Embedder(), rested) as feeder, asyncio.timeout(10):
        waiting = asyncio.ensure_future(feeder.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
        rested.set()
        await waiting
        assert len(record.kept) == 20
        record.texts[42] = ("later",)
        feeder.kick()
        await feeder.settled()
        assert 42 in record.kept


async def test_what_was_kept_is_not_made_again_after_a_restart() -> None:
    record = Record(40)
    async with feeding(record, Embedder()):
        await record.until(20)
    record.texts |= {42: ("later",)}
    embedder = Embedder()
    async with feeding(record, embedder):
        await record.until(21)
    assert embedder.asked == 1


async def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "_FIRST_RETRY_S", 0.01)
    record = Record(6)
    async with feeding(record, Embedder(failures=2), max_retry_s=0.01):
        await record.until(3)


async def test_a_chunk_that_always_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "_FIRST_RETRY_S", 0.01)
    record = Record(80)
    async with feeding(record, Embedder(breaks_over="sentence 4"), max_retry_s=0.01) as feeder:
        async with asyncio.timeout(10):
            await feeder.settled()
    assert set(record.kept) == {2, *range(6, 81, 2)}


async def test_an_outage_costs_no_chunk_its_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "_FIRST_RETRY_S", 0.01)
    record = Record(6)
    # The same chunk fails three times, and so does what an embedder that works can do.
    async with feeding(record, Embedder(failures=6), max_retry_s=0.01) as feeder:
        async with asyncio.timeout(10):
            await feeder.settled()
    assert set(record.kept) == {2, 4, 6}


async def test_a_refused_chunk_does_without() -> None:
    record = Record(6)
    async with feeding(record, Embedder(refused="sentence 4")):
        await record.until(2)
    assert set(record.kept) == {2, 6}


async def test_a_bound_on_chunks_holds() -> None:
    record, embedder = Record(200), Embedder()
    async with feeding(record, embedder, max_chunks=10) as feeder:
        await record.until(10)
        feeder.kick()
        for _ in range(50):
            await asyncio.sleep(0)
    assert len(record.kept) == 10 == embedder.asked


async def test_it_ends_with_its_knowledge_base() -> None:
    record = Record(2)
    record.gone = True
    parts = SentenceParts(record, Embedder(), record.run, lambda: asyncio.sleep(0))
    async with asyncio.timeout(10):
        await SentenceFeeder("kb", parts, SentenceSettings()).run()
