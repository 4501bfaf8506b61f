"""How likely the best word hit answers the question: a logistic model of what BM25 showed.

p = 1 / (1 + exp(-z)), z = bias + share * s + margin * m + coverage * c + known * k + terms * ln n

s: the best score as a share of the query's ideal one; m: its lead over the second, as a share of
it; c: the share of the query's worth the best hit holds; k: the share the index knows; n: how many
terms were searched. All is read off the first two hits and the query alone: what a cached result
needs to be judged by (``forebay.cache.carrying`` holds these two in their places).

Fitted by ``benchmarks/retrieval/early_exit.py`` to whether the best word hit is a right document,
on one half of the questions of six public sets and seven mixed or cross-language corpora, each of
equal weight. Held-out calibration is in its README.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.retrieval.fusion import QueryFeatures


class RelevanceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Coefficients of the probability that the best word hit is right."""

    bias: Annotated[float, Meta(description="Log-odds when nothing speaks for the hit.")] = -8.04
    share: Annotated[
        float, Meta(description="Log-odds per share of the query's ideal BM25 score.", ge=0.0)
    ] = 5.0
    margin: Annotated[
        float, Meta(description="Log-odds per share of its score it leads the second by.", ge=0.0)
    ] = 4.3
    coverage: Annotated[
        float, Meta(description="Log-odds per share of the query's worth the hit holds.", ge=0.0)
    ] = 1.09
    known: Annotated[
        float, Meta(description="Log-odds per share of that worth the index knows.", ge=0.0)
    ] = 1.55
    terms: Annotated[
        float, Meta(description="Log-odds per e-fold of terms in the query.", ge=0.0)
    ] = 1.35


def probability(features: QueryFeatures, settings: RelevanceSettings) -> float:
    """Return the probability that the best word hit is right, in 0..1; 0 when there is none."""
    if features.share <= 0.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-_log_odds(features, settings)))


class Exit(msgspec.Struct, frozen=True):
    """Whether words answer alone, decided once for a search.

    ``leeway``: by how much features must move, each at once, for that to turn, in the unit of the
    features, which is that of fused scores; infinite where no score can turn it.
    """

    taken: bool
    leeway: float


def decide(
    features: QueryFeatures,
    settings: RelevanceSettings,
    confidence: float,
    *,
    several: bool,
) -> Exit:
    """Leave early where words are sure of ``confidence``; never where ``several`` documents are
    wanted: a sure first hit says nothing of the second.
    """
    if several or features.share <= 0.0 or confidence >= 1.0:
        return Exit(taken=False, leeway=math.inf)
    away = _log_odds(features, settings) - math.log(confidence / (1.0 - confidence))
    per_unit = settings.share + settings.margin + settings.coverage + settings.known
    return Exit(away >= 0.0, abs(away) / per_unit if per_unit > 0.0 else math.inf)


def _log_odds(features: QueryFeatures, settings: RelevanceSettings) -> float:
    return (
        settings.bias
        + settings.share * features.share
        + settings.margin * features.margin
        + settings.coverage * features.coverage
        + settings.known * features.known
        + settings.terms * math.log(max(1, features.terms))
    )
