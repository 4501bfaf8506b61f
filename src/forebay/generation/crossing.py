"""What to quote where question and passages are in different scripts, so that words do not meet.

Statements are taken by their passage's score, by what needs no translation (codes, numbers, marks),
and by whether they show the type of thing asked for. Whether another document says otherwise is
found by the words of the statement itself; across scripts, by values of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.quantities import differ, quantities, values_in
from forebay.generation.sides import other_side
from forebay.generation.subjects import Subject
from forebay.generation.support import Scored
from forebay.generation.terms import Term, question_terms
from forebay.kernel.documents import Hit

_SHOWN = 0.3
_IN_UNIT = 0.3
_AGREES = 0.3
_OWN = 0.5
_LATER = 0.02
"""Weights beside the score of the passage relative to the best: the type shown, the unit that was
asked for, marks or codes in common, the question's own weight held, and each place further down the
passage."""
_AS_NEAR = 0.2
"""Of the best hit's score, what a hit in the other script needs to be the other side."""


def agrees(subject: Subject, units: Sequence[Scored]) -> bool:
    """Whether the first passage left shares a code or a mark with the question."""
    return any(one.passage == units[0].passage and subject.agrees(one.unit) for one in units)


def choose_crossing(
    asked: tuple[AnswerType, Subject],
    terms: Sequence[Term],
    hits: Sequence[Hit],
    units: Sequence[Scored],
    *,
    max_quotes: int,
    max_characters: int,
) -> list[Scored]:
    """Return the best statement and those beside it in its passage, in reading order."""
    kind, subject = asked
    total = sum(term.weight for term in terms) or 1.0
    top = max((hit.score for hit in hits), default=0.0) or 1.0

    def worth(one: Scored) -> float:
        own = sum(term.weight * held for term, held in zip(terms, one.own, strict=True)) / total
        return (
            hits[one.passage].score / top
            + _SHOWN * (bool(kind.asked) and kind.shown(one.unit))
            + _IN_UNIT * kind.in_unit(one.unit)
            + _AGREES * subject.agrees(one.unit)
            + _OWN * own
            - _LATER * one.position
        )

    ranked = sorted(units, key=lambda one: (-worth(one), one.passage, one.position))
    if not ranked:
        return []
    chosen, room = [ranked[0]], max_characters - len(ranked[0].unit.text)
    for one in ranked[1:]:
        if len(chosen) >= max_quotes:
            break
        if one.passage == ranked[0].passage and len(one.unit.text) <= room:
            chosen.append(one)
            room -= len(one.unit.text)
    return sorted(chosen, key=lambda one: (one.passage, one.position))


def another_telling(
    question: str, best: Scored, units: Sequence[Scored], hits: Sequence[Hit]
) -> Scored | None:
    """The statement of another document, in the script of ``best``, that says otherwise."""
    document = hits[best.passage].chunk.document_id
    elsewhere = [one for one in units if hits[one.passage].chunk.document_id != document]
    # What no other document says is the statement's own way of saying it.
    words = [
        term
        for term in question_terms(best.unit.text)
        if not term.key[:1].isdigit() and any(one.unit.holds(term) for one in elsewhere)
    ]
    own = [
        msgspec.structs.replace(one, own=tuple(one.unit.holds(term) for term in words))
        for one in (best, *elsewhere)
    ]
    found = other_side(question, words, own[0], own[1:], hits)
    return None if found is None else elsewhere[own.index(found, 1) - 1]


def across(
    asked: tuple[AnswerType, Subject],
    question: str,
    best: Scored,
    units: Sequence[Scored],
    hits: Sequence[Hit],
) -> Scored | None:
    """The statement of another document, in the other script, that gives another value."""
    kind, subject = asked
    if not kind.asked:
        return None
    document = hits[best.passage].chunk.document_id
    least = _AS_NEAR * hits[best.passage].score
    others = [
        one
        for one in units
        if one.unit.has_han != best.unit.has_han
        and one.unit.kind == "sentence"
        and hits[one.passage].chunk.document_id != document
        and hits[one.passage].score >= least
    ]
    if not others:
        return None
    mine, known = values_in(best.unit), quantities(question)
    for one in others:
        if (
            kind.shown(one.unit)
            and subject.agrees(one.unit)
            and differ(mine, values_in(one.unit), known)
        ):
            return one
    return None
