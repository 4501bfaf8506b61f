"""Whether passages support an answer: a logistic score of a few numbers, and where it is best.

score = c + sum of coefficient x feature, supported from 0 on. The constants were fitted on one
half of the questions and checked on the other (``benchmarks/extractive``). Cosines of some
embedders are crowded, so only the lead of the best cosine over the rest of the hits counts, in
standard deviations of unrelated pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.folding import simplified
from forebay.generation.answer_types import AnswerType
from forebay.generation.lexicon import Parts, alike, lexicon
from forebay.generation.passages import Passage, Unit
from forebay.generation.ranges import admitted
from forebay.generation.subjects import Subject, continues
from forebay.generation.tables import Finding, names_of, tables
from forebay.generation.terms import NAME_WEIGHT, Term, abbreviates, fold, stems
from forebay.kernel.documents import Hit

_LITTLE = 0.35
"""Of the best hit's score: a passage under it says little of the language of what was found."""
_NEIGHBOUR = 0.5
_HEAD = 0.5
_PASSAGE = 0.3
_ALIKE = 0.8
_SECTION = 0.6
"""What a term is worth for a sentence when it stands beside it, in a heading, or further off; when
only a word is there that means nearly the same; and when it is in the heading of its section."""
_OF_SIBLINGS = 0.25
"""Share of a question that statements about siblings alone hold, from which they alone answer."""
USUAL_LEAD = 2.0
"""Between the leads of passages that answer and of those that do not, in deviations."""


class Weights(msgspec.Struct, frozen=True):
    """One fitted logistic model; an absent feature has coefficient 0."""

    constant: float
    window: float = 0.0
    found: float = 0.0
    names_missing: float = 0.0
    share: float = 0.0
    cosine_lead: float = 0.0
    told: float = 0.0


class Features(msgspec.Struct, frozen=True):
    """What the decision is made from.

    ``window``: share of the question's weight in the best unit and its surroundings, 0..1.
    ``found``: log(1 + weight found in the best passage). ``names_missing``: log(1 + weight of
    names and numbers no passage has). ``share``: best hit's score, where scores are shares of
    an ideal in 0..1, else 0. ``cosine_lead``: best cosine less the mean of those from the third
    on, in deviations; None without vectors. ``crossing``: the passages lack the question's script.
    ``told``: log(1 + weight of the terms that are asked for).
    """

    window: float
    found: float
    names_missing: float
    share: float
    cosine_lead: float | None
    crossing: bool
    told: float = 0.0


class Scored(msgspec.Struct, frozen=True):
    """A unit as an answer: where it stands, what it covers itself (per term), and its score.

    ``window`` counts what is around it too, in shares of the question's weight; ``fit`` is the
    same, but for what the passage's title and headings say, which is said of each of its units.
    ``above`` is what title and headings say of each term, the nearest of those in the passage.
    ``near``: how near it is to the question, in deviations above unrelated sentences, if known.
    """

    passage: int
    position: int
    unit: Unit
    own: tuple[float, ...]
    window: float
    fit: float
    above: Sequence[float]
    near: float | None = None

    @property
    def said(self) -> tuple[float, ...]:
        """How much of each term it covers with what is said above it."""
        return tuple(map(max, self.own, self.above))


class Reading(msgspec.Struct, frozen=True):
    """Passages read for a question: the decision's features and every quotable unit.

    ``held``: how much of each term the passage that holds most of it has, 0..1. ``terms``: those
    asked for; without weight where all passages are in the other script and the word in it is not
    known. ``heads``: how much of each term the title and headings of each passage hold.
    ``likeness``: see ``GenerationRequest``.
    ``another``: the weight that the fullest statement surely about a sibling holds; ``of_others``:
    how much of each term such statements hold.
    """

    features: Features
    units: tuple[Scored, ...]
    held: tuple[float, ...]
    terms: tuple[Term, ...] = ()
    heads: tuple[tuple[float, ...], ...] = ()
    likeness: Mapping[tuple[int, int], float] = {}
    another: float = 0.0
    of_others: tuple[float, ...] = ()


class SupportModel(msgspec.Struct, frozen=True):
    """Constants for every situation: with or without vectors, scores that are shares or not."""

    words: Weights
    words_share: Weights
    vectors: Weights
    vectors_share: Weights
    crossing: Weights
    crossing_lead: Weights

    def score(self, features: Features) -> float:
        """Log-odds that the passages support an answer; 0 is the fitted threshold."""
        lead = features.cosine_lead
        if features.crossing and lead is not None:
            weights = self.crossing if features.share > 0.0 else self.crossing_lead
        elif lead is None:
            weights = self.words_share if features.share > 0.0 else self.words
        else:
            weights = self.vectors_share if features.share > 0.0 else self.vectors
        return (
            weights.constant
            + weights.window * features.window
            + weights.found * features.found
            + weights.names_missing * features.names_missing
            + weights.share * features.share
            + weights.cosine_lead * (lead or 0.0)
            + weights.told * features.told
        )


def read(
    terms: Sequence[Term],
    hits: Sequence[Hit],
    passages: Sequence[Passage],
    subject: Subject,
    *,
    shares: bool,
    cosine_deviation: float,
) -> Reading:
    """Look for the question's terms in every unit of every passage."""
    abroad = foreign(terms, passages)
    crossing = is_crossing(hits, abroad)
    parts = [lexicon().of(term) for term in terms] if any(abroad) else []
    if crossing:
        terms = _tellable(terms, parts, passages)
    found = tables(passages, [simplified(hit.chunk.title) for hit in hits], subject.question)
    ask = _Ask(terms, parts, sum(term.weight for term in terms) or 1.0, subject, found)
    reading = _read_all(ask, passages, abroad)
    if found.rest and (unlisted := _unlisted(ask, reading)):
        others = [set(one) for one in found.others]
        for _, beside in found.rest:
            for index, position in beside:
                others[index].add(position)
        found = Finding(tuple(map(frozenset, others)), found.rest)
        ask = msgspec.structs.replace(ask, tables=found, unlisted=unlisted)
        reading = _read_all(ask, passages, abroad)
    units, heads, most, best_found, names_found, of_others, another = reading
    names = sum(term.weight for term in terms if term.weight >= NAME_WEIGHT)
    features = Features(
        window=max((one.window for one in units), default=0.0),
        found=math.log1p(best_found),
        names_missing=math.log1p(max(0.0, names - names_found)),
        share=max((hit.score for hit in hits), default=0.0) if shares else 0.0,
        cosine_lead=_cosine_lead(hits, cosine_deviation),
        crossing=crossing,
        told=math.log1p(sum(term.weight for term in terms)),
    )
    return Reading(
        features,
        tuple(units),
        tuple(most),
        tuple(terms),
        tuple(heads),
        another=another,
        of_others=tuple(of_others),
    )


def _unlisted(ask: _Ask, reading: _ReadAll) -> tuple[int, ...]:
    """The names of a question that stand nowhere, not even in what tells of siblings; none where no
    row for all that is not listed has the column asked for.
    """
    places = {place for place, _ in ask.tables.rest}
    kind = AnswerType(ask.subject.question)
    if not any(
        any(one.own) or (kind.is_measure and kind.shown(one.unit))
        for one in reading.units
        if (one.passage, one.position) in places
    ):
        return ()
    return tuple(
        at
        for at in names_of(ask.subject.question, ask.terms)
        if reading.most[at] <= 0.0 and reading.of_others[at] <= 0.0
    )


class _ReadAll(NamedTuple):
    """What all passages hold."""

    units: list[Scored]
    heads: list[tuple[float, ...]]
    most: list[float]
    best_found: float
    names_found: float
    of_others: list[float]
    another: float


def _read_all(ask: _Ask, passages: Sequence[Passage], abroad: Sequence[bool]) -> _ReadAll:
    terms = ask.terms
    units: list[Scored] = []
    heads = []
    best_found = names_found = 0.0
    most = [0.0] * len(terms)
    of_others, fullest = most, 0.0
    for index, passage in enumerate(passages):
        here = ask if abroad[index] or not ask.parts else msgspec.structs.replace(ask, parts=())
        scored, anywhere, head, left_out = _read_passage(here, index, passage)
        for one in left_out:
            of_others = [max(a, b) for a, b in zip(of_others, one, strict=True)]
            fullest = max(
                fullest, sum(term.weight * held for term, held in zip(terms, one, strict=True))
            )
        heads.append(tuple(head))
        units += scored
        most = [max(a, b) for a, b in zip(most, anywhere, strict=True)]
        found = [term.weight * held for term, held in zip(terms, anywhere, strict=True)]
        best_found = max(best_found, sum(found))
        names_found = max(
            names_found,
            sum(
                worth
                for worth, term in zip(found, terms, strict=True)
                if term.weight >= NAME_WEIGHT
            ),
        )
    return _ReadAll(units, heads, most, best_found, names_found, of_others, fullest)


def is_crossing(hits: Sequence[Hit], abroad: Sequence[bool]) -> bool:
    """Whether all passages lack the question's script, but for such as hardly match."""
    least = _LITTLE * max((hit.score for hit in hits), default=0.0)
    return any(abroad) and all(
        one or hit.score < least for hit, one in zip(hits, abroad, strict=True)
    )


def held_of(terms: Sequence[Term], one: Scored) -> float:
    """The weight of what a unit holds itself."""
    return sum(term.weight * held for term, held in zip(terms, one.own, strict=True))


def of_siblings_only(reading: Reading) -> bool:
    """Whether much of the question stands in statements about siblings, and nowhere else."""
    rows = zip(reading.terms, reading.held, reading.of_others, strict=True)
    theirs = sum(term.weight for term, held, others in rows if held <= 0.0 and others >= 1.0)
    return theirs >= _OF_SIBLINGS * sum(term.weight for term in reading.terms) > 0.0


def said_of(reading: Reading, one: Scored) -> float:
    """The weight of what a unit holds itself, or its title and headings do."""
    above = reading.heads[one.passage]
    return sum(
        term.weight * max(own, head)
        for term, own, head in zip(reading.terms, one.own, above, strict=True)
    )


def _tellable(
    terms: Sequence[Term], parts: Sequence[Parts], passages: Sequence[Passage]
) -> list[Term]:
    """The terms, without weight where nobody can tell whether passages in other words hold them."""
    return [
        term
        if known or any(unit.holds(term) for passage in passages for unit in passage.units)
        else msgspec.structs.replace(term, weight=0.0)
        for term, known in zip(terms, parts, strict=True)
    ]


class _Ask(msgspec.Struct, frozen=True):
    """What a passage is asked for; ``parts``: of each term, what it is in the passage's script;
    ``unlisted``: the terms that rows for all that is not listed stand for.
    """

    terms: Sequence[Term]
    parts: Sequence[Parts]
    total: float
    subject: Subject
    tables: Finding
    unlisted: tuple[int, ...] = ()

    def held(self, units: Sequence[Unit], above: Sequence[float] = ()) -> list[Sequence[float]]:
        """How much of each term (rows) each unit holds, 0..1; ``above``: what their head does."""
        found: list[Sequence[float]] = [_held(term, units) for term in self.terms]
        if self.parts:
            found = [
                [
                    here or unit.holds_abroad(parts, han=not term.han)
                    for here, unit in zip(row, units, strict=True)
                ]
                for row, term, parts in zip(found, self.terms, self.parts, strict=True)
            ]
        return admitted(self.terms, units, self.subject.amounts, found, above)


def _read_passage(
    ask: _Ask, index: int, passage: Passage
) -> tuple[list[Scored], list[float], list[float], list[list[float]]]:
    terms, total = ask.terms, ask.total
    another = others(passage, ask.subject)
    for position in ask.tables.others[index]:
        another[position] = True
    head = [row[0] for row in ask.held([passage.head])]
    columns = ask.held(passage.units, head)
    left_out: list[list[float]] = []
    if any(another):
        left_out = [
            [column[position] for column in columns]
            for position, other in enumerate(another)
            if other
            and (
                position in ask.tables.others[index]
                or ask.subject.is_labelled_otherwise(passage.units[position], passage.head)
            )
        ]
        columns = [
            [0.0 if other else held for held, other in zip(column, another, strict=True)]
            for column in columns
        ]
    for (here, position), _ in ask.tables.rest if ask.unlisted else ():
        for at in ask.unlisted if here == index else ():
            columns[at] = [*columns[at][:position], 1.0, *columns[at][position + 1 :]]
    anywhere = [max((above, *column)) for above, column in zip(head, columns, strict=True)]
    held = list(zip(*columns, strict=True)) if columns else [()] * len(another)
    # What is nowhere here adds nothing to any sum.
    there = [
        (at, term.weight, max(_PASSAGE * anywhere[at], _HEAD * head[at]), head[at])
        for at, term in enumerate(terms)
        if anywhere[at]
    ]
    scored = []
    last = len(held) - 1
    over: Sequence[float] = head
    for position, own in enumerate(held):
        unit = passage.units[position]
        if unit.kind == "heading":
            over = tuple(map(max, own, head))
        if another[position] or (unit.kind == "heading" and last):
            continue
        before = held[position - 1] if position else own
        after = held[position + 1] if position < last else own
        window = fit = 0.0
        for at, weight, far, above in there:
            beside = max(after[at], before[at])
            most = max(own[at], _NEIGHBOUR * beside, far)
            window += weight * most
            fit += weight * (max(above, most))
        scored.append(Scored(index, position, unit, own, window / total, fit / total, over))
    return scored, anywhere, head, left_out


def _held(term: Term, units: Sequence[Unit]) -> list[float]:
    """How much of a term each unit holds; where none does, what means nearly the same counts."""
    key = term.key
    if not term.han:
        found = [1.0 if key in unit.stems else 0.0 for unit in units]
    elif len(key) < 3:
        found = [1.0 if key in unit.folded else 0.0 for unit in units]
    else:
        found = [1.0 if key in unit.folded else unit.holds(term) for unit in units]
    if any(found):
        return [
            _SECTION if have and unit.section and not _stands(term, unit) else have
            for have, unit in zip(found, units, strict=True)
        ]
    if (like := alike(term)) is None:
        if not term.han or len(key) != 2:
            return found
        return [_ALIKE if abbreviates(key, unit.folded) else 0.0 for unit in units]
    if isinstance(like, frozenset):
        return [0.0 if like.isdisjoint(unit.stems) else _ALIKE for unit in units]
    return [_ALIKE if like.search(unit.folded) else 0.0 for unit in units]


def _stands(term: Term, unit: Unit) -> bool:
    """Whether a term is in a unit itself, and not in the heading of its section alone."""
    words, text = unit.known(_own_words)
    if not term.han:
        return term.key in words
    return any(term.key[at : at + 2] in text for at in range(max(1, len(term.key) - 1)))


def _own_words(unit: Unit) -> tuple[frozenset[str], str]:
    own = f"{unit.lead}\n{unit.text}"
    return stems(own), fold(own)


def others(passage: Passage, subject: Subject) -> list[bool]:
    """Which units tell of another thing than the question's; what goes on about it does, too."""
    found: list[bool] = []
    for unit in passage.units:
        before = bool(found) and found[-1] and unit.kind == "sentence"
        found.append(subject.is_another(unit, passage.head) or (before and continues(unit.text)))
    return found


def _cosine_lead(hits: Sequence[Hit], deviation: float) -> float | None:
    cosines = sorted((hit.cosine for hit in hits if hit.cosine is not None), reverse=True)
    if not cosines:
        return None
    rest = cosines[2:]
    around = hits[0].around
    if around is None and rest:
        around = sum(rest) / len(rest)
    # A base of one or two documents has none to lead: nothing is known then.
    return USUAL_LEAD if around is None else (cosines[0] - around) / deviation


def foreign(terms: Sequence[Term], passages: Sequence[Passage]) -> list[bool]:
    """Which passages lack the question's script, so that its words cannot stand there."""
    if not terms:
        return [False] * len(passages)
    han = any(term.han for term in terms)
    return [not passage.has_han if han else passage.mostly_han for passage in passages]
