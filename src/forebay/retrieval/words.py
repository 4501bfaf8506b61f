"""The rung of words alone, and the leg of words that the rung above it shares."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
import numpy as np

from forebay.kernel.context import Coverage, RequestContext
from forebay.kernel.errors import DeadlineExceeded, PartFailed, StoreError
from forebay.kernel.stages import PartUse, SearchRequest, SearchResult
from forebay.retrieval.engine import IndexDamaged
from forebay.retrieval.evidence import Asked, evidence_of
from forebay.retrieval.fusion import QueryFeatures, word_features, words_score
from forebay.retrieval.lexical_search import LexicalHits, LexicalQuery
from forebay.retrieval.patience import Trial
from forebay.retrieval.relevance import Exit, decide
from forebay.retrieval.searching import (
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
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.several import wants_several

T = TypeVar("T")
WORDS = "bm25"


class Words(msgspec.Struct, frozen=True):
    """What the word leg found, and whether that is enough; ``use`` says how long that took."""

    query: LexicalQuery
    hits: LexicalHits
    features: QueryFeatures
    exit: Exit
    use: PartUse


class WordsRetriever:
    """``Retriever`` by BM25 alone.

    ``chosen``: nobody wanted vectors, so that words are the whole answer; else they are only
    where they are sure.
    """

    def __init__(
        self, indexes: Indexes, settings: RetrievalSettings, executor: Executor, *, chosen: bool
    ) -> None:
        self._searching = Searching(indexes, settings, executor)
        self._chosen = chosen

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``; ``PartFailed`` when the words cannot be searched."""
        with self._searching.entered(ctx, request) as search:
            return await self._searching.followed(search, self._all)

    async def _all(self, search: Search) -> SearchResult:
        return await beyond_copies(search, self._retrieve)

    async def _retrieve(self, search: Search) -> SearchResult:
        return await by_words(self._searching, search, chosen=self._chosen)


def enough(search: Search, words: Words) -> bool:
    """Whether vectors could add nothing: words are sure, or there is nothing to find."""
    return words.exit.taken or not search.snapshot.lexical.chunks


async def find_words(
    searching: Searching, search: Search, then: Callable[[Words, Lap], T]
) -> tuple[Words, T]:
    """Search by words, and do ``then`` in the same thread, in time that is not the words'.

    ``PartFailed`` when they cannot be searched in time; raises what ``then`` does.
    """
    trial = searching.trial(search.ctx, searching.settings.words_timeout_ms)

    def work(lap: Lap) -> tuple[Words, T]:
        trial.begin(here=True)
        lexical = search.snapshot.lexical
        query = lexical.parse(search.request.query)
        lap("search.lexical")
        hits = lexical.search(query, search.demands, search.limit)
        trial.done()
        words = _judged(searching, search, query, hits, trial.took_s)
        return words, then(words, lap)

    return await _in_time(searching, search, trial, work)


def _judged(
    searching: Searching, search: Search, query: LexicalQuery, hits: LexicalHits, took_s: float
) -> Words:
    features, settings = word_features(query, hits.scores, hits.coverage), searching.settings
    early = decide(
        features,
        settings.relevance,
        settings.early_exit_confidence,
        several=wants_several(search.request.query, search.request.kind),
    )
    return Words(query, hits, features, early, PartUse(WORDS_PART, took_s))


async def _in_time(
    searching: Searching, search: Search, trial: Trial, work: Callable[[Lap], T]
) -> T:
    ctx = search.ctx
    try:
        async with trial:
            return await searching.work(ctx, "query.parse", work)
    except (TimeoutError, DeadlineExceeded) as error:
        if ctx.deadline.expired():
            raise DeadlineExceeded("The request's deadline passed during the search.") from error
        if trial.is_done:
            raise
        raise trial.failed(WORDS_PART) from error
    except (IndexDamaged, StoreError) as error:
        if trial.is_done:
            raise
        raise PartFailed(WORDS_PART, "index_damaged") from error


async def by_words(searching: Searching, search: Search, *, chosen: bool) -> SearchResult:
    """Answer by words alone; ``chosen``: that is as good as any answer, as are sure words."""

    def work(words: Words, lap: Lap) -> Answer:
        lap("fusion")
        sure = chosen or enough(search, words)
        return answer_by_words(searching, search, words, sure=sure)

    words, answer = await find_words(searching, search, work)
    return told_by_words(search, words, answer, sure=chosen or enough(search, words))


def told_by_words(search: Search, words: Words, answer: Answer, *, sure: bool) -> SearchResult:
    """The result that ``answer`` is; ``sure``: no vectors could have added anything."""
    search.ctx.rung = WORDS
    return SearchResult(
        answer.hits,
        WORDS,
        search.snapshot.version,
        answer.evidence,
        coverage=Coverage(words=1.0, vectors=None if sure else 0.0),
        sure=sure,
        uses=(words.use,),
    )


def answer_by_words(
    searching: Searching, search: Search, words: Words, *, sure: bool, alone: bool = False
) -> Answer:
    """The hits of words alone; blocks for their texts.

    ``alone``: for want of chunks in another language, the first of which would be looked at.
    """
    unseen = np.full(len(words.hits.ids), np.nan)
    shares = words_score(words.hits.scores, words.query.ideal)
    ranked = Ranked(words.hits.ids, shares, words.hits.scores, unseen, words.hits.packed)
    distinct, wanted = searching.settings.distinct, search.request.unranked
    hits, fused = fetch(search, ranked, distinct=distinct, wanted=wanted)
    if words.exit.taken:
        fused = fused.within(words.exit.leeway)
    asked = msgspec.structs.replace(asked_of(search, words.query), alone=alone)
    return Answer(hits, evidence_of(asked, words.hits, None, fused) if sure else None)


def asked_of(search: Search, query: LexicalQuery) -> Asked:
    """The search as its evidence tells it."""
    return Asked(search.request.query, query, search.demands, search.snapshot.lexical, search.limit)
