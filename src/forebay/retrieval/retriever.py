"""The rungs that search by meaning: both legs fused per query, and vectors alone.

Words first, then meaning; rights inside every leg.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NoReturn

import msgspec
import numpy as np

from forebay.kernel.context import Coverage, RequestContext
from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineRefused,
    ForebayError,
    InvalidRequest,
    PartFailed,
)
from forebay.kernel.stages import (
    Embedder,
    HitVectors,
    PartUse,
    SearchRequest,
    SearchResult,
    Told,
    at_work_s,
    in_line,
)
from forebay.retrieval.beside import answer_by_sure_words
from forebay.retrieval.both import evidence_of_both, rank_both
from forebay.retrieval.engine import IndexDamaged
from forebay.retrieval.fusion import meaning_score
from forebay.retrieval.index import Snapshot
from forebay.retrieval.legs import VectorLeg, search_vectors
from forebay.retrieval.lexical_search import LexicalHits
from forebay.retrieval.light import LightVector, answer_lightly, told_lightly
from forebay.retrieval.patience import Trial
from forebay.retrieval.relevance import probability
from forebay.retrieval.searching import (
    SPARE,
    SPARE_RANKED,
    VECTORS_PART,
    WORDS_PART,
    Answer,
    Indexes,
    Lap,
    Ranked,
    Search,
    Searching,
    beyond_copies,
    fetch,
)
from forebay.retrieval.segments import Floats32, decode
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.words import Words, by_words, enough, find_words, told_by_words

Scorer = Callable[[str, Sequence[Hit], HitVectors], tuple[Sequence[float], Sequence[float]]]
"""Per hit a score, which orders them, and a relevance in 0..1; blocks for a millisecond."""
HYBRID, MEANING = "vector+bm25", "vector"
PARTLY_EMBEDDED = "partly_embedded"
"""Why an answer by both legs is flagged: of many chunks only the words could be searched."""
_AMONG = 10
"""Where the vector leg must have what words were fairly sure of, to have found it (F0.11)."""


class HybridRetriever:
    """``Retriever`` by both legs; ``executor`` comes from ``search_executor``.

    Words that are sure skip the vectors. Without an embedder words alone answer, as was chosen.
    ``PartFailed`` without vectors, with another embedder's vectors, when embedding fails or takes
    over ``vector_timeout_ms``, and when the words cannot be searched.
    """

    def __init__(
        self,
        indexes: Indexes,
        embedder: Embedder | None,
        settings: RetrievalSettings,
        executor: Executor,
        *,
        with_vectors: bool = False,
        scorer: Scorer | None = None,
    ) -> None:
        """``with_vectors``: results carry the vectors of their hits, for a reranker; ``scorer``
        tells what it thinks of these while their thread has them.
        """
        self._light: LightVector | None = None
        self._with_vectors = with_vectors
        self._scorer = scorer
        spare = SPARE_RANKED if with_vectors else SPARE
        self._searching = Searching(indexes, settings, executor, spare=spare)
        self._embedder = embedder

    def lightly(self, light: LightVector) -> HybridRetriever:
        """Ask ``light`` first from now on, and the embedder only where it would find better.

        Not for a reranker, which is used to the embedder's vectors. Returns this retriever.
        """
        self._light = None if self._with_vectors else light
        return self

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return at most ``top_k`` hits the principal may read, best first.

        ``Hit.score`` is in 0..1. Raises ``InvalidRequest`` for a ``top_k`` out of bounds,
        ``Overloaded`` beyond ``in_flight_max``, ``DeadlineExceeded``, ``PartFailed``, and what the
        index lookup raises for an unknown kb.
        """
        with self._searching.entered(ctx, request) as search:
            result = await self._searching.followed(search, self._all)
            return _told_in_part(search, result, self._searching.settings.whole_share)

    async def _all(self, search: Search) -> SearchResult:
        return await beyond_copies(search, self._retrieve)

    async def _retrieve(self, search: Search) -> SearchResult:
        searching, settings = self._searching, self._searching.settings
        embedder = self._embedder
        if embedder is not None and search.snapshot.lexical.chunks:
            _check_usable(embedder, search.snapshot)
        # Who set no embedder up has chosen words, as a sure search does: no step down.
        if embedder is None:
            return await by_words(searching, search, chosen=True)
        make = _in_line(searching, search, embedder)
        found: Answer | _Found | None
        if make is not None:
            words, found = await self._at_once(search, make)
        else:
            words, found = await find_words(searching, search, self._by_sure_words(search))
        if found is None:

            def fused(vector: VectorLeg, lap: Lap) -> Answer:
                return self._fused(search, words, vector, lap)

            found = await _by_meaning(searching, search, embedder, words.hits, fused)
        if isinstance(found, Answer):
            told = told_by_words if enough(search, words) else told_lightly
            return told(search, words, found, sure=True)
        search.ctx.rung = HYBRID
        return SearchResult(
            found.answer.hits,
            HYBRID,
            search.snapshot.version,
            found.answer.evidence,
            found.answer.vectors,
            coverage=Coverage(words=1.0, vectors=_embedded_share(search.snapshot)),
            sure=True,
            uses=(words.use, *found.used(_witness(words, settings))),
        )

    def _by_sure_words(self, search: Search) -> Callable[[Words, Lap], Answer | None]:
        def work(words: Words, lap: Lap) -> Answer | None:
            if enough(search, words):
                return answer_by_sure_words(self._searching, search, words, lap)
            if self._light is None or search.request.hypothesis:
                return None
            return answer_lightly(self._searching, search, words, self._light, lap)

        return work

    async def _at_once(
        self, search: Search, make: Callable[[], Vectors]
    ) -> tuple[Words, Answer | _Found]:
        """Both legs in one turn of one thread, the query embedded in between where need be."""
        searching = self._searching
        trial = searching.trial(search.ctx, searching.settings.vector_timeout_ms)
        sure = self._by_sure_words(search)

        def go_on(words: Words, lap: Lap) -> Answer | _Found:
            answer = sure(words, lap)
            if answer is not None:
                trial.done()
                return answer
            lap("embedding")

            def fused(vector: VectorLeg, lap: Lap) -> Answer:
                return self._fused(search, words, vector, lap)

            return _worked(trial, search, make, words.hits, (fused, lap))

        try:
            async with trial:
                words, found = await find_words(searching, search, go_on)
        except PartFailed:
            raise
        # See ``_by_meaning``.
        except Exception as error:
            _raise_why(error, trial, search.ctx)
        if isinstance(found, _Found):
            _note_cached(search.ctx, found.remembered)
        return words, found

    def _fused(self, search: Search, words: Words, vector: VectorLeg, lap: Lap) -> Answer:
        settings = self._searching.settings
        both = rank_both(settings, search, words, vector)
        hits, fused = fetch(search, both.ranked, distinct=settings.distinct)
        evidence = evidence_of_both(search, words, vector, both, fused)
        vectors_of_hits = self._vectors_of(vector, hits)
        if vectors_of_hits is not None and self._scorer is not None and len(hits) > 1:
            lap("rerank")
            vectors_of_hits = self._told(search.request.query, hits, vectors_of_hits)
        return Answer(hits, evidence, vectors_of_hits)

    def _told(self, query: str, hits: tuple[Hit, ...], vectors: HitVectors) -> HitVectors:
        assert self._scorer is not None
        try:
            told = self._scorer(query, hits, vectors)
        # A model is foreign code: who orders hits asks it once more, and tells what went wrong.
        except Exception:
            return vectors
        return msgspec.structs.replace(vectors, told=Told(*told))

    def _vectors_of(self, leg: VectorLeg, hits: tuple[Hit, ...]) -> HitVectors | None:
        if not self._with_vectors or leg.vectors is None:
            return None
        ids = np.array([hit.chunk.chunk_id for hit in hits], np.int64)
        rows = leg.vectors[np.searchsorted(leg.ids, ids)]
        return HitVectors(leg.query.tobytes(), rows.tobytes(), leg.query.shape[1])


class MeaningRetriever:
    """``Retriever`` by vectors alone, for when words cannot be searched.

    Asks nothing of the word index: rights are looked up in the record, chunk by chunk.
    """

    def __init__(
        self, indexes: Indexes, embedder: Embedder, settings: RetrievalSettings, executor: Executor
    ) -> None:
        self._searching = Searching(indexes, settings, executor)
        self._embedder = embedder

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``HybridRetriever.retrieve``."""
        with self._searching.entered(ctx, request) as search:
            return await self._searching.followed(search, self._retrieve)

    async def _retrieve(self, search: Search) -> SearchResult:
        searching = self._searching
        _check_usable(self._embedder, search.snapshot)

        def alone(vector: VectorLeg, _: Lap) -> Answer:
            meaning = np.clip(meaning_score(vector.cosine, vector.background), 0.0, 1.0)
            unseen = np.zeros(len(vector.ids))
            ranked = Ranked(vector.ids, meaning, unseen, vector.cosine)
            distinct = searching.settings.distinct
            return Answer(fetch(search, ranked, distinct=distinct, by_words=False)[0], None)

        found = await _by_meaning(searching, search, self._embedder, None, alone)
        search.ctx.rung = MEANING
        return SearchResult(
            found.answer.hits,
            MEANING,
            search.snapshot.version,
            coverage=Coverage(words=0.0, vectors=_embedded_share(search.snapshot)),
            uses=found.used(None),
        )


class _Found(msgspec.Struct, frozen=True):
    """An answer with vectors; ``took_s``: what embedder and index worked.

    ``remembered``: no embedder was asked.
    """

    answer: Answer
    leg: VectorLeg
    took_s: float
    remembered: bool

    def used(self, witness: int | None) -> tuple[PartUse, ...]:
        """What the vector leg showed of itself; ``witness``: a chunk it should have found.

        One that has no vector yet is no witness against it.
        """
        if self.remembered:
            return ()
        found = None
        if witness is not None and not np.isnan(self.leg.cosine[self.leg.ids == witness]).any():
            found = witness in self.leg.best[:_AMONG]
        return (PartUse(VECTORS_PART, self.took_s, found),)


def _witness(words: Words, settings: RetrievalSettings) -> int | None:
    """The chunk that words are fairly sure of; None: they are not."""
    if probability(words.features, settings.relevance) < settings.witness_confidence:
        return None
    return int(words.hits.ids[0])


def _embedded_share(snapshot: Snapshot) -> float:
    return min(1.0, snapshot.vectors.rows / max(1, snapshot.lexical.chunks))


def _told_in_part(search: Search, result: SearchResult, whole_share: float) -> SearchResult:
    """The result, flagged and kept by nobody where too many chunks had no vector to be found by.

    Words see those all the same, so what left early is whole.
    """
    share = None if result.coverage is None else result.coverage.vectors
    if share is None or share >= whole_share:
        return result
    search.ctx.degrade("retrieval", result.rung, PARTLY_EMBEDDED)
    return msgspec.structs.replace(result, evidence=None)


def _check_usable(embedder: Embedder, snapshot: Snapshot) -> None:
    if not snapshot.vectors.rows:
        raise PartFailed(VECTORS_PART, "not_embedded", at_fault=False)
    if snapshot.vectors.fingerprint != embedder.spec.fingerprint:
        raise PartFailed(VECTORS_PART, "reembed_needed", at_fault=False)


async def _by_meaning(
    searching: Searching,
    search: Search,
    embedder: Embedder,
    words: LexicalHits | None,
    answer: Callable[[VectorLeg, Lap], Answer],
) -> _Found:
    """Embed, search by meaning, and answer; ``PartFailed`` when that takes too long or fails."""
    trial = searching.trial(search.ctx, searching.settings.vector_timeout_ms)
    try:
        async with trial:
            make, stage = _in_line(searching, search, embedder), "embedding"
            if make is None:
                vectors, stage = await _asked(trial, search, embedder), "search.vector"
                make = partial(_same, vectors)

            def work(lap: Lap) -> _Found:
                return _worked(trial, search, make, words, (answer, lap))

            found = await searching.work(search.ctx, stage, work)
            if stage == "embedding":
                _note_cached(search.ctx, found.remembered)
            return found
    # An embedder is foreign code behind a protocol: whatever it raises, another rung can answer.
    except Exception as error:
        _raise_why(error, trial, search.ctx)


def _worked(
    trial: Trial,
    search: Search,
    make: Callable[[], Vectors],
    words: LexicalHits | None,
    answering: tuple[Callable[[VectorLeg, Lap], Answer], Lap],
) -> _Found:
    """The query's vector, what it finds, and the answer to that; blocks."""
    answer, lap = answering
    trial.begin(here=True)
    made = make()
    lap("search.vector")
    leg = search_vectors(search, decode(made.data, 1, made.dimensions), words)
    # What follows is not the vectors' time.
    trial.done()
    lap("fusion")
    return _Found(answer(leg, lap), leg, trial.took_s, bool(made.cached))


def _raise_why(error: Exception, trial: Trial, ctx: RequestContext) -> NoReturn:
    """Raise what tells why there is no answer by meaning."""
    if isinstance(error, (TimeoutError, DeadlineExceeded)):
        if ctx.deadline.expired():
            raise DeadlineExceeded("The request's deadline passed during the search.") from error
        ctx.stages[-1].outcome = "timeout"
        raise trial.failed(VECTORS_PART) from error
    if isinstance(error, IndexDamaged):
        raise PartFailed(WORDS_PART, "index_damaged") from error
    if trial.is_done:
        raise error
    raise _failed(error) from error


def _same(vectors: Vectors) -> Vectors:
    return vectors


def _in_line(
    searching: Searching, search: Search, embedder: Embedder
) -> Callable[[], Vectors] | None:
    """What embeds the query in the thread that searches; None: another does."""
    if not searching.settings.embed_in_line or search.request.hypothesis:
        return None
    return in_line(embedder, search.request.query)


def _note_cached(ctx: RequestContext, remembered: bool) -> None:
    if ctx.cache["embedding"] == "off":
        ctx.cache["embedding"] = "hit" if remembered else "miss"


async def _asked(trial: Trial, search: Search, embedder: Embedder) -> Vectors:
    """The query's vector, beside that of a hypothesis where there is one."""
    vectors = await _embedded(trial, search, embedder)
    if not search.request.hypothesis:
        return vectors
    query = decode(vectors.data, 1, vectors.dimensions)
    query = await _beside(trial, embedder, search.request.hypothesis, query)
    return msgspec.structs.replace(vectors, data=query.tobytes())


async def _embedded(trial: Trial, search: Search, embedder: Embedder) -> Vectors:
    """The query's vector; waiting for a thread or a connection is not the embedder's time."""
    ctx = search.ctx
    trial.begin(partial(at_work_s, embedder))
    with ctx.stage("embedding"):
        vectors = await embedder.embed([search.request.query], kind="query")
    trial.pause(vectors.worked_s)
    if vectors.cached is not None and ctx.cache["embedding"] == "off":
        ctx.cache["embedding"] = "hit" if vectors.cached else "miss"
    return vectors


def _failed(error: Exception) -> PartFailed:
    """Why there are no vectors; a text that the embedder refuses says nothing of the embedder."""
    if not isinstance(error, ForebayError):
        return PartFailed(VECTORS_PART, "embedder_error")
    refused = isinstance(error, InvalidRequest) or (
        isinstance(error, EngineRefused) and not error.set_up_wrongly
    )
    return PartFailed(VECTORS_PART, error.code, at_fault=not refused)


async def _beside(trial: Trial, embedder: Embedder, hypothesis: str, query: Floats32) -> Floats32:
    """The middle between a query and a passage as an answer might read (HyDE, F3.10)."""
    trial.begin()
    found = await embedder.embed([hypothesis], kind="passage")
    trial.pause(found.worked_s)
    both = query + decode(found.data, 1, found.dimensions)
    length = float(np.linalg.norm(both))
    return both / np.float32(length) if length > 0.0 else query
