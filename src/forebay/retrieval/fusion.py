"""Fuses the two legs' scores with a weight chosen per query.

Each leg's score is first put on a scale of its own meaning: BM25 as the share of what a chunk
holding every query term without end would score, cosine as its way from this query's background
to identity. Then score = w * words + (1 - w) * meaning. ``w`` is one number per query, so the
fused score is monotone in each leg. It falls where words cannot decide: terms the index does not
know (a Chinese question on English documents), best hits that cover little of the query.
Equal-weight rank fusion halves accuracy on paraphrases, and no single weight suits every corpus.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

Floats = npt.NDArray[np.float64]


class FusionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weight of words = 1 / (1 + exp(-(bias + sum of factor * feature))); tuned once for all."""

    bias: Annotated[float, Meta(description="Log odds of words when every feature is 0.")] = -3.0
    known: Annotated[
        float, Meta(description="Factor of the share of the query's worth the index knows.")
    ] = 3.8
    coverage: Annotated[
        float, Meta(description="Factor of the share of it that the best word hit holds.")
    ] = 0.0
    margin: Annotated[
        float, Meta(description="Factor of the best word hit's lead over the second.")
    ] = 0.0


class QueryFeatures(msgspec.Struct, frozen=True):
    """What the weight of one query is chosen from; each in 0..1."""

    known: float
    coverage: float
    margin: float


def query_features(known: float, bm25: Floats, coverage: Floats) -> QueryFeatures:
    """Read the features off the word leg's hits, best first."""
    if not len(bm25):
        return QueryFeatures(known=known, coverage=0.0, margin=0.0)
    second = float(bm25[1]) if len(bm25) > 1 else 0.0
    return QueryFeatures(
        known=known,
        coverage=float(coverage[0]),
        margin=1.0 - second / float(bm25[0]) if bm25[0] > 0.0 else 0.0,
    )


def words_weight(features: QueryFeatures, settings: FusionSettings) -> float:
    """Return the weight of words in 0..1; 0 when they found nothing."""
    if features.known <= 0.0:
        return 0.0
    odds = (
        settings.bias
        + settings.known * features.known
        + settings.coverage * features.coverage
        + settings.margin * features.margin
    )
    return 1.0 / (1.0 + math.exp(-odds))


def confidence(features: QueryFeatures) -> float:
    """How sure words alone are of their best hit, in 0..1 (compared with F2.10's 0.92).

    High only when the index knows the query's terms, one chunk holds them all, and no other
    comes near it.
    """
    return features.known * features.coverage * min(1.0, 0.5 + features.margin)


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
