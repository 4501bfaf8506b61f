"""The rung between both legs and words alone, and when it does for a question as well.

A light encoder gives the query a vector in the embedder's space for some microseconds. Where the
embedder is out of reach, words and that vector find far more than words alone (benchmarks/request).
Where it is not, the light vector's ranking can tell whether the embedder's would be better:

    z = bias + sure * p + overlap * o + best * b + vector * v + lead * l + agree * a

p: probability that the best word hit is right; o: share of the legs' first ten in common; b, v:
whether the best by words, by vector, is the best of both; l: the best one's lead over the second,
as a share of its score; a: both legs have the same best hit. z is the log-odds that the embedder
would find better (by .01 of nDCG@10); it is asked where these are 1 to 19 or more. Fitted by
``benchmarks/retrieval/light.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from forebay.kernel.context import Coverage, RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.retrieval.both import Both, evidence_of_both, rank_both
from forebay.retrieval.legs import search_vectors
from forebay.retrieval.relevance import probability
from forebay.retrieval.searching import (
    Answer,
    Indexes,
    Lap,
    Search,
    Searching,
    beyond_copies,
    fetch,
)
from forebay.retrieval.segments import Floats32
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.words import (
    Words,
    answer_by_words,
    by_words,
    enough,
    find_words,
    told_by_words,
)

LightVector = Callable[[str], Floats32 | None]
"""A query's light vector (1, dimensions); None: nothing is fitted yet, or too few words are known.
Blocks for some microseconds, and for milliseconds when an encoder is loaded."""
LIGHT = "static+bm25"


class _Odds(NamedTuple):
    """Coefficients of the log-odds that the embedder finds better."""

    bias: float = -0.57
    sure: float = -0.622
    overlap: float = 0.836
    best: float = 0.154
    vector: float = 0.163
    lead: float = -10.773
    agree: float = -1.272


ODDS = _Odds()
RISK = 0.05
"""The chance that the embedder would find better from which it is asked."""


class LightRetriever:
    """``Retriever`` by words and the light vector, for when the embedder is out of reach.

    Nobody may keep what it finds. Without a light vector it answers by words.
    """

    def __init__(
        self,
        indexes: Indexes,
        light: LightVector,
        fingerprint: str,
        settings: RetrievalSettings,
        executor: Executor,
    ) -> None:
        """``fingerprint``: of the embedder in whose space light vectors are."""
        self._searching = Searching(indexes, settings, executor)
        self._light = light
        self._fingerprint = fingerprint

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``; ``PartFailed`` when the words cannot be searched."""
        with self._searching.entered(ctx, request) as search:
            return await self._searching.followed(search, self._all)

    async def _all(self, search: Search) -> SearchResult:
        return await beyond_copies(search, self._retrieve)

    async def _retrieve(self, search: Search) -> SearchResult:
        vectors = search.snapshot.vectors
        if not vectors.rows or vectors.fingerprint != self._fingerprint:
            return await by_words(self._searching, search, chosen=False)

        def work(words: Words, lap: Lap) -> tuple[Answer, bool]:
            sure = enough(search, words)
            both = None if sure else rank_lightly(self._searching, search, words, self._light, lap)
            lap("fusion")
            if both is None:
                return answer_by_words(self._searching, search, words, sure=sure), False
            hits, _ = fetch(search, both.ranked, distinct=self._searching.settings.distinct)
            return Answer(hits, None), True

        words, (answer, lightly) = await find_words(self._searching, search, work)
        if not lightly:
            return told_by_words(search, words, answer, sure=enough(search, words))
        return told_lightly(search, words, answer, sure=False)


def rank_lightly(
    searching: Searching, search: Search, words: Words, light: LightVector, lap: Lap
) -> Both | None:
    """Both legs by the light vector; None where there is none. Blocks."""
    lap("search.vector")
    query = light(search.request.query)
    if query is None:
        return None
    return rank_both(searching.settings, search, words, search_vectors(search, query, words.hits))


def answer_lightly(
    searching: Searching, search: Search, words: Words, light: LightVector, lap: Lap
) -> Answer | None:
    """The answer by the light vector where the embedder would find none that is better; else None.

    It rests on what it found, as one by the embedder does, and may be kept. Blocks.
    """
    # One sure first hit says nothing of a second document that is wanted, too.
    if math.isinf(words.exit.leeway) and words.features.share > 0.0:
        return None
    lap("search.vector")
    query = light(search.request.query)
    if query is None:
        return None
    vector = search_vectors(search, query, words.hits)
    lap("fusion")
    settings = searching.settings
    both = rank_both(settings, search, words, vector)
    if risk(both, probability(words.features, settings.relevance), words) >= RISK:
        return None
    hits, fused = fetch(search, both.ranked, distinct=settings.distinct)
    return Answer(hits, evidence_of_both(search, words, vector, both, fused))


def risk(both: Both, sure: float, words: Words) -> float:
    """The chance, 0..1, that the embedder's vector would find better than ``both``."""
    if not len(both.ranked.ids) or not len(words.hits.ids):
        return 1.0
    odds = sum(weight * sign for weight, sign in zip(ODDS, signs(both, sure, words), strict=True))
    return 1.0 / (1.0 + math.exp(-odds))


def signs(both: Both, sure: float, words: Words) -> tuple[float, ...]:
    """What is decided by, in the order of the coefficients; something was found by words."""
    ranked, features = both.ranked, both.features
    scores, best = ranked.scores[:2].tolist(), ranked.ids[0]
    lead = (scores[0] - scores[1]) / scores[0] if len(scores) > 1 and scores[0] > 0.0 else 1.0
    return (
        1.0,
        sure,
        features.overlap,
        float(words.hits.ids[0] == best),
        float(both.nearest == best),
        lead,
        float(features.agree),
    )


def told_lightly(search: Search, words: Words, answer: Answer, *, sure: bool) -> SearchResult:
    """The result that ``answer`` is; ``sure``: the embedder would hardly have found better."""
    search.ctx.rung = LIGHT
    snapshot = search.snapshot
    share = min(1.0, snapshot.vectors.rows / max(1, snapshot.lexical.chunks))
    return SearchResult(
        answer.hits,
        LIGHT,
        snapshot.version,
        answer.evidence,
        coverage=Coverage(words=1.0, vectors=share),
        sure=sure,
        uses=(words.use,),
    )
