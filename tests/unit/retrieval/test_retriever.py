"""The retriever: rungs, reasons, rights, deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Vectors
from forebay.kernel.errors import DeadlineExceeded, EngineError, InvalidRequest, Overloaded
from forebay.kernel.stages import Embedder, EmbedderSpec, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

TEXTS = (
    "Parcels may be returned within thirty days of delivery.",
    "The boiler is serviced once a year by a technician.",
    "退货需要在收到商品后七天内申请。",
    "会议室需要提前一天预订。",
    "Invoices are sent by email at the end of each month.",
)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(2) as executor:
        yield executor


def context(groups: frozenset[str] | None = None, seconds: float = 20.0) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r",
        principal=Principal(groups=groups),
        deadline=Deadline.after(seconds, clock),
        clock=clock,
    )


class Library:
    """A record, its index and a retriever over it."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.embedder = HashEmbedder(64)
        self.record = MemoryIndexFeed(64)
        self.fingerprint: str | None = None
        self.index = KbIndex.open(
            folder, "kb", self.record, writable=True, fingerprint=lambda: self.fingerprint
        )

    async def add(self, *texts: str, groups: tuple[str, ...] = ()) -> list[int]:
        ids = self.record.add(*texts, groups=groups)
        vectors = await self.embedder.embed(texts, kind="passage")
        rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
        self.record.embed(dict(zip(ids, rows, strict=True)))
        self.fingerprint = self.embedder.spec.fingerprint
        self.index.refresh()
        return ids

    def retriever(
        self, embedder: Embedder | None, settings: RetrievalSettings | None = None
    ) -> HybridRetriever:
        return HybridRetriever(
            lambda kb: self.index, embedder, settings or RetrievalSettings(), self.pool
        )


@pytest.fixture
def library(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[Library]:
    made = Library(tmp_path, pool)
    yield made
    made.index.close()


def ask(query: str, top_k: int = 3) -> SearchRequest:
    return SearchRequest(kb="kb", query=query, top_k=top_k)


async def test_both_legs_answer(library: Library) -> None:
    ids = await library.add(*TEXTS)
    ctx = context()
    result = await library.retriever(library.embedder).retrieve(
        ctx, ask("when can parcels be returned?")
    )
    assert result.rung == ctx.rung == "vector+bm25"
    assert result.hits[0].chunk.chunk_id == ids[0]
    assert not ctx.degradations
    assert result.kb_version == ctx.kb_version == library.index.snapshot().version
    first = result.hits[0]
    assert first.bm25 is not None and first.cosine is not None
    assert all(0.0 <= hit.score <= 1.0 for hit in result.hits)
    assert [hit.score for hit in result.hits] == sorted(
        (hit.score for hit in result.hits), reverse=True
    )
    names = [record.name for record in ctx.stages]
    assert names == ["query.parse", "search.lexical", "embedding", "search.vector", "fusion"]
    assert all(record.waited_s >= 0 and record.worked_s >= 0 for record in ctx.stages)


@pytest.mark.parametrize("query", ["C++ (foo", '"x', "id:3", "*", "-词", "", "的", "the", "\ud800"])
async def test_any_text_is_answered(library: Library, query: str) -> None:
    await library.add(*TEXTS)
    embedder = None if query == "\ud800" else library.embedder
    await library.retriever(embedder).retrieve(context(), ask(query))


class Broken:
    """An embedder that fails in one way."""

    def __init__(self, spec: EmbedderSpec, error: BaseException | None) -> None:
        self._spec = spec
        self._error = error

    @property
    def spec(self) -> EmbedderSpec:
        return self._spec

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("other embedder", "reembed_needed"),
        ("not embedded", "not_embedded"),
        ("engine error", "engine_error"),
        ("unforeseen", "embedder_error"),
        ("hangs", "vector_timeout"),
    ],
)
async def test_without_vectors_words_answer_and_say_so(
    library: Library, case: str, reason: str
) -> None:
    if case == "not embedded":
        library.record.add(*TEXTS)
        library.index.refresh()
    else:
        await library.add(*TEXTS)
    spec = library.embedder.spec
    embedder: dict[str, Embedder] = {
        "other embedder": HashEmbedder(64, salt="other"),
        "not embedded": library.embedder,
        "engine error": Broken(spec, EngineError("down")),
        "unforeseen": Broken(spec, ZeroDivisionError()),
        "hangs": Broken(spec, None),
    }
    ctx = context()
    retriever = library.retriever(embedder[case], RetrievalSettings(vector_timeout_ms=30))
    result = await retriever.retrieve(ctx, ask("退货申请"))
    assert result.rung == ctx.rung == "bm25"
    assert result.hits[0].chunk.text == TEXTS[2]
    assert result.hits[0].cosine is None
    assert [(d.stage, d.rung, d.reason) for d in ctx.degradations] == [
        ("retrieval", "bm25", reason)
    ]


async def test_without_an_embedder_words_answer_as_was_chosen(library: Library) -> None:
    await library.add(*TEXTS)
    ctx = context()
    result = await library.retriever(None, RetrievalSettings()).retrieve(ctx, ask("退货申请"))
    assert result.rung == ctx.rung == "bm25"
    assert result.hits[0].chunk.text == TEXTS[2]
    assert ctx.degradations == []
    assert result.evidence is not None
    assert result.evidence.vectors is None


async def test_slow_texts_are_not_taken_for_slow_vectors(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.add(*TEXTS)
    rows = library.record.rows

    def slow(kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        time.sleep(0.3)
        return rows(kb, chunk_ids)

    monkeypatch.setattr(library.record, "rows", slow)
    ctx = context()
    retriever = library.retriever(library.embedder, RetrievalSettings(vector_timeout_ms=200))
    result = await retriever.retrieve(ctx, ask("退货申请"))
    assert (result.rung, ctx.degradations) == ("vector+bm25", [])


async def test_sure_words_skip_vectors(library: Library) -> None:
    await library.add(*TEXTS)
    ctx = context()
    result = await library.retriever(library.embedder).retrieve(ctx, ask("boiler technician"))
    assert result.rung == "bm25"
    assert not ctx.degradations, "an early exit is no step down"
    assert result.hits[0].chunk.text == TEXTS[1]


async def test_an_empty_kb_answers_nothing(library: Library) -> None:
    ctx = context()
    result = await library.retriever(library.embedder).retrieve(ctx, ask("anything"))
    assert result.hits == ()
    assert not ctx.degradations


async def test_no_text_leaves_for_whoever_has_no_right(library: Library) -> None:
    await library.add("the salary table of alpha", "alpha notes", groups=("hr",))
    await library.add("alpha for everyone")
    retriever = library.retriever(library.embedder)
    for query in ("alpha", "salary table", "the", "something else altogether"):
        outside = await retriever.retrieve(context(frozenset({"it"})), ask(query, 50))
        assert {hit.chunk.text for hit in outside.hits} <= {"alpha for everyone"}
        inside = await retriever.retrieve(context(frozenset({"hr"})), ask("alpha", 50))
        assert len(inside.hits) == 3


async def test_what_vanished_or_is_newer_than_the_snapshot_is_dropped(library: Library) -> None:
    ids = await library.add(*TEXTS)
    library.record.remove(ids[0])
    newer = library.record.live[ids[1]]
    library.record.live[ids[1]] = msgspec.structs.replace(newer, version=10_000)
    result = await library.retriever(library.embedder).retrieve(
        context(), ask("parcels returned, boiler serviced, invoices sent", 5)
    )
    texts = {hit.chunk.text for hit in result.hits}
    assert TEXTS[0] not in texts and TEXTS[1] not in texts
    assert TEXTS[4] in texts


async def test_deadline_bounds_and_load(library: Library) -> None:
    await library.add(*TEXTS)
    retriever = library.retriever(library.embedder)
    with pytest.raises(DeadlineExceeded):
        await retriever.retrieve(context(seconds=0.0), ask("退货"))
    for top_k in (0, 101):
        with pytest.raises(InvalidRequest):
            await retriever.retrieve(context(), ask("退货", top_k))
    full = library.retriever(
        Broken(library.embedder.spec, None), RetrievalSettings(in_flight_max=1)
    )
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(full.retrieve(context(), ask("parcels and rooms")))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await full.retrieve(context(), ask("退货"))
        await waiting
    assert (await full.retrieve(context(), ask("parcels and rooms"))).hits


async def test_a_cancelled_search_frees_its_place(library: Library) -> None:
    await library.add(*TEXTS)
    retriever = library.retriever(
        Broken(library.embedder.spec, None),
        RetrievalSettings(in_flight_max=1, vector_timeout_ms=60_000),
    )
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await retriever.retrieve(context(), ask("parcels and rooms"))


async def test_results_carry_vectors_for_a_reranker_when_told(library: Library) -> None:
    await library.add(*TEXTS)
    plain = library.retriever(library.embedder)
    retriever = HybridRetriever(
        lambda kb: library.index,
        library.embedder,
        RetrievalSettings(),
        library.pool,
        with_vectors=True,
    )
    request = SearchRequest("kb", "退货 parcels", top_k=3)
    assert (await plain.retrieve(context(), request)).vectors is None
    found = await retriever.retrieve(context(), request)
    assert found.vectors is not None and found.vectors.dimensions == 64
    query = np.frombuffer(found.vectors.query, "<f4")
    rows = np.frombuffer(found.vectors.hits, "<f4").reshape(len(found.hits), -1)
    assert [hit.cosine for hit in found.hits] == pytest.approx((rows @ query).tolist(), abs=1e-5)
