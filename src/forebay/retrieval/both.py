"""Words and a vector of the query as one ranking, and what that rests on."""

from __future__ import annotations

import msgspec

from forebay.kernel.caching import Evidence
from forebay.retrieval.evidence import Fused, MeaningLeg, evidence_of, leg_list, meaning_constants
from forebay.retrieval.fusion import QueryFeatures, compare_legs, words_weight
from forebay.retrieval.legs import VectorLeg, fuse_legs
from forebay.retrieval.searching import Ranked, Search
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.words import Words, asked_of


class Both(msgspec.Struct, frozen=True):
    """Both legs' candidates, best first; ``features``: what the legs say together.

    ``nearest``: the best by vector; None: none was found.
    """

    ranked: Ranked
    features: QueryFeatures
    weights: tuple[float, float]
    nearest: int | None


def rank_both(settings: RetrievalSettings, search: Search, words: Words, vector: VectorLeg) -> Both:
    """Fuse what words found with what a vector found."""
    features = compare_legs(words.features, words.hits.ids, vector.best)
    weight = words_weight(features, settings.fusion, search.request.kind)
    foreign_words = settings.fusion.foreign_words
    ranked = fuse_legs(search, words.query, words.hits, vector, weight, foreign_words)
    nearest = int(vector.best[0]) if len(vector.best) else None
    return Both(ranked, features, (weight, foreign_words), nearest)


def evidence_of_both(
    search: Search, words: Words, vector: VectorLeg, both: Both, fused: Fused
) -> Evidence | None:
    """What hits of ``both`` rest on; None: nobody can tell."""
    vectors = search.snapshot.vectors
    constants = meaning_constants(
        vectors.fingerprint or "", vector.query, vector.cosine, vector.background, both.weights
    )
    asked = asked_of(search, words.query)
    leg = MeaningLeg(leg_list(vector.best, vector.best_scores, asked.limit), constants)
    # Words of a newer version than the vectors: what came between cannot be told later.
    whole = vectors.version >= search.snapshot.version
    fused = fused.within(words.exit.leeway)
    return evidence_of(asked, words.hits, leg, fused) if whole else None
