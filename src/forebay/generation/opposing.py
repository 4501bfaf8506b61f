"""The other side of a quotation in words that the quotation has not: "38 h", "30 hours of music".

Words do not find it, so vectors of sentences choose it: of the statements of other documents that
show the type of thing asked for, the one most like what is quoted and nearest to the question. It
must give another value of the kind asked for, or yes or no must be an answer; a logistic score
says whether it tells of the same thing. Constants: ``benchmarks/answers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.passages import number_of
from forebay.generation.quantities import Value, Values, quantities, values_in
from forebay.generation.quantities import differ as values_differ
from forebay.generation.ranges import lies_within
from forebay.generation.sides import (
    asks_whether,
    contrary,
    differ,
    of_another_clause,
    opposed,
)
from forebay.generation.support import Reading, Scored
from forebay.generation.terms import NAME_WEIGHT
from forebay.kernel.documents import Hit

_KINDS = {
    "duration": ("duration",),
    "money": ("yuan", "dollar", "euro", "pound"),
    "weight": ("mass",),
    "clock": ("clock",),
    "weekday": ("weekday",),
    "length": ("length",),
    "degrees": ("degree",),
    "share": ("percent", "share", "paid"),
    "date": ("date", "year of", "duration"),
    "when": ("date", "year of", "duration", "clock", "weekday"),
    "year": ("year of", "date"),
    "floor": ("floor",),
}
"""What a value is measured in, by the type of thing asked for; any kind where none is."""
_DAYS = ("weekday", "date")
_HELD = 0.4
_NEAR = 0.3
"""How much a deviation is worth beside what a statement holds of the question."""
_LEAST = -1.0
_LEAD = 1.5
_MOST_LIKE = 4.0
_MOST_NEAR = 3.0
_FARTHEST = 2.5
"""Bounds of the features: single distances beyond them say nothing more."""
_STEPS = {"clock": 120.0, "weekday": 3.0}
"""How far apart two values that no ratio compares are, as much as one by a factor of e."""


class OpposingModel(msgspec.Struct, frozen=True):
    """Log-odds that a statement is the other side; 0 is the threshold.

    ``like``: deviations by which it is like the quotation; ``before_others`` and ``before_own``:
    how far before the other statements of other documents, and how far the quotation is before
    its own document's; ``lead`` and ``near``: how far it is before the next and the middle
    statement in nearness to the question, ``known``: whether that is known. ``shared``: share of
    the question that both hold. ``contrary``: one of the two denies. ``value``: values are
    compared, ``ratio``: the logarithm of their ratio, ``only``: one through how many statements of
    its document have such a value.
    """

    constant: float
    like: float
    before_others: float
    before_own: float
    lead: float
    near: float
    known: float
    shared: float
    contrary: float
    value: float
    ratio: float
    only: float


OPPOSING = OpposingModel(
    constant=-0.8,
    like=0.26,
    before_others=0.56,
    before_own=0.8,
    lead=1.11,
    near=0.38,
    known=-1.26,
    shared=1.13,
    contrary=0.52,
    value=-1.35,
    ratio=-1.09,
    only=1.36,
)


def opposing(
    question: str,
    kind: AnswerType,
    chosen: Sequence[Scored],
    reading: Reading,
    hits: Sequence[Hit],
    model: OpposingModel = OPPOSING,
) -> tuple[Scored, Scored] | None:
    """What is quoted, and the statement of another document that is likeliest its other side; None
    where none is, where it is quoted already, or where nothing is known of how like statements are.
    """
    if not reading.likeness or not chosen:
        return None
    best = max(chosen, key=lambda one: (kind.shown(one.unit), one.fit + _NEAR * (one.near or 0.0)))
    document = hits[best.passage].chunk.document_id
    told = [one for one in reading.units if one.unit.kind in ("sentence", "item", "row")]
    apart = [one for one in told if hits[one.passage].chunk.document_id != document]
    compared = _Compared(question, kind, best, reading, hits)
    if not compared.whether and any(
        one in chosen and differ(question, reading.terms, best, one) for one in apart
    ):
        return None
    found = [one for one in apart if compared.may_oppose(one)]
    if not found:
        return None
    # No other is before all others in either way.
    first = max(found, key=lambda one: one.near or 0.0), max(found, key=compared.likeness)
    scored = [(compared.score(one, told, apart, model), one) for one in first]
    for score, other in sorted(scored, key=lambda pair: -pair[0]):
        if score >= 0.0 and not (
            opposed(question, best.unit, other.unit)
            or of_another_clause(reading.terms, best, other)
        ):
            return None if other in chosen else (best, other)
    return None


class _Compared:
    """A quotation, with which the statements of other documents are compared."""

    def __init__(
        self,
        question: str,
        kind: AnswerType,
        best: Scored,
        reading: Reading,
        hits: Sequence[Hit],
    ) -> None:
        self._kind, self._best = kind, best
        self._reading, self._hits = reading, hits
        self.whether = asks_whether(question)
        self._asked = quantities(question)
        self._values = _of_kind(kind, best)
        self._names = {
            at
            for at, term in enumerate(reading.terms)
            if term.weight >= NAME_WEIGHT
            and best.said[at] >= _HELD
            and quantities(term.key).keys().isdisjoint(_DAYS)
        }
        # Which of the names stand in a document, as far as it was found.
        self._named: dict[str, set[int]] = {}
        for one in reading.units if self._names else ():
            said, named = one.said, self._named.setdefault(self._document(one), set())
            named.update(at for at in self._names if said[at] >= _HELD)

    def may_oppose(self, one: Scored) -> bool:
        """Whether it tells another value, or whether what is asked is so, of what has that name."""
        if one.unit.has_han != self._best.unit.has_han:
            return False
        if not self.whether and not self._tells_another(one):
            return False
        named = self._named.get(self._document(one), set())
        return self._kind.shown(one.unit) and self._names <= named

    def _tells_another(self, one: Scored) -> bool:
        theirs = _of_kind(self._kind, one)
        if theirs.keys().isdisjoint(self._values):
            return False
        return values_differ(self._values, theirs, self._asked) and not lies_within(
            self._best.unit, one.unit
        )

    def score(
        self,
        one: Scored,
        told: Sequence[Scored],
        apart: Sequence[Scored],
        model: OpposingModel,
    ) -> float:
        """Log-odds that it is the other side."""
        best, like = self._best, self.likeness(one)
        rest = [each for each in apart if each.unit.text != one.unit.text]
        own = [
            self._like(each, one)
            for each in told
            if self._document(each) == self._document(best) and each.unit.text != best.unit.text
        ]
        score = (
            model.constant
            + model.like * min(like, _MOST_LIKE)
            + model.before_others * _bounded(like - max(map(self.likeness, rest), default=_LEAST))
            + model.before_own * _bounded(like - max(own, default=_LEAST))
            + model.shared * self._shared(one)
        )
        if one.near is not None:
            next_near = max((each.near or 0.0 for each in rest), default=one.near)
            middle = median(each.near or 0.0 for each in self._reading.units)
            score += model.lead * _bounded(one.near - next_near) + model.known
            score += model.near * max(-1.0, min(one.near - middle, _MOST_NEAR))
        if self.whether:
            return score + model.contrary * contrary(best.unit.text, one.unit.text)
        theirs = _of_kind(self._kind, one)
        kinds = self._values.keys() & theirs.keys()
        with_such = sum(
            self._document(each) == self._document(one)
            and not kinds.isdisjoint(values_in(each.unit))
            for each in told
        )
        ratio = min(_ratios(self._values, theirs, self._asked), default=_FARTHEST)
        return score + model.value + model.ratio * min(ratio, _FARTHEST) + model.only / with_such

    def likeness(self, one: Scored) -> float:
        """How like the quotation it is."""
        return self._like(self._best, one)

    def _document(self, one: Scored) -> str:
        return self._hits[one.passage].chunk.document_id

    def _like(self, one: Scored, other: Scored) -> float:
        mine, theirs = one.unit.known(number_of), other.unit.known(number_of)
        return self._reading.likeness.get((min(mine, theirs), max(mine, theirs)), _LEAST)

    def _shared(self, one: Scored) -> float:
        rows = zip(self._reading.terms, self._best.said, one.said, strict=True)
        total = sum(term.weight for term in self._reading.terms) or 1.0
        return sum(term.weight * min(mine, theirs) for term, mine, theirs in rows) / total


def _of_kind(kind: AnswerType, one: Scored) -> Values:
    """The values of a statement that may answer."""
    values = values_in(one.unit)
    if not kind.asked:
        return values
    kinds = _KINDS.get(kind.asked, ())
    return {each: found for each, found in values.items() if each in kinds}


def _bounded(lead: float) -> float:
    return max(-_LEAD, min(lead, _LEAD))


def _ratios(mine: Values, theirs: Values, asked: Values) -> Iterator[float]:
    """How far apart the values of one kind are that are not the same, nor the question's."""
    for kind, values in mine.items():
        known = asked.get(kind, set())
        for one in values:
            for other in theirs.get(kind, ()):
                if not (
                    one.same(other) or any(map(one.same, known)) or any(map(other.same, known))
                ):
                    yield _apart(kind, one, other)


def _apart(kind: str, one: Value, other: Value) -> float:
    if one.parts or other.parts:
        return 0.0
    if kind in _STEPS:
        return abs(one.number - other.number) / _STEPS[kind]
    if one.number > 0.0 and other.number > 0.0:
        return abs(math.log(one.number / other.number))
    return _FARTHEST
