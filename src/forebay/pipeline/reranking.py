"""Orders what a retriever found anew: by a light model, and by a dear one where that is unsure.

Stands between the search and the cache of its results. The order follows from the candidates
alone, so what is kept rests on all of them; without the query's vector (words alone were sure, or
vectors failed) there is nothing to order by and the search's own order stands.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import pairwise
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from forebay.kernel.caching import Evidence
from forebay.kernel.context import RequestContext, StageRecord
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import (
    HitVectors,
    Reranker,
    Retriever,
    SearchRequest,
    SearchResult,
    Told,
    WideSearch,
)
from forebay.kernel.turns import Turn
from forebay.pipeline.rerank_tally import Model, RerankTally
from forebay.policy.cascade import CascadeSettings, blended, decide

STAGE = "rerank"
FUSED, LIGHT = "fused", "light"
"""The rungs below the light and below a dear reranker: whose order stands instead."""
_BELOW: dict[Model, str] = {"light": FUSED, "dear": LIGHT}
_STEEPNESS = 120.0
"""How fast leads and relevances may move with fused scores, at most (by the shipped model: 24 by
fused scores themselves, 36 by who is favoured, 55 by who is named by those). Statistics that drift
move these, and what is kept is trusted the less the closer a decision was."""


class RerankingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is ordered anew, and how long that may take."""

    candidates: Annotated[
        int, Meta(ge=2, le=200, description="Hits of the search that are ordered anew.")
    ] = 30
    timeout_ms: Annotated[
        int,
        Meta(ge=1, description="The light reranker's time; then the search's order stands."),
    ] = 100
    dear_timeout_ms: Annotated[
        int,
        Meta(ge=1, description="The dear reranker's time; then the light one's order stands."),
    ] = 1500
    most_at_once: Annotated[
        int,
        Meta(ge=1, description="Searches ordered at once; what comes beyond keeps its order."),
    ] = 64


class HitScorer(Protocol):
    """Orders hits by what a search knows of them; blocks for milliseconds."""

    def relevances(
        self, query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return per hit a score, which orders them, and a calibrated relevance in 0..1."""
        ...


class RerankingParts(msgspec.Struct, frozen=True):
    """The models; ``dear`` None: the light one alone. ``executor`` runs the light one."""

    light: HitScorer
    executor: Executor
    settings: RerankingSettings = RerankingSettings()
    dear: Reranker | None = None
    cascade: CascadeSettings = CascadeSettings()
    tally: RerankTally = msgspec.field(default_factory=RerankTally)


class _Order(msgspec.Struct, frozen=True):
    """Places of hits, best first, each one's relevance, and how far from another order that is."""

    places: tuple[int, ...]
    relevances: tuple[float, ...]
    slack: float


class RerankingRetriever:
    """``Retriever`` over another that tells the vectors of its hits."""

    def __init__(self, inner: Retriever, parts: RerankingParts) -> None:
        self._inner = inner
        self._parts = parts
        self._tally = parts.tally
        self._at_work = 0

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``; ``Hit.rerank`` is a hit's relevance where it was ordered anew."""
        wanted = request.top_k
        wide = max(wanted, self._parts.settings.candidates)
        fields = {**msgspec.structs.asdict(request), "top_k": wide}
        found = await self._inner.retrieve(ctx, WideSearch(**fields, shown=wanted))
        order = await self._ordered(ctx, request.query, found)
        if order is None:
            self._tally.ordered("search")
            hits, evidence = found.hits[:wanted], found.evidence
            if found.vectors is not None:
                # A hit that is alone is first; what comes beside it may be put before it.
                evidence = _rests_on(evidence, wide, math.inf)
            return msgspec.structs.replace(found, hits=hits, vectors=None, evidence=evidence)
        return msgspec.structs.replace(
            found,
            hits=_arranged(found.hits, order, wanted),
            vectors=None,
            evidence=_rests_on(found.evidence, wide, order.slack),
        )

    def statistics(self) -> dict[str, float]:
        """See ``RerankTally``."""
        return self._tally.statistics()

    async def _ordered(self, ctx: RequestContext, query: str, found: SearchResult) -> _Order | None:
        if found.vectors is None or len(found.hits) < 2:
            return None
        if found.vectors.told is not None and self._parts.dear is None:
            self._tally.worked("light")
            self._tally.ordered("light")
            _note(ctx)
            return _by_scores(found.vectors.told)
        if self._at_work >= self._parts.settings.most_at_once:
            self._tally.busy()
            ctx.degrade(STAGE, FUSED, "busy")
            return None
        self._at_work += 1
        try:
            with ctx.stage(STAGE) as record:
                return await self._by_models(ctx, query, found.hits, found.vectors, record)
        finally:
            self._at_work -= 1

    async def _by_models(
        self,
        ctx: RequestContext,
        query: str,
        hits: tuple[Hit, ...],
        vectors: HitVectors,
        record: StageRecord,
    ) -> _Order | None:
        settings = self._parts.settings
        order = await self._tried(
            ctx, "light", settings.timeout_ms, self._by_light(ctx, query, hits, vectors)
        )
        if order is None:
            return None
        record.attributes["reranker"] = LIGHT
        if self._parts.dear is None:
            self._tally.ordered("light")
            return order
        decision = decide(order.relevances, self._parts.cascade)
        record.attributes["confidence"] = decision.sure
        order = msgspec.structs.replace(order, slack=min(order.slack, decision.slack))
        self._tally.texts(decision.asked, of=min(len(hits), self._parts.cascade.most))
        if not decision.asked:
            self._tally.ordered("light")
            return order
        dear = await self._tried(
            ctx,
            "dear",
            settings.dear_timeout_ms,
            self._by_dear(ctx, query, hits, order, decision.asked),
        )
        if dear is None:
            self._tally.ordered("light")
            return order
        self._tally.ordered("dear")
        record.attributes["reranker"] = "dear"
        return dear

    async def _by_light(
        self, ctx: RequestContext, query: str, hits: tuple[Hit, ...], vectors: HitVectors
    ) -> _Order:
        turn = Turn(ctx.started_at, partial(self._parts.light.relevances, query, hits, vectors))
        loop = asyncio.get_running_loop()
        return _by_scores(Told(*await loop.run_in_executor(self._parts.executor, turn)))

    async def _by_dear(
        self, ctx: RequestContext, query: str, hits: tuple[Hit, ...], order: _Order, asked: int
    ) -> _Order:
        """Order the first ``asked`` by the dear model; the others keep their places."""
        assert self._parts.dear is not None
        first = order.places[:asked]
        texts = [text_of(hits[place]) for place in first]
        dear = await self._parts.dear.rerank(ctx, query, texts)
        told = blended(order.relevances[:asked], dear, self._parts.cascade.trust)
        by_dear = sorted(range(asked), key=lambda rank: (-told[rank], rank))
        return _Order(
            (*(first[rank] for rank in by_dear), *order.places[asked:]),
            (*(told[rank] for rank in by_dear), *order.relevances[asked:]),
            order.slack,
        )

    async def _tried(
        self, ctx: RequestContext, model: Model, most_ms: int, work: Awaitable[_Order]
    ) -> _Order | None:
        """What ``work`` comes to in time; whatever a model does wrong costs its order alone."""
        most_s, left_s = most_ms / 1000.0, ctx.deadline.remaining()
        try:
            async with asyncio.timeout(min(most_s, left_s)):
                order = await work
            self._tally.worked(model)
            return order
        except TimeoutError:
            reason = "timeout"
        except ForebayError as error:
            reason = error.code
        # A model is foreign code behind a protocol, and there is an order without it.
        except Exception:
            reason = "reranker_error"
        self._tally.failed(model, reason, had_its_time=most_s <= left_s)
        ctx.degrade(STAGE, _BELOW[model], reason)
        return None


def _note(ctx: RequestContext) -> None:
    """Mark the stage that the search recorded of its scorer."""
    for record in reversed(ctx.stages):
        if record.name == STAGE:
            record.attributes["reranker"] = LIGHT
            return


def _by_scores(told: Told) -> _Order:
    scores = told.scores
    places = tuple(sorted(range(len(scores)), key=lambda place: (-scores[place], place)))
    ranked = [scores[place] for place in places]
    slack = min((one - two for one, two in pairwise(ranked)), default=math.inf)
    return _Order(places, tuple(told.relevances[place] for place in places), slack)


def text_of(hit: Hit) -> str:
    """What a dear model reads of a hit: where it stands and what it says."""
    chunk = hit.chunk
    head = " > ".join(filter(None, (chunk.title, *chunk.heading_path)))
    return "\n".join(filter(None, (head, chunk.context, chunk.text)))


def _arranged(hits: tuple[Hit, ...], order: _Order, wanted: int) -> tuple[Hit, ...]:
    """The hits in their new order; scores of the search go to places, so that they still fall."""
    falling = sorted((hit.score for hit in hits), reverse=True)
    cosines = sorted((h.cosine for h in hits[:wanted] if h.cosine is not None), reverse=True)
    # Whoever asks how far the best leads over the rest means hits as they come, not picked ones.
    rest = cosines[2:]
    around = sum(rest) / len(rest) if rest else None
    return tuple(
        msgspec.structs.replace(hits[place], score=score, rerank=relevance, around=around)
        for place, score, relevance in zip(
            order.places[:wanted], falling, order.relevances, strict=False
        )
    )


def _rests_on(evidence: Evidence | None, wide: int, slack: float) -> Evidence | None:
    """An order stands as long as its candidates do, and as nothing comes near to turning it."""
    if evidence is None:
        return None
    lead = min(evidence.edge, slack / _STEEPNESS)
    return msgspec.structs.replace(evidence, lead=lead, chosen_from=wide)
