"""Work done in the thread that searches: the query embedded there, hits scored there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import EngineError, PartFailed
from forebay.kernel.stages import HitVectors
from forebay.retrieval import HybridRetriever, search_executor
from forebay.testing.embedding import HashEmbedder
from tests.unit.retrieval.test_retriever import BOTH, TEXTS, Library, ask, context


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with search_executor(1) as pool:
        made = Library(tmp_path, pool)
        yield made
        made.index.close()


class AtHand(HashEmbedder):
    """An embedder that works in the thread of who asks, and notes which that is."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(64)
        self.error = error
        self.threads: list[str] = []
        self.asked = 0

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        self.asked += 1
        return await super().embed(texts, kind=kind)

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        def work() -> Vectors:
            self.threads.append(threading.current_thread().name)
            if self.error is not None:
                raise self.error
            return asyncio.run(super(AtHand, self).embed([text], kind="query"))

        return None if text == "parcels boiler" else work


IN_LINE = msgspec.structs.replace(BOTH, embed_in_line=True)


@pytest.mark.parametrize("query", ["when can parcels be returned?", "退货申请", "boiler 会议室"])
async def test_a_query_embedded_in_line_is_answered_alike(library: Library, query: str) -> None:
    await library.add(*TEXTS)
    embedder, ctx = AtHand(), context()
    result = await library.retriever(embedder, IN_LINE).retrieve(ctx, ask(query))
    usual = await library.retriever(library.embedder).retrieve(context(), ask(query))
    assert (result.hits, result.evidence) == (usual.hits, usual.evidence)
    assert (result.rung, ctx.cache["embedding"]) == ("vector+bm25", "miss")
    [thread] = embedder.threads
    assert thread.startswith("search") and not embedder.asked
    names = [record.name for record in ctx.stages]
    assert names == ["query.parse", "search.lexical", "embedding", "search.vector", "fusion"]
    assert [use.part for use in result.uses] == ["bm25", "vector"]


@pytest.mark.parametrize("why", ["not set", "remembered", "hypothesis"])
async def test_what_cannot_be_embedded_in_line_is_asked_for(library: Library, why: str) -> None:
    await library.add(*TEXTS)
    embedder = AtHand()
    retriever = library.retriever(embedder, BOTH if why == "not set" else IN_LINE)
    request = ask("parcels boiler" if why == "remembered" else "parcels")
    if why == "hypothesis":
        request = msgspec.structs.replace(request, hypothesis="Parcels go back in thirty days.")
    result = await retriever.retrieve(context(), request)
    assert result.rung == "vector+bm25" and not embedder.threads and embedder.asked


@pytest.mark.parametrize(
    ("error", "reason"),
    [(EngineError("down"), "engine_error"), (ZeroDivisionError(), "embedder_error")],
)
async def test_a_failure_in_line_is_the_vectors(
    library: Library, error: Exception, reason: str
) -> None:
    await library.add(*TEXTS)
    with pytest.raises(PartFailed) as failed:
        await library.retriever(AtHand(error), IN_LINE).retrieve(context(), ask("退货申请"))
    assert (failed.value.part, failed.value.reason) == ("vector", reason)


async def test_hits_are_scored_where_they_were_found(library: Library) -> None:
    await library.add(*TEXTS)
    threads: list[str] = []

    def scorer(
        query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[Sequence[float], Sequence[float]]:
        threads.append(threading.current_thread().name)
        if query == "boiler":
            raise ZeroDivisionError
        rows = np.frombuffer(vectors.hits, "<f4").reshape(len(hits), vectors.dimensions)
        return (rows @ np.frombuffer(vectors.query, "<f4")).tolist(), [0.5] * len(hits)

    retriever = HybridRetriever(
        lambda kb: library.index,
        library.embedder,
        BOTH,
        library.pool,
        with_vectors=True,
        scorer=scorer,
    )
    ctx = context()
    result = await retriever.retrieve(ctx, ask("when can parcels be returned?"))
    assert result.vectors is not None and result.vectors.told is not None
    cosines = [hit.cosine for hit in result.hits]
    assert result.vectors.told.scores == pytest.approx(cosines, abs=1e-5)
    assert ctx.stages[-1].name == "rerank" and threads[0].startswith("search")
    failed = await retriever.retrieve(context(), ask("boiler"))
    assert failed.vectors is not None and failed.vectors.told is None
    assert failed.hits, "the search stands without what a scorer says"
