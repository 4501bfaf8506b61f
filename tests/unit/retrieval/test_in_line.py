"""Work done in the thread that searches: the query embedded there, hits scored there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

import msgspec
import numpy as np
import pytest

from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import EngineError, PartFailed
from forebay.kernel.stages import HitVectors
from forebay.retrieval import HybridRetriever, RetrievalSettings, search_executor
from forebay.retrieval.engine import IndexDamaged
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.pool import OldestFirst
from forebay.testing.embedding import HashEmbedder
from tests.unit.retrieval.test_retriever import BOTH, TEXTS, Library, ask, both, context

P = ParamSpec("P")
T = TypeVar("T")


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
        self.go = threading.Event()
        self.go.set()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        self.asked += 1
        return await super().embed(texts, kind=kind)

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        def work() -> Vectors:
            self.threads.append(threading.current_thread().name)
            assert self.go.wait(20)
            if self.error is not None:
                raise self.error
            return asyncio.run(super(AtHand, self).embed([text], kind="query"))

        return None if text == "parcels boiler" else work


IN_LINE = both(embed_in_line=True)


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


class Turns(OldestFirst):
    """The threads that search; counts what they are given."""

    taken = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.taken += 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize(
    ("query", "rung"),
    [
        ("怎么把东西寄回去", "vector+bm25"),
        ("Is the boiler serviced once a year by a technician?", "bm25"),
    ],
)
async def test_all_is_done_in_one_turn(tmp_path: Path, query: str, rung: str) -> None:
    with Turns(1) as pool:
        library = Library(tmp_path, pool)
        await library.add(*TEXTS)
        settings = RetrievalSettings(embed_in_line=True)
        result = await library.retriever(AtHand(), settings).retrieve(context(), ask(query))
        assert (result.rung, pool.taken) == (rung, 1)
        usual = await library.retriever(library.embedder, RetrievalSettings()).retrieve(
            context(), ask(query)
        )
        assert (result.hits, result.evidence) == (usual.hits, usual.evidence)
        assert pool.taken == (2 if rung == "bm25" else 3)
        library.index.close()


async def test_a_model_that_hangs_in_line_costs_its_time_out(library: Library) -> None:
    await library.add(*TEXTS)
    embedder = AtHand()
    embedder.go.clear()
    retriever = library.retriever(embedder, both(embed_in_line=True, vector_timeout_ms=30))
    try:
        with pytest.raises(PartFailed) as failed:
            await retriever.retrieve(context(), ask("退货申请"))
    finally:
        embedder.go.set()
    assert (failed.value.part, failed.value.reason) == ("vector", "vector_timeout")
    assert failed.value.at_fault


@pytest.mark.parametrize("broken", ["facts", "search"])
async def test_words_that_break_in_line_are_told_apart(
    library: Library, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    await library.add(*TEXTS)

    def raises(*_: object) -> None:
        raise IndexDamaged

    monkeypatch.setattr(LexicalView, broken, raises)
    with pytest.raises(PartFailed) as failed:
        await library.retriever(AtHand(), IN_LINE).retrieve(context(), ask("退货申请"))
    assert (failed.value.part, failed.value.reason) == ("bm25", "index_damaged")


@pytest.mark.parametrize("why", ["not set", "not here", "hypothesis"])
async def test_what_cannot_be_embedded_in_line_is_asked_for(library: Library, why: str) -> None:
    await library.add(*TEXTS)
    embedder = AtHand()
    retriever = library.retriever(embedder, BOTH if why == "not set" else IN_LINE)
    request = ask("parcels boiler" if why == "not here" else "parcels")
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
