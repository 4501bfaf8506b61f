"""Hits ordered anew: by whom, what that rests on, and what happens when a model fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from forebay.kernel.caching import Evidence, LegList
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import HitVectors, SearchRequest, SearchResult, Told
from forebay.pipeline.reranking import (
    RerankingParts,
    RerankingRetriever,
    RerankingSettings,
    text_of,
)
from forebay.policy.cascade import CascadeSettings
from forebay.testing.reranking import OverlapReranker

PATIENT = RerankingSettings(timeout_ms=4000, dear_timeout_ms=4000)
"""A busy machine is no model that hangs."""
VECTORS = HitVectors(b"\0" * 4, b"\0" * 16, 1)


def chunk(chunk_id: int, text: str, title: str = "") -> ChunkRow:
    return ChunkRow(
        chunk_id, f"d{chunk_id}", 0, 0, len(text), text, "", 1, None, (), title, "s", "en",
        (), (), {}, 1,
    )  # fmt: skip


HITS = tuple(
    Hit(chunk(number, text), score)
    for number, (text, score) in enumerate(
        [("red apples", 0.9), ("green pears", 0.8), ("blue plums", 0.7), ("red plums", 0.6)], 1
    )
)
EVIDENCE = Evidence(
    100, LegList((1, 2, 3, 4), (4.0, 3.0, 2.0, 1.0)), LegList(),
    LegList((1, 2, 3, 4), (0.9, 0.8, 0.7, 0.6)), b"", 30, lead=0.05, edge=0.04,
)  # fmt: skip


class Found:
    """A retriever that finds ``HITS``."""

    def __init__(self, vectors: HitVectors | None = VECTORS) -> None:
        self.asked: list[SearchRequest] = []
        self.vectors = vectors
        self.hits = HITS

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.asked.append(request)
        return SearchResult(self.hits[: request.top_k], "vector+bm25", 3, EVIDENCE, self.vectors)


class Scripted:
    """A light model that says what it was told, after a while."""

    def __init__(self, scores: Sequence[float], relevances: Sequence[float]) -> None:
        self.scores, self.told = scores, relevances
        self.failure: Exception | None = None
        self.takes_s = 0.0

    def relevances(
        self, query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[Sequence[float], Sequence[float]]:
        time.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        return self.scores, self.told


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def context(seconds: float = 20.0) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(seconds, clock), clock=clock
    )


def light() -> Scripted:
    return Scripted([0.0, 3.0, 1.0, 2.0], [0.1, 0.6, 0.35, 0.55])


def ids(result: SearchResult) -> list[int]:
    return [hit.chunk.chunk_id for hit in result.hits]


async def test_the_light_model_orders_and_the_order_rests_on_all(pool: ThreadPoolExecutor) -> None:
    found, ctx = Found(), context()
    retriever = RerankingRetriever(found, RerankingParts(light(), pool, PATIENT))
    result = await retriever.retrieve(ctx, SearchRequest("kb", "q", top_k=2))
    assert (found.asked[0].top_k, found.asked[0].unranked) == (30, 2)
    assert ids(result) == [2, 4]
    assert [hit.rerank for hit in result.hits] == [0.6, 0.55]
    assert [hit.score for hit in result.hits] == [0.9, 0.8], "the search's scores, by place"
    assert result.vectors is None
    assert result.evidence is not None
    assert result.evidence.chosen_from == 30
    assert result.evidence.fused == EVIDENCE.fused, "all candidates"
    assert result.evidence.lead == pytest.approx(min(EVIDENCE.edge, 1.0 / 120))
    assert [record.name for record in ctx.stages] == ["rerank"]
    assert not ctx.degradations


async def test_a_hit_that_is_alone_rests_on_nothing_coming_beside_it(
    pool: ThreadPoolExecutor,
) -> None:
    found = Found()
    found.hits = found.hits[:1]
    retriever = RerankingRetriever(found, RerankingParts(light(), pool, PATIENT))
    result = await retriever.retrieve(context(), SearchRequest("kb", "q", top_k=1))
    assert ids(result) == [1] and result.hits[0].rerank is None
    assert result.evidence is not None and result.evidence.chosen_from == 30
    assert result.evidence.lead == EVIDENCE.edge


async def test_what_the_search_was_told_of_its_hits_is_not_asked_again(
    pool: ThreadPoolExecutor,
) -> None:
    model, ctx = light(), context()
    model.failure = AssertionError("asked again")
    told = msgspec.structs.replace(VECTORS, told=Told(model.scores, model.told))
    with ctx.stage("rerank"):
        pass
    parts = RerankingParts(model, pool, PATIENT)
    result = await RerankingRetriever(Found(told), parts).retrieve(
        ctx, SearchRequest("kb", "q", top_k=2)
    )
    assert ids(result) == [2, 4]
    assert [hit.rerank for hit in result.hits] == [0.6, 0.55]
    assert not ctx.degradations and result.vectors is None
    assert [record.attributes for record in ctx.stages] == [{"reranker": "light"}]
    assert parts.tally.statistics()["by_light"] == 1


async def test_picked_hits_tell_what_the_search_had_around_its_best(
    pool: ThreadPoolExecutor,
) -> None:
    cosines = [0.8, 0.7, 0.4, 0.2]
    found = Found()
    found.hits = tuple(
        msgspec.structs.replace(hit, cosine=cosine)
        for hit, cosine in zip(HITS, cosines, strict=True)
    )
    retriever = RerankingRetriever(found, RerankingParts(light(), pool, PATIENT))
    three = await retriever.retrieve(context(), SearchRequest("kb", "q", top_k=3))
    assert [hit.around for hit in three.hits] == [0.4] * 3
    two = await retriever.retrieve(context(), SearchRequest("kb", "q", top_k=2))
    assert [hit.around for hit in two.hits] == [None] * 2


async def test_more_than_the_candidates_may_be_asked_for(pool: ThreadPoolExecutor) -> None:
    found = Found()
    settings = msgspec.structs.replace(PATIENT, candidates=3)
    retriever = RerankingRetriever(found, RerankingParts(light(), pool, settings))
    await retriever.retrieve(context(), SearchRequest("kb", "q", top_k=50))
    assert found.asked[0].top_k == 50


async def test_without_vectors_the_searchs_own_order_stands(pool: ThreadPoolExecutor) -> None:
    ctx = context()
    retriever = RerankingRetriever(Found(None), RerankingParts(light(), pool, PATIENT))
    result = await retriever.retrieve(ctx, SearchRequest("kb", "q", top_k=2))
    assert ids(result) == [1, 2]
    assert result.evidence == EVIDENCE
    assert not ctx.degradations and not ctx.stages
    assert retriever.statistics()["by_search"] == 1


@pytest.mark.parametrize(
    ("failure", "takes_s", "reason"),
    [
        (EngineError("no"), 0.0, "engine_error"),
        (ValueError("foreign"), 0.0, "reranker_error"),
        (None, 0.3, "timeout"),
    ],
)
async def test_a_failing_light_model_costs_its_order_alone(
    pool: ThreadPoolExecutor, failure: Exception | None, takes_s: float, reason: str
) -> None:
    model = light()
    model.failure, model.takes_s = failure, takes_s
    ctx = context()
    settings = RerankingSettings(timeout_ms=50 if takes_s else 20_000)
    parts = RerankingParts(model, pool, settings)
    result = await RerankingRetriever(Found(), parts).retrieve(
        ctx, SearchRequest("kb", "q", top_k=2)
    )
    assert ids(result) == [1, 2]
    assert [(d.stage, d.rung, d.reason) for d in ctx.degradations] == [("rerank", "fused", reason)]


def cascade(dear: OverlapReranker, pool: ThreadPoolExecutor, **changes: float) -> RerankingParts:
    return RerankingParts(
        light(),
        pool,
        PATIENT,
        dear,
        msgspec.structs.replace(CascadeSettings(floor=0.3, sure_from=0.8, trust=1.0), **changes),
    )


async def test_the_dear_model_orders_what_is_above_the_floor(pool: ThreadPoolExecutor) -> None:
    dear, ctx = OverlapReranker(), context()
    retriever = RerankingRetriever(Found(), cascade(dear, pool))
    result = await retriever.retrieve(ctx, SearchRequest("kb", "red plums", top_k=4))
    assert dear.asked == [("red plums", ("green pears", "red plums", "blue plums"))]
    assert ids(result) == [4, 3, 2, 1]
    assert [hit.rerank for hit in result.hits] == pytest.approx([1.0, 0.5, 0.0, 0.1], abs=1e-6)
    assert ctx.stages[0].attributes["reranker"] == "dear"
    told = retriever.statistics()
    assert (told["by_dear"], told["texts_asked"], told["texts_spared"]) == (1, 3, 1)


async def test_the_dear_model_is_spared_where_the_light_one_is_sure(
    pool: ThreadPoolExecutor,
) -> None:
    dear = OverlapReranker()
    retriever = RerankingRetriever(Found(), cascade(dear, pool, sure_from=0.52))
    result = await retriever.retrieve(context(), SearchRequest("kb", "red plums", top_k=4))
    assert not dear.asked and ids(result) == [2, 4, 3, 1]
    told = retriever.statistics()
    assert (told["by_light"], told["texts_asked"], told["texts_spared"]) == (1, 0, 4)


async def test_a_failing_dear_model_leaves_the_light_order(pool: ThreadPoolExecutor) -> None:
    for failure, reason in ((EngineError("no"), "engine_error"), (None, "timeout")):
        dear, ctx = OverlapReranker(), context()
        dear.failure = failure
        parts = cascade(dear, pool)
        if failure is None:
            dear.gate.clear()
            hasty = msgspec.structs.replace(PATIENT, dear_timeout_ms=100)
            parts = msgspec.structs.replace(parts, settings=hasty)
        retriever = RerankingRetriever(Found(), parts)
        result = await retriever.retrieve(ctx, SearchRequest("kb", "red plums", top_k=4))
        assert ids(result) == [2, 4, 3, 1]
        assert [(d.rung, d.reason) for d in ctx.degradations] == [("light", reason)]


async def test_a_dear_model_that_keeps_failing_is_told_until_it_works(
    pool: ThreadPoolExecutor,
) -> None:
    dear = OverlapReranker()
    dear.failure = EngineError("no")
    parts = cascade(dear, pool)
    retriever, asked = RerankingRetriever(Found(), parts), SearchRequest("kb", "red plums", top_k=4)
    for _ in range(2):
        await retriever.retrieve(context(), asked)
    assert not parts.tally.shortcomings()
    await retriever.retrieve(context(), asked)
    [told] = parts.tally.shortcomings()
    assert "dear reranker failed 3 times in a row" in told and "engine_error" in told
    assert retriever.statistics()["dear_failures"] == 3
    dear.failure = None
    await retriever.retrieve(context(), asked)
    assert not parts.tally.shortcomings() and retriever.statistics()["by_dear"] == 1


async def test_what_comes_beyond_the_most_at_once_keeps_its_order(
    pool: ThreadPoolExecutor,
) -> None:
    model = light()
    model.takes_s = 0.05
    parts = RerankingParts(model, pool, msgspec.structs.replace(PATIENT, most_at_once=1))
    retriever = RerankingRetriever(Found(), parts)
    contexts = [context(), context()]
    first, second = await asyncio.gather(
        *(retriever.retrieve(ctx, SearchRequest("kb", "q", top_k=2)) for ctx in contexts)
    )
    assert ids(first) == [2, 4] and ids(second) == [1, 2]
    assert contexts[1].degradations[0].reason == "busy"
    third = await retriever.retrieve(context(), SearchRequest("kb", "q", top_k=2))
    assert ids(third) == [2, 4], "its place was given back"


async def test_cancelling_gives_its_place_back(pool: ThreadPoolExecutor) -> None:
    dear = OverlapReranker()
    dear.gate.clear()
    parts = cascade(dear, pool)
    parts = msgspec.structs.replace(
        parts, settings=msgspec.structs.replace(PATIENT, most_at_once=1)
    )
    retriever = RerankingRetriever(Found(), parts)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            retriever.retrieve(context(), SearchRequest("kb", "red plums", top_k=2))
        )
        async with asyncio.timeout(60):
            while not dear.asked:
                await asyncio.sleep(0.001)
        task.cancel()
    dear.gate.set()
    result = await retriever.retrieve(context(), SearchRequest("kb", "red plums", top_k=2))
    assert ids(result) == [4, 3]


def test_a_dear_model_reads_where_a_hit_stands_and_what_it_says() -> None:
    row = msgspec.structs.replace(
        chunk(1, "七天内可退。", "退货"), heading_path=("期限",), context="| 天 |"
    )
    assert text_of(Hit(row, 1.0)) == "退货 > 期限\n| 天 |\n七天内可退。"
