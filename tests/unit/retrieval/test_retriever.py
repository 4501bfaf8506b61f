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
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    InvalidRequest,
    Overloaded,
    PartFailed,
)
from forebay.kernel.stages import Embedder, EmbedderSpec, SearchRequest
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    MeaningRetriever,
    RetrievalSettings,
    WordsRetriever,
    search_executor,
)
from forebay.retrieval.engine import IndexDamaged
from forebay.retrieval.lexical_search import LexicalView
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

TEXTS = (
    "Parcels may be returned within thirty days of delivery.",
    "The boiler is serviced once a year by a technician.",
    "退货需要在收到商品后七天内申请。",
    "会议室需要提前一天预订。",
    "Invoices are sent by email at the end of each month.",
)


def both(**fields: float) -> RetrievalSettings:
    """Settings under which words never answer alone."""
    plain = RetrievalSettings(early_exit_confidence=2.0)
    return msgspec.structs.replace(plain, **fields)


BOTH = both()


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
        return HybridRetriever(lambda kb: self.index, embedder, settings or BOTH, self.pool)

    def words(
        self, *, chosen: bool = False, settings: RetrievalSettings | None = None
    ) -> WordsRetriever:
        return WordsRetriever(lambda kb: self.index, settings or BOTH, self.pool, chosen=chosen)

    def meaning(self) -> MeaningRetriever:
        return MeaningRetriever(
            lambda kb: self.index, self.embedder, RetrievalSettings(), self.pool
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
    ("case", "reason", "late", "at_fault"),
    [
        ("other embedder", "reembed_needed", False, False),
        ("not embedded", "not_embedded", False, False),
        ("engine error", "engine_error", False, True),
        ("refused text", "engine_refused", False, False),
        ("wrong key", "engine_refused", False, True),
        ("unforeseen", "embedder_error", False, True),
        ("hangs", "vector_timeout", True, True),
    ],
)
async def test_without_vectors_it_says_which_part_failed_and_how(
    library: Library, case: str, reason: str, late: bool, at_fault: bool
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
        "refused text": Broken(spec, EngineRefused("no", status=400)),
        "wrong key": Broken(spec, EngineRefused("no", status=401)),
        "unforeseen": Broken(spec, ZeroDivisionError()),
        "hangs": Broken(spec, None),
    }
    retriever = library.retriever(embedder[case], both(vector_timeout_ms=30))
    with pytest.raises(PartFailed) as failed:
        await retriever.retrieve(context(), ask("退货申请"))
    found = failed.value
    assert (found.part, found.reason) == ("vector", reason)
    assert (found.late_s > 0, found.at_fault) == (late, at_fault)


async def test_a_client_in_a_hurry_is_no_fault_of_the_embedders(library: Library) -> None:
    await library.add(*TEXTS)
    hangs = Broken(library.embedder.spec, None)
    retriever = library.retriever(hangs, both(vector_timeout_ms=60_000))
    ctx = context(seconds=0.5)
    with pytest.raises(PartFailed) as failed:
        await retriever.retrieve(ctx, ask("退货申请"))
    assert not failed.value.at_fault
    assert ctx.deadline.remaining() > 0.1, "time is left for the rungs below"


async def test_words_alone_answer_flagged_by_their_coverage(library: Library) -> None:
    await library.add(*TEXTS)
    ctx = context()
    result = await library.words().retrieve(ctx, ask("退货申请"))
    assert result.rung == ctx.rung == "bm25"
    assert result.hits[0].chunk.text == TEXTS[2] and result.hits[0].cosine is None
    assert result.evidence is None, "nobody may keep what vectors might have found better"
    assert result.coverage is not None
    assert (result.coverage.words, result.coverage.vectors) == (1.0, 0.0)
    assert not result.sure
    [use] = result.uses
    assert use.part == "bm25" and use.took_s > 0


@pytest.mark.parametrize("query", ["parcels", "退货", "a", "month of email 会议室", "zzz boiler"])
async def test_no_threshold_cuts_what_words_find_without_vectors(
    library: Library, query: str
) -> None:
    await library.add(*TEXTS)
    below = await library.words().retrieve(context(), ask(query, 50))
    chosen = await library.retriever(None).retrieve(context(), ask(query, 50))
    assert [hit.chunk.chunk_id for hit in below.hits] == [hit.chunk.chunk_id for hit in chosen.hits]
    assert [hit.bm25 for hit in below.hits] == [hit.bm25 for hit in chosen.hits]
    lexical = library.index.snapshot().lexical
    found = lexical.search(lexical.parse(query), (), 50)
    assert [hit.chunk.chunk_id for hit in below.hits] == found.ids.tolist()


async def test_sure_words_are_whole_on_their_own_rung_too(library: Library) -> None:
    await library.add(*TEXTS)
    result = await library.words(settings=RetrievalSettings()).retrieve(
        context(), ask("Is the boiler serviced once a year by a technician?")
    )
    assert result.sure and result.evidence is not None
    assert result.coverage is not None and result.coverage.vectors is None


async def test_parts_show_what_they_did(library: Library) -> None:
    await library.add(*TEXTS)
    retriever = library.retriever(library.embedder, both(witness_confidence=0.1))
    result = await retriever.retrieve(context(), ask("boiler technician"))
    words, vectors = result.uses
    assert (words.part, words.found) == ("bm25", None)
    assert (vectors.part, vectors.found) == ("vector", True)
    assert words.took_s > 0 and vectors.took_s > 0
    assert result.coverage is not None
    assert (result.coverage.words, result.coverage.vectors) == (1.0, 1.0)


async def test_a_remembered_vector_says_nothing_of_the_embedder(library: Library) -> None:
    await library.add(*TEXTS)

    class Remembering(HashEmbedder):
        async def embed(
            self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
        ) -> Vectors:
            return msgspec.structs.replace(await super().embed(texts, kind=kind), cached=True)

    result = await library.retriever(Remembering(64)).retrieve(
        context(), ask("when can parcels be returned?")
    )
    assert result.rung == "vector+bm25"
    assert [use.part for use in result.uses] == ["bm25"]


async def test_coverage_tells_of_chunks_without_vectors(library: Library) -> None:
    await library.add(*TEXTS[:3])
    library.record.add(*TEXTS[3:])
    library.index.refresh()
    result = await library.retriever(library.embedder).retrieve(
        context(), ask("when can parcels be returned?")
    )
    assert result.coverage is not None and result.coverage.vectors == pytest.approx(3 / 5)


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search by words works, whatever else does."""

    def broken(*_: object) -> None:
        raise IndexDamaged

    for name in ("parse", "search", "score", "facts", "bm25", "allowed", "allowed_among"):
        monkeypatch.setattr(LexicalView, name, broken)


@pytest.mark.usefixtures("damaged")
async def test_damaged_words_are_told_apart_from_vectors(library: Library) -> None:
    await library.add(*TEXTS)
    for retriever in (library.retriever(library.embedder), library.words()):
        with pytest.raises(PartFailed) as failed:
            await retriever.retrieve(context(), ask("退货申请"))
        assert (failed.value.part, failed.value.reason) == ("bm25", "index_damaged")


@pytest.mark.usefixtures("damaged")
async def test_vectors_alone_answer_without_the_word_index(library: Library) -> None:
    ids = await library.add(*TEXTS)
    await library.add("parcels returned secretly", groups=("hr",))
    ctx = context(frozenset({"it"}))
    result = await library.meaning().retrieve(ctx, ask("when can parcels be returned?"))
    assert result.rung == ctx.rung == "vector"
    assert result.hits[0].chunk.chunk_id == ids[0]
    assert "parcels returned secretly" not in {hit.chunk.text for hit in result.hits}
    assert result.hits[0].bm25 is None and result.hits[0].cosine is not None
    assert all(0.0 <= hit.score <= 1.0 for hit in result.hits)
    assert result.evidence is None
    assert result.coverage is not None
    assert (result.coverage.words, result.coverage.vectors) == (0.0, 1.0)


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
    retriever = library.retriever(library.embedder, both(vector_timeout_ms=200))
    result = await retriever.retrieve(ctx, ask("退货申请"))
    assert (result.rung, ctx.degradations) == ("vector+bm25", [])


async def test_sure_words_skip_vectors(library: Library) -> None:
    await library.add(*TEXTS)
    ctx = context()
    result = await library.retriever(library.embedder, RetrievalSettings()).retrieve(
        ctx, ask("Is the boiler serviced once a year by a technician?")
    )
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
    full = library.retriever(Broken(library.embedder.spec, None), both(in_flight_max=1))
    waiting = asyncio.get_running_loop().create_task(
        full.retrieve(context(), ask("parcels and rooms"))
    )
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await full.retrieve(context(), ask("退货"))
    for _ in range(2):
        with pytest.raises(PartFailed):
            await waiting
        waiting = asyncio.get_running_loop().create_task(
            full.retrieve(context(), ask("parcels and rooms"))
        )
    with pytest.raises(PartFailed):
        await waiting


async def test_a_cancelled_search_frees_its_place(library: Library) -> None:
    await library.add(*TEXTS)
    retriever = library.retriever(
        Broken(library.embedder.spec, None),
        both(in_flight_max=1, vector_timeout_ms=60_000),
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
