"""A knowledge base of which only some chunks have a vector: flagged, kept by nobody, all found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Coverage, Degradation, Principal, RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.retrieval.spread import hit_spread
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

EMBEDDED = (
    "Parcels may be returned within thirty days of delivery.",
    "会议室需要提前一天预订。",
    "Invoices are sent by email at the end of each month.",
)
BARE = (
    "The boiler is serviced once a year by a technician.",
    "退货需要在收到商品后七天内申请。",
)
BOTH = RetrievalSettings(early_exit_confidence=2.0)
FLAG = Degradation("retrieval", "vector+bm25", "partly_embedded")


class Half:
    """Three texts with a vector and two without."""

    def __init__(self, folder: Path) -> None:
        self.embedder = HashEmbedder(64)
        self.record = MemoryIndexFeed(64)
        self.ids = self.record.add(*EMBEDDED, *BARE)
        self.index = KbIndex.open(
            folder,
            "kb",
            self.record,
            writable=True,
            fingerprint=lambda: self.embedder.spec.fingerprint,
        )
        self._pool = search_executor(1)

    async def embed(self, first: int, last: int) -> None:
        texts = (*EMBEDDED, *BARE)[first:last]
        made = await self.embedder.embed(texts, kind="passage")
        rows = np.frombuffer(made.data, "<f4").reshape(len(texts), -1)
        self.record.embed(dict(zip(self.ids[first:last], rows, strict=True)))
        self.index.refresh()

    async def ask(
        self, query: str, settings: RetrievalSettings = BOTH
    ) -> tuple[SearchResult, list[Degradation]]:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        retriever = HybridRetriever(lambda kb: self.index, self.embedder, settings, self._pool)
        return await retriever.retrieve(ctx, SearchRequest("kb", query, 3)), ctx.degradations

    def close(self) -> None:
        self.index.close()
        self._pool.shutdown()


@pytest.fixture
def half(tmp_path: Path) -> Iterator[Half]:
    made = Half(tmp_path)
    yield made
    made.close()


async def test_an_answer_says_so_until_the_vectors_are_there(half: Half) -> None:
    await half.embed(0, 3)
    result, told = await half.ask("when can parcels be returned?")
    assert (result.rung, result.evidence, told) == ("vector+bm25", None, [FLAG])
    assert result.coverage == Coverage(words=1.0, vectors=3 / 5)
    await half.embed(3, 5)
    result, told = await half.ask("when can parcels be returned?")
    assert result.evidence is not None and not told
    assert result.coverage == Coverage(words=1.0, vectors=1.0)


async def test_how_much_counts_as_whole_is_a_setting(half: Half) -> None:
    await half.embed(0, 3)
    enough = msgspec.structs.replace(BOTH, whole_share=0.6)
    result, told = await half.ask("when can parcels be returned?", enough)
    assert result.evidence is not None and not told


@pytest.mark.parametrize(
    ("query", "place"), [("How often is the boiler serviced?", 3), ("退货在几天内申请", 4)]
)
async def test_words_find_first_what_has_no_vector(half: Half, query: str, place: int) -> None:
    await half.embed(0, 3)
    result, told = await half.ask(query)
    assert result.hits[0].chunk.chunk_id == half.ids[place]
    assert result.hits[0].cosine is None and told == [FLAG]


async def test_what_words_are_sure_of_is_whole(half: Half) -> None:
    await half.embed(0, 3)
    sure = msgspec.structs.replace(BOTH, early_exit_confidence=0.01)
    result, told = await half.ask("How often is the boiler serviced?", sure)
    assert result.rung == "bm25" and result.evidence is not None and not told


async def test_a_chunk_without_a_vector_is_no_witness_against_vectors(half: Half) -> None:
    await half.embed(0, 3)
    settings = msgspec.structs.replace(BOTH, witness_confidence=0.01)
    found = {}
    for query in ("How often is the boiler serviced?", "When may parcels be returned?"):
        result, _ = await half.ask(query, settings)
        found[query] = next(use.found for use in result.uses if use.part == "vector")
    assert list(found.values()) == [None, True]


async def test_hits_without_a_vector_have_no_spread(half: Half) -> None:
    await half.embed(0, 4)
    view = half.index.snapshot().vectors
    assert hit_spread(view, half.ids[:4]) is not None
    assert hit_spread(view, [half.ids[4], *half.ids[:3]]) is None
