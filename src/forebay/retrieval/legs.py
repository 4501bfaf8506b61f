"""The two legs of a search side by side: what meaning found, and both as one ranking."""

from __future__ import annotations

import msgspec
import numpy as np

from forebay.retrieval.fusion import Floats, credit_foreign, fuse, meaning_score, words_score
from forebay.retrieval.languages import foreign_mask
from forebay.retrieval.lexical_search import LexicalHits, LexicalQuery
from forebay.retrieval.searching import Ranked, Search
from forebay.retrieval.segments import Floats32, Ids

PROPOSED_MAX = 4096
"""Vectors looked at for a reader with few rights, when nobody can say which chunks those are."""


class VectorLeg(msgspec.Struct, frozen=True):
    """The vector leg's hits, best first, and the cosines of both legs' hits (NaN: no vector).

    ``vectors``: those of ``ids``, where there are any.
    """

    query: Floats32
    best: Ids
    best_scores: Floats32
    ids: Ids
    cosine: Floats
    background: float
    vectors: Floats32 | None = None


def search_vectors(search: Search, query: Floats32, words: LexicalHits | None) -> VectorLeg:
    """Search by a vector of shape (1, dimensions), beside what words found; None: without them."""
    snapshot = search.snapshot
    background = snapshot.vectors.background(query)
    if words is None:
        # Nobody can say beforehand which chunks may be seen: the record says it of each.
        limit = PROPOSED_MAX if search.demands else search.limit
        found, scores = snapshot.search_vectors(query, limit, ())
        return VectorLeg(query, found, scores, found, scores.astype(np.float64), background)
    found, scores = snapshot.search_vectors(query, search.limit, search.demands)
    ids = np.array(sorted({*found.tolist(), *words.ids.tolist()}), np.int64)
    cosine, vectors = snapshot.vectors.score(query, ids)
    return VectorLeg(query, found, scores, ids, cosine.astype(np.float64), background, vectors)


def fuse_legs(
    search: Search,
    query: LexicalQuery,
    words: LexicalHits,
    vector: VectorLeg,
    weight: float,
    foreign_words: float,
) -> Ranked:
    """Both legs' candidates, best first; ``weight`` and ``foreign_words`` as in ``fusion``."""
    ids, lexical = vector.ids, search.snapshot.lexical
    bm25 = np.zeros(len(ids))
    by_words = np.searchsorted(ids, words.ids)
    bm25[by_words] = words.scores
    packed: list[bytes | None] = [None] * len(ids)
    for place, data in zip(by_words.tolist(), words.packed, strict=True):
        packed[place] = data
    rest = [place for place, data in enumerate(packed) if data is None]
    facts = lexical.facts(ids[rest].tolist())
    bm25[rest] = lexical.bm25(query, facts)
    for place, found in zip(rest, facts, strict=True):
        packed[place] = found
    meaning = meaning_score(vector.cosine, vector.background)
    foreign = foreign_mask(packed, search.request.query)
    held = credit_foreign(words_score(bm25, query.ideal), meaning, foreign, foreign_words)
    scores = fuse(held, meaning, weight)
    order = np.lexsort((ids, -scores))
    ranked = [packed[place] for place in order.tolist()]
    return Ranked(ids[order], scores[order], bm25[order], vector.cosine[order], ranked)
