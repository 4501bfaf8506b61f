"""A search that a change overtakes: the record has it, the index does not show it yet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import Retriever, SearchRequest
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    MeaningRetriever,
    RetrievalSettings,
    WordsRetriever,
    search_executor,
    searching,
)
from forebay.retrieval.index import Snapshot
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

OLD, NEW = "The spare pump runs at 1450 rpm.", "The spare pump runs at 1600 rpm."
OTHER = "Invoices are sent by email at the end of each month."
PATIENT = RetrievalSettings(
    early_exit_confidence=2.0, vector_timeout_ms=10_000, words_timeout_ms=10_000
)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


class Library:
    """An index that is asked for, and may be brought up to the record then."""

    def __init__(self, folder: Path) -> None:
        self.embedder = HashEmbedder(64)
        self.record = MemoryIndexFeed(64)
        self.index = KbIndex.open(
            folder,
            "kb",
            self.record,
            writable=True,
            fingerprint=lambda: self.embedder.spec.fingerprint,
        )
        self.asked = 0
        self.shown_at = 0

    async def add(self, *texts: str) -> list[int]:
        ids = self.record.add(*texts)
        vectors = await self.embedder.embed(texts, kind="passage")
        rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
        self.record.embed(dict(zip(ids, rows, strict=True)))
        return ids

    def get(self, _: str) -> KbIndex:
        """The index; brought up to the record when asked for the ``shown_at``-th time."""
        self.asked += 1
        if self.asked == self.shown_at:
            self.index.refresh()
        return self.index

    def retriever(self, kind: str, pool: ThreadPoolExecutor) -> Retriever:
        if kind == "words":
            return WordsRetriever(self.get, PATIENT, pool, chosen=True)
        if kind == "meaning":
            return MeaningRetriever(self.get, self.embedder, PATIENT, pool)
        return HybridRetriever(self.get, self.embedder, PATIENT, pool)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    made = Library(tmp_path)
    yield made
    made.index.close()


def context(within_s: float = 20.0) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(within_s, clock), clock=clock
    )


ASK = SearchRequest(kb="kb", query="how fast does the spare pump run", top_k=1)


@pytest.mark.parametrize("kind", ["both", "words", "meaning"])
async def test_what_replaced_a_hit_is_found(
    library: Library, pool: ThreadPoolExecutor, kind: str
) -> None:
    [old, _] = await library.add(OLD, OTHER)
    library.index.refresh()
    library.record.remove(old)
    [new] = await library.add(NEW)
    library.shown_at = 2
    ctx = context()
    result = await library.retriever(kind, pool).retrieve(ctx, ASK)
    assert [hit.chunk.chunk_id for hit in result.hits] == [new]
    assert result.kb_version == ctx.kb_version == library.index.snapshot().version
    assert not ctx.degradations


@pytest.mark.parametrize("kind", ["both", "words", "meaning"])
async def test_what_never_shows_is_waited_for_once_and_kept_by_nobody(
    library: Library, pool: ThreadPoolExecutor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_SHOWN_WITHIN_S", 0.0)
    [old, other] = await library.add(OLD, OTHER)
    library.index.refresh()
    library.record.remove(old)
    retriever = library.retriever(kind, pool)
    for _ in range(2):
        result = await retriever.retrieve(context(), ASK)
        assert [hit.chunk.chunk_id for hit in result.hits] in ([], [other])
        assert result.evidence is None
        # From now on only what was found to be in vain keeps a search from waiting.
        monkeypatch.setattr(searching, "_SHOWN_WITHIN_S", 1e9)


async def test_who_is_in_a_hurry_does_not_end_the_wait_of_others(
    library: Library, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    [old, _] = await library.add(OLD, OTHER)
    library.index.refresh()
    library.record.remove(old)
    [new] = await library.add(NEW)
    retriever = library.retriever("words", pool)
    hurried = await retriever.retrieve(context(within_s=0.2), ASK)
    assert new not in [hit.chunk.chunk_id for hit in hurried.hits]
    looks, look = count(1), library.index.snapshot

    def late() -> Snapshot:
        # Entered, and looked for a first time.
        if next(looks) == 3:
            library.index.refresh()
        return look()

    monkeypatch.setattr(library.index, "snapshot", late)
    result = await retriever.retrieve(context(), ASK)
    assert [hit.chunk.chunk_id for hit in result.hits] == [new]
