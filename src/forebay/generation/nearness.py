"""Whether passages answer, where vectors of their sentences are known.

A passage's vector says what it is about; a sentence's own, whether it says what is asked. One
logistic score takes the place of those that words and passages alone are judged by: how far the
nearest sentence is before the next and before the usual one, beside what words tell. Two models:
where question and passages share a language, and where words hardly meet. Constants:
``benchmarks/answers``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.passages import number_of
from forebay.generation.statements import named_share, of_another, open_share, says_all
from forebay.generation.subjects import Subject
from forebay.generation.support import USUAL_LEAD, Reading, Scored
from forebay.kernel.documents import Hit

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
    constant=-2.25,
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


class WithinModel(msgspec.Struct, frozen=True):
    """The same within a language. ``share`` to ``names_missing`` are features of ``support``,
    ``open`` to ``typed`` those of ``statements``; ``whole``: a statement has every word asked;
    ``before_rest``: how far what is quoted is before the nearest that is not.
    """

    constant: float
    share: float
    cosine_lead: float
    found: float
    names_missing: float
    open: float
    named: float
    measured: float
    typed: float
    whole: float
    before_rest: float
    before_middle: float


# Fitted by benchmarks/answers/within.py; see the paragraph there.
WITHIN = WithinModel(
    constant=-1.36,
    share=3.37,
    cosine_lead=-0.51,
    found=0.55,
    names_missing=-1.88,
    open=-2.52,
    named=-1.22,
    measured=1.32,
    typed=-0.62,
    whole=1.37,
    before_rest=0.69,
    before_middle=1.09,
)
_USUAL_SHARE = 0.35
"""Of the best hit, where scores are no shares of an ideal."""


def with_nearness(reading: Reading, known: Mapping[int, float]) -> tuple[Reading, Nearness | None]:
    """The reading with what is ``known`` of each of its units by checksum, and its sums.

    None where too little is known, and the reading as it was.
    """
    if not known:
        return reading, None
    near = [known.get(one.unit.known(number_of)) for one in reading.units]
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
    if not _shows(kind, chosen):
        return -math.inf
    features, terms = reading.features, reading.terms
    return (
        model.constant
        + model.cosine_lead * _lead(reading)
        + model.found * features.found
        + model.window * features.window
        + model.told * features.told
        + model.open * open_share(terms, reading, chosen)
        + model.named * named_share(subject, terms, reading, chosen)
        + model.nearest * nearness.nearest
        + model.before_second * nearness.before_second
        + model.before_middle * nearness.before_middle
    )


def within_score(
    asked: tuple[AnswerType, Subject],
    reading: Reading,
    nearness: Nearness,
    chosen: Sequence[Scored],
    hits: Sequence[Hit],
    model: WithinModel = WITHIN,
) -> float:
    """The same where words meet; what words say to be about another thing does not tell it."""
    kind, subject = asked
    features, terms = reading.features, reading.terms
    if not _shows(kind, chosen) or of_another(asked, terms, reading, chosen, hits):
        return -math.inf
    share = max(hits[one.passage].score for one in chosen) if features.share else _USUAL_SHARE
    return (
        model.constant
        + model.share * share
        + model.cosine_lead * _lead(reading)
        + model.found * features.found
        + model.names_missing * features.names_missing
        + model.open * open_share(terms, reading, chosen, hits)
        + model.named * named_share(subject, kind.unnamed(terms), reading, chosen)
        + model.measured * kind.is_measure
        + model.typed * bool(kind.asked)
        + model.whole * says_all(terms, reading)
        + model.before_rest * _before_rest(reading, chosen)
        + model.before_middle * nearness.before_middle
    )


def _before_rest(reading: Reading, chosen: Sequence[Scored]) -> float:
    quoted = {(one.passage, one.position) for one in chosen}
    rest = [one.near or 0.0 for one in reading.units if (one.passage, one.position) not in quoted]
    return max(one.near or 0.0 for one in chosen) - max(rest) if rest else 0.0


def _shows(kind: AnswerType, chosen: Sequence[Scored]) -> bool:
    """Whether there is the type of thing asked for; rows and code are not judged."""
    return any(one.unit.kind in ("row", "code") or kind.shown(one.unit) for one in chosen)


def _lead(reading: Reading) -> float:
    lead = reading.features.cosine_lead
    return USUAL_LEAD if lead is None else lead
