"""How far two judges agree, or a judge with labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from forebay.lab.evaluate.judging.verdicts import RELEVANT, JudgedQuestion


class Agreement(msgspec.Struct, frozen=True):
    """Over ``passages``: share alike, kappa, and share of pairs put in the same order.

    ``kappa`` is Cohen's (0: as chance would, 1: always); nan where both say one thing only.
    ``pairwise`` counts pairs inside a question of which one side says that they differ, ties of the
    other as half; nan without such pairs.
    """

    passages: int
    alike: float
    kappa: float
    pairwise: float
    pairs: int


Groups = Sequence[tuple[Sequence[float], Sequence[float]]]
"""For each question the scores of one side and of the other."""


def agreement(groups: Groups, threshold: float = RELEVANT) -> Agreement:
    """Agreement of the first side with the second; from ``threshold`` on a passage is relevant."""
    own = np.array([score >= threshold for scores, _ in groups for score in scores])
    other = np.array([score >= threshold for _, scores in groups for score in scores])
    right, pairs = 0.0, 0
    for scores, against in groups:
        good, count = _ordered(scores, against)
        right += good
        pairs += count
    return Agreement(
        passages=len(own),
        alike=float((own == other).mean()) if len(own) else math.nan,
        kappa=kappa(own.tolist(), other.tolist()),
        pairwise=right / pairs if pairs else math.nan,
        pairs=pairs,
    )


def with_labels(judged: Sequence[JudgedQuestion], *, raw: bool = False) -> Agreement:
    """Agreement of verdicts with labels, where there are any.

    ``raw``: of the scores before place and length were taken off.
    """
    groups = []
    for one in judged:
        known = [each for each in one.passages if each.label is not None]
        if known:
            scores = [each.verdict.score if raw else each.verdict.corrected for each in known]
            groups.append((scores, [float((each.label or 0) > 0) for each in known]))
    return agreement(groups)


def kappa(own: Sequence[bool], other: Sequence[bool]) -> float:
    """Cohen's kappa of two lists of yes and no; nan where chance alone would always agree."""
    count = len(own)
    if not count:
        return math.nan
    seen = sum(a == b for a, b in zip(own, other, strict=True)) / count
    yes, theirs = sum(own) / count, sum(other) / count
    chance = yes * theirs + (1 - yes) * (1 - theirs)
    return (seen - chance) / (1 - chance) if chance < 1 else math.nan


def _ordered(scores: Sequence[float], against: Sequence[float]) -> tuple[float, int]:
    """Pairs that ``against`` tells apart: how many ``scores`` put alike, and how many there are."""
    right, pairs = 0.0, 0
    for at in range(len(against)):
        for to in range(at):
            if against[at] == against[to]:
                continue
            pairs += 1
            way = (scores[at] - scores[to]) * (against[at] - against[to])
            right += 1.0 if way > 0 else 0.5 if way == 0 else 0.0
    return right, pairs
