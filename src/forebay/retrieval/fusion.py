"""Fuses the two legs' scores with a weight chosen per query.

Each leg's score is first put on a scale of its own meaning: BM25 as the share of what a chunk
holding every query term without end would score, cosine as its way from this query's background
to identity. Then score = w * words + (1 - w) * meaning. ``w`` is one number per query, so the
fused score is monotone in each leg. It vanishes where words cannot decide (terms the index does
not know: a Chinese question on English documents) and is lower where the legs agree. A chunk in
another language than the query cannot hold its words, so their absence is no evidence: it is
credited with the words that a chunk of the query's language and its meaning would hold.
Equal-weight rank fusion halves accuracy on paraphrases, and no single weight suits every corpus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from forebay.kernel.stages import QueryKind

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_COMPARED = 10
_WEIGHT_MIN = 0.05


class FusionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the weight of words follows from a query; tuned once, for every corpus alike."""

    ceiling: Annotated[
        float, Meta(description="Weight of words when the legs go their own ways.", ge=0.0, le=1.0)
    ] = 0.65
    known_middle: Annotated[
        float,
        Meta(description="Share of the query's worth the index must know for half the weight."),
    ] = 0.4
    known_slope: Annotated[
        float, Meta(description="How sharply the weight follows that share.", ge=0.0)
    ] = 6.0
    overlap: Annotated[
        float,
        Meta(description="Weight taken off words per share of hits in common over overlap_from."),
    ] = 0.5
    overlap_from: Annotated[
        float, Meta(description="Share of hits in common that is ordinary.", ge=0.0, le=1.0)
    ] = 0.5
    agreement: Annotated[
        float, Meta(description="Weight taken off words when both legs have the same best hit.")
    ] = 0.2
    foreign_words: Annotated[
        float,
        Meta(
            description="Words credited per meaning to a chunk in another language than the query.",
            ge=0.0,
            le=2.0,
        ),
    ] = 0.6
    kinds: Annotated[
        Mapping[QueryKind, Annotated[float, Meta(ge=0.0, le=2.0)]],
        Meta(description="Factor on the weight of words for a kind of question; 1 unless given."),
    ] = {}


class QueryFeatures(msgspec.Struct, frozen=True):
    """What is decided from, each in 0..1.

    ``known``: share of the query's worth the index knows; ``share``: the best word hit's score
    as a share of the ideal one; ``coverage``: share of the query's worth that hit holds;
    ``margin``: its lead over the second; ``overlap``: share of the legs' first ten in common;
    ``agree``: both have the same best hit. ``terms`` is a count.
    """

    known: float
    share: float = 0.0
    coverage: float = 0.0
    margin: float = 0.0
    overlap: float = 0.0
    agree: bool = False
    terms: int = 0


class Weighed(Protocol):
    """A query that an index weighed, as ``LexicalQuery`` does."""

    @property
    def terms(self) -> Sequence[str]:
        """What is searched."""
        ...

    @property
    def known(self) -> float:
        """The share of the query's worth the index knows."""
        ...

    @property
    def ideal(self) -> float:
        """What a chunk holding every term without end would score."""
        ...


def word_features(query: Weighed, bm25: Floats, coverage: Floats) -> QueryFeatures:
    """Read off the word leg's hits, best first, what they say of the query."""
    if not len(bm25) or bm25[0] <= 0.0:
        return QueryFeatures(known=query.known, terms=len(query.terms))
    second = float(bm25[1]) if len(bm25) > 1 else 0.0
    return QueryFeatures(
        known=query.known,
        share=float(bm25[0]) / query.ideal if query.ideal > 0.0 else 0.0,
        coverage=float(coverage[0]),
        margin=1.0 - second / float(bm25[0]),
        terms=len(query.terms),
    )


def compare_legs(features: QueryFeatures, words: Ids, meaning: Ids) -> QueryFeatures:
    """Add what both legs' hits, best first, say together."""
    common = set(words[:_COMPARED].tolist()) & set(meaning[:_COMPARED].tolist())
    return msgspec.structs.replace(
        features,
        overlap=len(common) / _COMPARED,
        agree=bool(len(words) and len(meaning) and words[0] == meaning[0]),
    )


def words_weight(
    features: QueryFeatures, settings: FusionSettings, kind: QueryKind | None = None
) -> float:
    """Return the weight of words in 0..1; 0 when they found nothing.

    Where the legs agree on what is relevant, meaning orders it better; where they do not, exact
    words are the surer witness, as long as the index knows the query's words at all.
    """
    if features.known <= 0.0:
        return 0.0
    weight = settings.ceiling
    weight -= settings.overlap * max(0.0, features.overlap - settings.overlap_from)
    weight -= settings.agreement * features.agree
    knows = 1.0 / (1.0 + math.exp(-settings.known_slope * (features.known - settings.known_middle)))
    factor = 1.0 if kind is None else settings.kinds.get(kind, 1.0)
    return min(1.0, max(_WEIGHT_MIN, weight) * factor) * knows


def words_score(bm25: Floats, ideal: float) -> Floats:
    """Return BM25 as a share of the query's ideal score, in 0..1."""
    return bm25 / ideal if ideal > 0.0 else np.zeros_like(bm25)


def meaning_score(cosine: Floats, background: float) -> Floats:
    """Return where each cosine lies between the query's background (0) and identity (1)."""
    return (cosine - background) / max(1.0 - background, 1e-6)


def fuse(words: Floats, meaning: Floats, weight: float) -> Floats:
    """Return fused scores; a chunk without a vector yet is judged by its words alone.

    Such a chunk (NaN) is taken to mean as much, relative to the best, as its words say.
    """
    missing = np.isnan(meaning)
    if missing.any():
        known = meaning[~missing]
        best = max(float(known.max()), 0.0) if len(known) else 1.0
        top = max(float(words.max()), 1e-9)
        meaning = np.where(missing, best * words / top, meaning)
    return weight * words + (1.0 - weight) * meaning


def credit_foreign(words: Floats, meaning: Floats, foreign: Mask, per_meaning: float) -> Floats:
    """Return word scores, at least ``per_meaning`` times its meaning for each foreign chunk.

    Chunks without a vector (NaN) keep their words.
    """
    earned = per_meaning * np.minimum(np.fmax(meaning, 0.0), 1.0)
    return np.where(foreign, np.maximum(words, np.minimum(earned, 1.0)), words)
