"""Whether passages in another language answer, where vectors of their sentences are known.

A passage's vector says what it is about; a sentence's own, whether it says what is asked. One
logistic score takes the place of the two that words and passages alone are judged by: how near the
nearest sentence is, how far before the next and before the usual one, beside those features.
Constants: ``benchmarks/answers``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.statements import named_share, open_share
from forebay.generation.subjects import Subject
from forebay.generation.support import USUAL_LEAD, Reading, Scored
from forebay.kernel.sentences import checksum

_LEAST = 2
_KNOWN_SHARE = 0.5
"""Of the sentences, how many must be known, and which share of them, to say what is usual."""


class Nearness(msgspec.Struct, frozen=True):
    """In deviations of unrelated sentences: how near the nearest is, and how far before the second
    and the middle one.
    """

    nearest: float
    before_second: float
    before_middle: float


class NearnessModel(msgspec.Struct, frozen=True):
    """A fitted model: log-odds that a right answer is told; 0 is the threshold.

    ``cosine_lead`` to ``told`` are features of ``support``, ``open`` and ``named`` those of
    ``statements``.
    """

    constant: float
    cosine_lead: float
    found: float
    window: float
    told: float
    open: float
    named: float
    nearest: float
    before_second: float
    before_middle: float


# Fitted by benchmarks/answers/sentences.py; see the paragraph there.
NEARNESS = NearnessModel(
    constant=-2.4,
    cosine_lead=0.65,
    found=0.16,
    window=1.32,
    told=-0.1,
    open=-1.59,
    named=-0.55,
    nearest=0.47,
    before_second=1.52,
    before_middle=0.56,
)


def with_nearness(reading: Reading, known: Mapping[int, float]) -> tuple[Reading, Nearness | None]:
    """The reading with what is ``known`` of each of its units by checksum, and its sums.

    None where too little is known, and the reading as it was.
    """
    if not known:
        return reading, None
    near = [known.get(checksum(one.unit.said)) for one in reading.units]
    values = sorted(value for value in near if value is not None)
    if len(values) < max(_LEAST, _KNOWN_SHARE * len(near)):
        return reading, None
    middle = median(values)
    units = tuple(
        msgspec.structs.replace(one, near=middle if value is None else value)
        for one, value in zip(reading.units, near, strict=True)
    )
    nearness = Nearness(values[-1], values[-1] - values[-2], values[-1] - middle)
    return msgspec.structs.replace(reading, units=units), nearness


def nearness_score(
    asked: tuple[AnswerType, Subject],
    reading: Reading,
    nearness: Nearness,
    chosen: Sequence[Scored],
    model: NearnessModel = NEARNESS,
) -> float:
    """Log-odds that ``chosen`` tells what is asked; what shows no such thing does not."""
    kind, subject = asked
    if not any(one.unit.kind in ("row", "code") or kind.shown(one.unit) for one in chosen):
        return -math.inf
    features, terms = reading.features, reading.terms
    lead = features.cosine_lead
    return (
        model.constant
        + model.cosine_lead * (USUAL_LEAD if lead is None else lead)
        + model.found * features.found
        + model.window * features.window
        + model.told * features.told
        + model.open * open_share(terms, reading, chosen)
        + model.named * named_share(subject, terms, reading, chosen)
        + model.nearest * nearness.nearest
        + model.before_second * nearness.before_second
        + model.before_middle * nearness.before_middle
    )
