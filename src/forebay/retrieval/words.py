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
_STAGES = ("query.parse", "search.lexical")


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
            return await beyond_copies(search, self._retrieve)

    async def _retrieve(self, search: Search) -> SearchResult:
        words = await find_words(self._searching, search)
        sure = self._chosen or enough(search, words)
        return await by_words(self._searching, search, words, sure=sure)


def enough(search: Search, words: Words) -> bool:
    """Whether vectors could add nothing: words are sure, or there is nothing to find."""
    return words.exit.taken or not search.snapshot.lexical.chunks


async def find_words(searching: Searching, search: Search) -> Words:
    """Search by words; ``PartFailed`` when they cannot be searched in time."""
    trial = searching.trial(search.ctx, searching.settings.words_timeout_ms)

    def work(lap: Lap) -> tuple[LexicalQuery, LexicalHits]:
        trial.begin(here=True)
        lexical = search.snapshot.lexical
        query = lexical.parse(search.request.query)
        lap()
        found = lexical.search(query, search.demands, search.limit)
        trial.done()
        return query, found

    query, hits = await _in_time(searching, search, trial, work)
    features, settings = word_features(query, hits.scores, hits.coverage), searching.settings
    early = decide(
        features,
        settings.relevance,
        settings.early_exit_confidence,
        several=wants_several(search.request.query, search.request.kind),
    )
    return Words(query, hits, features, early, PartUse(WORDS_PART, trial.took_s))


async def _in_time(
    searching: Searching, search: Search, trial: Trial, work: Callable[[Lap], T]
) -> T:
    ctx = search.ctx
    try:
        async with trial:
            return await searching.work(ctx, _STAGES, work)
    except (TimeoutError, DeadlineExceeded) as error:
        if ctx.deadline.expired():
            raise DeadlineExceeded("The request's deadline passed during the search.") from error
        raise trial.failed(WORDS_PART) from error
    except (IndexDamaged, StoreError) as error:
        raise PartFailed(WORDS_PART, "index_damaged") from error


async def by_words(
    searching: Searching, search: Search, words: Words, *, sure: bool, alone: bool = False
) -> SearchResult:
    """Answer by words alone; ``sure``: that is as good as any answer; ``alone``: for want of
    chunks in another language, the first of which would be looked at.
    """

    def work(_: Lap) -> Answer:
        return answer_by_words(searching, search, words, sure=sure, alone=alone)

    answer = await searching.work(search.ctx, ("fusion",), work)
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
    """The hits of words alone; blocks for their texts."""
    unseen = np.full(len(words.hits.ids), np.nan)
    shares = words_score(words.hits.scores, words.query.ideal)
    ranked = Ranked(words.hits.ids, shares, words.hits.scores, unseen, words.hits.packed)
    hits, fused = fetch(search, ranked, distinct=searching.settings.distinct)
    if words.exit.taken:
        fused = fused.within(words.exit.leeway)
    asked = msgspec.structs.replace(asked_of(search, words.query), alone=alone)
    return Answer(hits, evidence_of(asked, words.hits, None, fused) if sure else None)


def asked_of(search: Search, query: LexicalQuery) -> Asked:
    """The search as its evidence tells it."""
    return Asked(search.request.query, query, search.demands, search.snapshot.lexical, search.limit)
