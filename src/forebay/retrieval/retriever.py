"""The retriever: words first, then meaning, fused per query; rights inside every leg."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import TypeVar

import faiss
import msgspec
import numpy as np

from forebay.kernel.caching import Evidence, LegList
from forebay.kernel.context import RequestContext, StageRecord
from forebay.kernel.documents import Hit
from forebay.kernel.errors import (
    DeadlineExceeded,
    ForebayError,
    InvalidRequest,
    Overloaded,
    StoreError,
)
from forebay.kernel.stages import Embedder, HitVectors, IndexFeed, SearchRequest, SearchResult
from forebay.retrieval.evidence import (
    Asked,
    Fused,
    MeaningLeg,
    evidence_of,
    leg_list,
    meaning_constants,
)
from forebay.retrieval.fusion import (
    Floats,
    QueryFeatures,
    compare_legs,
    confidence,
    credit_foreign,
    fuse,
    meaning_score,
    word_features,
    words_score,
    words_weight,
)
from forebay.retrieval.index import KbIndex, Snapshot
from forebay.retrieval.keys import filter_keys, passes
from forebay.retrieval.languages import foreign_mask
from forebay.retrieval.lexical_base import Demands
from forebay.retrieval.lexical_search import LexicalHits, LexicalQuery
from forebay.retrieval.segments import Floats32, Ids, decode
from forebay.retrieval.settings import RetrievalSettings

T = TypeVar("T")
Lap = Callable[[], None]

HYBRID = "vector+bm25"
WORDS = "bm25"
_ROWS_AT_ONCE = 64
_SPARE = 20
"""Candidates a leg hands over beyond the hits asked for, so that the other leg can lift them."""

_TWINS = 1e-7
"""Hits closer than this are the same text twice: no statistics can tell them apart."""


class _NoVectors(Exception):
    """Why this search goes by words alone: a short stable word."""


class _Ranked(msgspec.Struct, frozen=True):
    """Candidates best first, with the raw scores of both legs (NaN: unseen)."""

    ids: Ids
    scores: Floats
    bm25: Floats
    cosine: Floats


class _Search(msgspec.Struct, frozen=True):
    """One request's constants."""

    ctx: RequestContext
    request: SearchRequest
    feed: IndexFeed
    snapshot: Snapshot
    demands: Demands


class _Answer(msgspec.Struct, frozen=True):
    """Hits with their texts, and what they rested on (None: nobody can tell)."""

    hits: tuple[Hit, ...]
    evidence: Evidence | None
    vectors: HitVectors | None = None


class _Words(msgspec.Struct, frozen=True):
    """What the word leg found."""

    query: LexicalQuery
    hits: LexicalHits
    features: QueryFeatures


def search_executor(threads: int) -> ThreadPoolExecutor:
    """Return the pool searches run in: FAISS's own threads are switched off in each of its."""
    return ThreadPoolExecutor(
        max_workers=threads,
        thread_name_prefix="search",
        initializer=faiss.omp_set_num_threads,
        initargs=(1,),
    )


class HybridRetriever:
    """``Retriever`` over the indexes of a process; ``executor`` comes from ``search_executor``.

    Never fails for want of vectors: without vectors, with another embedder's vectors, and when
    embedding fails or takes over ``vector_timeout_ms``, words alone answer and the context says
    why. Without an embedder words alone answer, as was chosen.
    """

    def __init__(
        self,
        indexes: Callable[[str], KbIndex],
        embedder: Embedder | None,
        settings: RetrievalSettings,
        executor: Executor,
        *,
        with_vectors: bool = False,
    ) -> None:
        """``with_vectors``: results carry the vectors of their hits, for a reranker."""
        self._with_vectors = with_vectors
        self._indexes = indexes
        self._embedder = embedder
        self._settings = settings
        self._executor = executor
        self._in_flight = 0

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return at most ``top_k`` hits the principal may read, best first.

        ``Hit.score`` is in 0..1. Raises ``InvalidRequest`` for a ``top_k`` out of bounds,
        ``Overloaded`` beyond ``in_flight_max``, ``DeadlineExceeded``, and what the index lookup
        raises for an unknown kb.
        """
        if not 1 <= request.top_k <= self._settings.top_k_max:
            raise InvalidRequest(
                f"top_k must be between 1 and {self._settings.top_k_max}.", param="top_k"
            )
        if self._in_flight >= self._settings.in_flight_max:
            raise Overloaded("Too many searches are running; try again shortly.")
        self._in_flight += 1
        try:
            return await self._retrieve(ctx, request)
        finally:
            self._in_flight -= 1

    async def _retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        index = self._indexes(request.kb)
        snapshot = index.snapshot()
        if ctx.kb_version is None:
            ctx.kb_version = snapshot.version
        demands = filter_keys(request.filter, ctx.principal.groups)
        search = _Search(ctx, request, index.feed, snapshot, demands)
        query, words = await self._work(
            ctx, ("query.parse", "search.lexical"), lambda lap: self._words(search, lap)
        )
        features = word_features(query.known, words.scores, words.coverage)
        rung, answer = HYBRID, None
        embedder = self._embedder
        # Who set no embedder up has chosen words, as a sure search does: that is no step down.
        enough = embedder is None or not snapshot.lexical.chunks or self._sure(features)
        if embedder is not None and not enough:
            answer = await self._by_both(search, _Words(query, words, features), embedder)
        if answer is None:
            rung = WORDS
            answer = await self._work(
                ctx, ("fusion",), lambda _: self._by_words(search, query, words, chosen=enough)
            )
        ctx.rung = rung
        return SearchResult(answer.hits, rung, snapshot.version, answer.evidence, answer.vectors)

    def _words(self, search: _Search, lap: Lap) -> tuple[LexicalQuery, LexicalHits]:
        lexical = search.snapshot.lexical
        query = lexical.parse(search.request.query)
        lap()
        return query, lexical.search(query, search.demands, self._limit(search))

    def _limit(self, search: _Search) -> int:
        return max(self._settings.candidates, search.request.top_k + _SPARE)

    def _sure(self, features: QueryFeatures) -> bool:
        return confidence(features) >= self._settings.early_exit_confidence

    async def _by_both(self, search: _Search, words: _Words, embedder: Embedder) -> _Answer | None:
        """Embed, search by meaning and fuse; None, with the reason noted, when that fails."""
        ctx = search.ctx
        try:
            _check_usable(embedder, search.snapshot)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(self._settings.vector_timeout_ms / 1000.0) as limit:
                with ctx.stage("embedding"):
                    found = await embedder.embed([search.request.query], kind="query")
                if found.cached is not None and ctx.cache["embedding"] == "off":
                    ctx.cache["embedding"] = "hit" if found.cached else "miss"
                query = decode(found.data, 1, found.dimensions)

                def fused(lap: Lap) -> _Answer:
                    vector = _search_vectors(search, query, words.hits, self._limit(search))
                    lap()
                    # What follows is not the vectors' time.
                    loop.call_soon_threadsafe(_lift, limit)
                    return self._fused(search, words, vector)

                return await self._work(ctx, ("search.vector", "fusion"), fused)
        except _NoVectors as reason:
            ctx.degrade("retrieval", WORDS, str(reason))
        except TimeoutError:
            ctx.degrade("retrieval", WORDS, "vector_timeout")
        except DeadlineExceeded:
            if ctx.deadline.expired():
                raise
            ctx.degrade("retrieval", WORDS, "vector_timeout")
        except ForebayError as error:
            ctx.degrade("retrieval", WORDS, error.code)
        # An embedder is foreign code behind a protocol: whatever it raises, the words have
        # already found something, and that answer must not be lost with it.
        except Exception:
            ctx.degrade("retrieval", WORDS, "embedder_error")
        return None

    async def _work(
        self, ctx: RequestContext, stages: Sequence[str], work: Callable[[Lap], T]
    ) -> T:
        """Run ``work`` in the pool, its wait for a thread told apart.

        Each change of threads costs a tenth of a millisecond, so that one ``work`` may be several
        stages; it calls its argument at the end of each but the last.
        """
        loop, clock = asyncio.get_running_loop(), ctx.clock
        limit = loop.time() + ctx.deadline.remaining()
        laps: list[float] = []

        def timed() -> T:
            laps.append(clock.now())
            try:
                return work(lambda: laps.append(clock.now()))
            except Exception:
                raise
            # A panic inside an engine is no Exception; it must end this search, not the loop.
            except BaseException as error:
                raise StoreError("The search index is damaged; restart to rebuild it.") from error

        try:
            with ctx.stage(stages[0]) as record:
                try:
                    async with asyncio.timeout_at(limit):
                        return await loop.run_in_executor(self._executor, timed)
                except TimeoutError as error:
                    raise DeadlineExceeded(
                        "The request's deadline passed during the search."
                    ) from error
        finally:
            _tell_apart(ctx, record, stages, tuple(laps))

    def _fused(self, search: _Search, words: _Words, vector: _VectorLeg) -> _Answer:
        compared = compare_legs(words.features, words.hits.ids, vector.best)
        weight = words_weight(compared, self._settings.fusion)
        foreign_words = self._settings.fusion.foreign_words
        ranked = _fuse(search, words.query, words.hits, vector, weight, foreign_words)
        hits, fused = _fetch(search, ranked)
        vectors = search.snapshot.vectors
        constants = meaning_constants(
            vectors.fingerprint or "",
            vector.query,
            vector.cosine,
            vector.background,
            (weight, foreign_words),
        )
        asked = self._asked(search, words.query)
        leg = MeaningLeg(leg_list(vector.best, vector.best_scores, asked.limit), constants)
        # Words of a newer version than the vectors: what came between cannot be told later.
        whole = vectors.version >= search.snapshot.version
        evidence = evidence_of(asked, words.hits, leg, fused) if whole else None
        return _Answer(hits, evidence, self._vectors_of(search, vector.query, hits))

    def _vectors_of(
        self, search: _Search, query: Floats32, hits: tuple[Hit, ...]
    ) -> HitVectors | None:
        if not self._with_vectors:
            return None
        ids = np.array([hit.chunk.chunk_id for hit in hits], np.int64)
        rows, _ = search.snapshot.vectors.stored(ids)
        return HitVectors(query.tobytes(), rows.tobytes(), query.shape[1])

    def _by_words(
        self, search: _Search, query: LexicalQuery, words: LexicalHits, *, chosen: bool
    ) -> _Answer:
        """``chosen``: nothing failed; words alone are the whole answer."""
        unseen = np.full(len(words.ids), np.nan)
        shares = words_score(words.scores, query.ideal)
        hits, fused = _fetch(search, _Ranked(words.ids, shares, words.scores, unseen))
        asked = self._asked(search, query)
        return _Answer(hits, evidence_of(asked, words, None, fused) if chosen else None)

    def _asked(self, search: _Search, query: LexicalQuery) -> Asked:
        return Asked(
            search.request.query,
            query,
            search.demands,
            search.snapshot.lexical,
            self._limit(search),
        )


def _check_usable(embedder: Embedder, snapshot: Snapshot) -> None:
    if not snapshot.vectors.rows:
        raise _NoVectors("not_embedded")
    if snapshot.vectors.fingerprint != embedder.spec.fingerprint:
        raise _NoVectors("reembed_needed")


def _lift(limit: asyncio.Timeout) -> None:
    """Take a time-out away, unless it has expired or its block has ended."""
    with suppress(RuntimeError):
        limit.reschedule(None)


def _tell_apart(
    ctx: RequestContext, record: StageRecord, stages: Sequence[str], laps: Sequence[float]
) -> None:
    """Divide what was recorded as one stage; the last one that began has the outcome."""
    if not laps:
        return
    ended_at, outcome = record.started_at + record.worked_s, record.outcome
    record.waited_s = max(0.0, laps[0] - record.started_at)
    for name, begun_at, end_at in zip(stages, laps, (*laps[1:], ended_at), strict=False):
        if name != record.name:
            record.outcome = "ok"
            record = StageRecord(name, begun_at, outcome=outcome, attributes={})
            ctx.stages.append(record)
        record.worked_s = max(0.0, end_at - begun_at)


class _VectorLeg(msgspec.Struct, frozen=True):
    """The vector leg's hits, best first, and the cosines of both legs' hits (NaN: no vector)."""

    query: Floats32
    best: Ids
    best_scores: Floats32
    ids: Ids
    cosine: Floats
    background: float


def _search_vectors(search: _Search, query: Floats32, words: LexicalHits, limit: int) -> _VectorLeg:
    snapshot = search.snapshot
    found, scores = snapshot.search_vectors(query, limit, search.demands)
    ids = np.union1d(found, words.ids)
    cosine = snapshot.vectors.score(query, ids).astype(np.float64)
    background = snapshot.vectors.background(query).mean
    return _VectorLeg(query, found, scores, ids, cosine, background)


def _fuse(
    search: _Search,
    query: LexicalQuery,
    words: LexicalHits,
    vector: _VectorLeg,
    weight: float,
    foreign_words: float,
) -> _Ranked:
    ids, lexical = vector.ids, search.snapshot.lexical
    bm25 = np.zeros(len(ids))
    bm25[np.searchsorted(ids, words.ids)] = words.scores
    only_vector = np.setdiff1d(ids, words.ids)
    rest = lexical.score(query, only_vector.tolist())
    bm25[np.searchsorted(ids, rest.ids)] = rest.scores
    meaning = meaning_score(vector.cosine, vector.background)
    foreign = foreign_mask(lexical, search.request.query, ids)
    held = credit_foreign(words_score(bm25, query.ideal), meaning, foreign, foreign_words)
    scores = fuse(held, meaning, weight)
    order = np.lexsort((ids, -scores))
    return _Ranked(ids[order], scores[order], bm25[order], vector.cosine[order])


def _fetch(search: _Search, ranked: _Ranked) -> tuple[tuple[Hit, ...], Fused]:
    """Fetch texts, best first, until ``top_k`` remain; return these, and how they led.

    What has vanished, is newer than the snapshot or does not meet the demands is dropped: the
    legs have filtered already, but no text leaves on their word alone.
    """
    hits: list[Hit] = []
    places: list[int] = []
    wanted = search.request.top_k
    step = min(_ROWS_AT_ONCE, wanted + 2)
    for start in range(0, len(ranked.ids), step):
        ids: Sequence[int] = ranked.ids[start : start + step].tolist()
        rows = {row.chunk_id: row for row in search.feed.rows(search.request.kb, ids)}
        for place, chunk_id in enumerate(ids, start):
            row = rows.get(chunk_id)
            if row is None or row.version > search.snapshot.version:
                continue
            if not passes(row, search.demands):
                continue
            bm25, cosine = float(ranked.bm25[place]), float(ranked.cosine[place])
            places.append(place)
            hits.append(
                Hit(
                    chunk=row,
                    score=min(1.0, max(0.0, float(ranked.scores[place]))),
                    bm25=bm25 if bm25 > 0.0 else None,
                    cosine=None if np.isnan(cosine) else cosine,
                )
            )
            if len(hits) == wanted:
                return tuple(hits), _led(ranked, places, wanted)
    return tuple(hits), _led(ranked, places, wanted)


def _led(ranked: _Ranked, places: Sequence[int], wanted: int) -> Fused:
    if not places:
        return Fused(LegList(), math.inf, math.inf)
    scores = ranked.scores[: places[-1] + 2].tolist()
    hits = LegList(
        tuple(ranked.ids[places].tolist()),
        tuple(scores[place] for place in places),
        len(places) == wanted,
    )
    leads = (better - worse for better, worse in pairwise(scores))
    lead = min((lead for lead in leads if lead > _TWINS), default=math.inf)
    last = places[-1]
    edge = scores[last] - scores[last + 1] if last + 1 < len(scores) else math.inf
    return Fused(hits, lead, edge)
