"""What another language says of the same, beside words that are sure.

A search whose words are sure asks for no vector of the question, and only vectors cross languages.
But its best hit has a vector: what lies near that in the other language is found without an
embedder, and an answer can show both sides where documents of two languages differ.
"""

from __future__ import annotations

import msgspec
import numpy as np

from forebay.retrieval.evidence import MeaningLeg, evidence_of, leg_list, meaning_constants
from forebay.retrieval.legs import VectorLeg, fuse_legs, search_vectors
from forebay.retrieval.searching import Answer, Lap, Search, Searching, fetch
from forebay.retrieval.words import Words, answer_by_words, asked_of

_WORDS_ALONE = 1.0
"""The weight of words: all but chunks in another language are ordered by them."""


def answer_by_sure_words(searching: Searching, search: Search, words: Words, lap: Lap) -> Answer:
    """Answer by words that are sure, with what is near their best hit in another language; blocks
    for vectors and texts.
    """
    wanted = words.exit.taken and searching.settings.early_exit_foreign > 0.0
    if not wanted or not search.snapshot.lexical.has_foreign(search.request.query):
        lap("fusion")
        return answer_by_words(searching, search, words, sure=True, alone=wanted)
    lap("search.vector")
    vector, known = search.snapshot.vectors.stored(words.hits.ids[:1])
    leg = search_vectors(search, vector, words.hits) if known.all() else None
    lap("fusion")
    if leg is None:
        # Nobody may keep it: the vector is on its way.
        return answer_by_words(searching, search, words, sure=False)
    return _answer(searching, search, words, leg)


def _answer(searching: Searching, search: Search, words: Words, leg: VectorLeg) -> Answer:
    settings = searching.settings
    # Less than the best hit has itself: what is beside it stays behind it.
    credit = settings.early_exit_foreign * words.features.share
    ranked = fuse_legs(search, words.query, words.hits, leg, _WORDS_ALONE, credit)
    # Cosines to a chunk are none to the question.
    unseen = msgspec.structs.replace(ranked, cosine=np.full(len(ranked.ids), np.nan))
    wanted = search.request.unranked
    hits, fused = fetch(search, unseen, distinct=settings.distinct, wanted=wanted)
    vectors = search.snapshot.vectors
    constants = meaning_constants(
        vectors.fingerprint or "", leg.query, leg.cosine, leg.background, (_WORDS_ALONE, credit)
    )
    asked = asked_of(search, words.query)
    meant = MeaningLeg(leg_list(leg.best, leg.best_scores, asked.limit), constants)
    # Words of a newer version than the vectors: what came between cannot be told later.
    whole = vectors.version >= search.snapshot.version
    fused = fused.within(words.exit.leeway)
    return Answer(hits, evidence_of(asked, words.hits, meant, fused) if whole else None)
