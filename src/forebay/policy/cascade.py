"""When a dear reranker is asked behind a cheap one: only where the cheap one is uncertain (F0.15).

The cheap model gives calibrated relevances ``r`` of a query's candidates, best first. Those under
the floor never reach the dear model (F1.11). With two or more left, the chance that the first is
rightly before the second, were both relevances independent, is

    sure = r1 (1 - r2) / (r1 (1 - r2) + r2 (1 - r1))

and the dear model is asked when that is under ``sure_from``. F1.11's floor of .3 is of raw scores;
of relevances that are probabilities, .01 is where a dear model's hearing a candidate stops paying
(``benchmarks/rerank/cascade.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

_NEVER = 1e-9


class CascadeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the dear model is spared."""

    floor: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="Candidates less relevant than this by the light reranker are never "
            "given to the dear one (F1.11).",
        ),
    ] = 0.01
    sure_from: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Chance that the light reranker's best is rightly the best, from which "
            "the dear one is not asked.",
        ),
    ] = 0.8
    most: Annotated[
        int, Meta(ge=2, le=200, description="Candidates given to the dear reranker at most.")
    ] = 10
    trust: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Weight of the dear reranker's log-odds against the light one's; 1: the "
            "dear one decides alone.",
        ),
    ] = 0.5


class CascadeDecision(msgspec.Struct, frozen=True):
    """How many of the first are to be asked about (0: none), and how sure the cheap model is.

    ``slack``: by how much a relevance may move before the decision is another.
    """

    asked: int
    sure: float
    slack: float


def decide(relevances: Sequence[float], settings: CascadeSettings) -> CascadeDecision:
    """Decide for ``relevances``, each in 0..1, best first."""
    first = relevances[: settings.most]
    above = sum(relevance >= settings.floor for relevance in first)
    sure = _sure(first[0], first[1]) if len(first) > 1 else 1.0
    slack = min((abs(relevance - settings.floor) for relevance in first), default=1.0)
    if above < 2:
        return CascadeDecision(0, sure, slack)
    slack = min(slack, abs(sure - settings.sure_from))
    return CascadeDecision(above if sure < settings.sure_from else 0, sure, slack)


def blended(light: Sequence[float], dear: Sequence[float], trust: float) -> list[float]:
    """Relevances of both models in one: log-odds averaged with weight ``trust`` for the dear."""
    return [
        _chance((1.0 - trust) * _odds(one) + trust * _odds(two))
        for one, two in zip(light, dear, strict=True)
    ]


def _odds(relevance: float) -> float:
    kept = min(max(relevance, _NEVER), 1.0 - _NEVER)
    return math.log(kept / (1.0 - kept))


def _chance(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


def _sure(best: float, second: float) -> float:
    right, wrong = best * (1.0 - second), second * (1.0 - best)
    return (right + _NEVER) / (right + wrong + 2 * _NEVER)
