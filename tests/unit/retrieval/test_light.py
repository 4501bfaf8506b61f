"""The rung by the light vector, and when it does for a question in the embedder's place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import QueryKind, Retriever, SearchRequest, SearchResult
from forebay.policy.ladder import LadderRetriever, Rung
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    LightRetriever,
    RetrievalSettings,
    WordsRetriever,
    search_executor,
)
from forebay.retrieval import light as module
from forebay.retrieval.light import LightVector
from forebay.retrieval.segments import Floats32
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

RETURNS = "Parcels may be returned within thirty days of delivery, with the invoice."
RUECKGABE = "退货需要在收到商品后七天内申请，并附上发票。"
OTHERS = [
    f"The {part} of line {i} is checked by the technician every {i + 2} weeks."
    for i, part in enumerate(["boiler", "pump", "belt", "valve", "motor", "fan"] * 6)
]
SURE = "Within how many days of delivery may parcels be returned with the invoice?"
DOUBTFUL = "How often is the technician there?"
OTHER_WORDS = "怎么把东西寄回去"


class Counting(HashEmbedder):
    """Counts the queries it embeds, and fails where it is told to."""

    asked = 0
    broken = False

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        self.asked += kind == "query"
        if kind == "query" and self.broken:
            raise EngineError("out")
        return await super().embed(texts, kind=kind)


class Library:
    """A record, its index, and light vectors that lie on one chunk."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.embedder = Counting(64)
        record = MemoryIndexFeed(64)
        texts = (*OTHERS, RETURNS, RUECKGABE)
        ids = record.add(*texts)
        vectors = asyncio.run(self.embedder.embed(texts, kind="passage"))
        rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
        record.embed(dict(zip(ids, rows, strict=True)))
        self.near = rows[-1:].copy()
        self.index = KbIndex.open(
            folder,
            "kb",
            record,
            writable=True,
            fingerprint=lambda: self.embedder.spec.fingerprint,
        )
        self.settings = RetrievalSettings()

    def light(self, _: str) -> Floats32 | None:
        """A vector on the Chinese chunk, whatever is asked."""
        return self.near

    def spare(self, light: LightVector | None = None, fingerprint: str = "") -> LightRetriever:
        return LightRetriever(
            lambda _: self.index,
            light or self.light,
            fingerprint or self.embedder.spec.fingerprint,
            self.settings,
            self.pool,
        )

    def hybrid(self, *, with_vectors: bool = False) -> HybridRetriever:
        return HybridRetriever(
            lambda _: self.index,
            self.embedder,
            self.settings,
            self.pool,
            with_vectors=with_vectors,
        )

    def ask(
        self, retriever: Retriever, query: str, kind: QueryKind | None = None
    ) -> tuple[SearchResult, RequestContext]:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        request = SearchRequest("kb", query, 3, kind=kind)
        return asyncio.run(retriever.retrieve(ctx, request)), ctx


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


@pytest.fixture
def library(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[Library]:
    made = Library(tmp_path, pool)
    yield made
    made.index.close()


def certain(monkeypatch: pytest.MonkeyPatch, risk: float) -> None:
    monkeypatch.setattr(module, "risk", lambda *_: risk)


def test_the_light_vector_finds_what_words_cannot_and_nobody_may_keep_it(library: Library) -> None:
    found, ctx = library.ask(library.spare(), OTHER_WORDS)
    assert found.rung == ctx.rung == "static+bm25"
    best = found.hits[0]
    assert best.chunk.text == RUECKGABE and best.cosine == pytest.approx(1.0, abs=1e-3)
    assert (found.evidence, found.sure, library.embedder.asked) == (None, False, 0)
    assert found.coverage is not None and found.coverage.vectors == 1.0


def test_sure_words_are_whole_without_it(library: Library) -> None:
    found, _ = library.ask(library.spare(), SURE)
    assert (found.rung, found.sure) == ("bm25", True)
    assert found.evidence is not None


@pytest.mark.parametrize("lacks", ["vector", "fingerprint"])
def test_without_a_light_vector_words_answer(library: Library, lacks: str) -> None:
    spare = library.spare(lambda _: None) if lacks == "vector" else library.spare(None, "other")
    found, ctx = library.ask(spare, DOUBTFUL)
    words = WordsRetriever(lambda _: library.index, library.settings, library.pool, chosen=False)
    plain, _ = library.ask(words, DOUBTFUL)
    assert found.rung == ctx.rung == "bm25" and (found.sure, found.evidence) == (False, None)
    assert found.hits == plain.hits


def test_a_broken_embedder_is_stood_in_for_and_the_answer_says_so(library: Library) -> None:
    library.embedder.broken = True

    async def ask() -> tuple[SearchResult, RequestContext]:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r", principal=Principal(), deadline=Deadline.after(20, clock), clock=clock
        )
        ladder = LadderRetriever(
            [Rung("vector+bm25", library.hybrid()), Rung("static+bm25", library.spare())], (), clock
        )
        found = await ladder.retrieve(ctx, SearchRequest("kb", OTHER_WORDS, 3))
        await ladder.close()
        return found, ctx

    found, ctx = asyncio.run(ask())
    assert found.rung == "static+bm25" and found.hits[0].chunk.text == RUECKGABE
    assert [(one.stage, one.rung) for one in ctx.degradations] == [("retrieval", "static+bm25")]


def test_where_the_embedder_finds_no_better_it_is_not_asked(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain(monkeypatch, 0.0)
    found, ctx = library.ask(library.hybrid().lightly(library.light), DOUBTFUL)
    assert (found.rung, ctx.rung, library.embedder.asked) == ("static+bm25", "static+bm25", 0)
    assert found.sure and not ctx.degradations
    assert found.evidence is not None and found.evidence.vectors is not None, "it may be kept"


def test_where_it_may_find_better_it_is_asked(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain(monkeypatch, module.RISK)
    found, _ = library.ask(library.hybrid().lightly(library.light), DOUBTFUL)
    assert (found.rung, library.embedder.asked) == ("vector+bm25", 1)


def test_who_wants_several_documents_or_ranks_anew_gets_the_embedder(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain(monkeypatch, 0.0)
    first = library.hybrid().lightly(library.light)
    assert library.ask(first, DOUBTFUL, "comparison")[0].rung == "vector+bm25"
    ranked = library.hybrid(with_vectors=True).lightly(library.light)
    assert library.ask(ranked, DOUBTFUL)[0].rung == "vector+bm25"
    unknown = library.hybrid().lightly(lambda _: None)
    assert library.ask(unknown, DOUBTFUL)[0].rung == "vector+bm25"


def test_words_that_find_nothing_are_no_witness(library: Library) -> None:
    found, _ = library.ask(library.hybrid().lightly(library.light), OTHER_WORDS)
    assert found.rung == "vector+bm25"
