"""What to quote where question and passages are in different scripts, so that words do not meet.

Statements are taken by their passage's score, by what needs no translation (codes, numbers, marks),
and by whether they show the type of thing asked for. Whether another document says otherwise is
found by the words of the statement itself; across scripts, by values of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.lexicon import lexicon
from forebay.generation.passages import number_of
from forebay.generation.quantities import Values, agree, differ, quantities, values_in
from forebay.generation.sides import asks_whether, contrary, other_side
from forebay.generation.subjects import Subject
from forebay.generation.support import Reading, Scored, held_of
from forebay.generation.terms import Term, question_terms
from forebay.kernel.documents import Hit

_SHOWN = 0.3
_IN_UNIT = 0.3
_AGREES = 0.3
_OWN = 1.0
_LATER = 0.02
_NEAR = 0.5
"""Weights beside the score of the passage relative to the best: the type shown, the unit that was
asked for, marks or codes in common, the question's own weight held, each place further down the
passage, and each deviation that the sentence's own vector is nearer."""
_SAME_TERMS = 0.65
"""Share of what the best statement holds that the other side must hold too."""
_A_WORD = 0.9
_NAMED = frozenset(("who", "place"))
"""Types whose answers are names, which are written in another way in each script."""
_LIKE = 1.6
_UNLIKE = 1.0
"""Deviations of unrelated sentences from which two in two scripts tell of one thing, and under
which they do not where one has a name that the other has not (lesser ones are not told)."""
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
    # The fewer of its words can be told, the less it says what a statement holds of them.
    trust = _OWN * sum(term.weight > 0.0 for term in terms) / max(1, len(terms))
    top = max((hit.score for hit in hits), default=0.0) or 1.0

    def worth(one: Scored) -> float:
        return (
            hits[one.passage].score / top
            + _SHOWN * (bool(kind.asked) and kind.shown(one.unit))
            + _IN_UNIT * kind.in_unit(one.unit)
            + _AGREES * subject.agrees(one.unit)
            + trust * held_of(terms, one) / total
            + _NEAR * (one.near or 0.0)
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


def without_lesser(terms: Sequence[Term], chosen: list[Scored]) -> list[Scored]:
    """``chosen`` without what tells of the same thing something else than a statement in the other
    script, which holds all that it holds of the question, and a word more, as far as words can be
    told, and is nearer to the question where that is known.
    """
    if len({one.unit.has_han for one in chosen}) < 2:
        return chosen
    told = [at for at, term in enumerate(terms) if lexicon().of(term)]

    def is_lesser(one: Scored, other: Scored) -> bool:
        if one.near is not None and other.near is not None and one.near >= other.near:
            return False
        more = [terms[at].weight * (other.own[at] - one.own[at]) for at in told]
        return other.unit.has_han != one.unit.has_han and min(more) >= 0.0 and sum(more) >= _A_WORD

    if not told:
        return chosen
    return [one for one in chosen if not any(is_lesser(one, other) for other in chosen)]


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
    nothing = (0.0,) * len(words)
    own = [
        msgspec.structs.replace(
            one, own=tuple(one.unit.holds(term) for term in words), above=nothing
        )
        for one in (best, *elsewhere)
    ]
    found = other_side(question, words, own[0], own[1:], hits)
    return None if found is None else elsewhere[own.index(found, 1) - 1]


def across(
    asked: tuple[AnswerType, Subject],
    question: str,
    best: Scored,
    reading: Reading,
    hits: Sequence[Hit],
) -> Scored | None:
    """The statement of another document, in the other script, that says otherwise.

    It is about the same thing by its marks and codes, or by holding what ``best`` holds of the
    question as far as the words are known; and it gives another value, or another name. Where none
    is found by words, it is the one most like ``best``, if vectors of sentences are known.
    """
    kind, terms = asked[0], reading.terms
    document = hits[best.passage].chunk.document_id
    others = [
        one
        for one in reading.units
        if one.unit.has_han != best.unit.has_han
        and one.unit.kind in ("sentence", "item")
        and hits[one.passage].chunk.document_id != document
        and kind.shown(one.unit)
    ]
    if not others:
        return None
    known = [bool(lexicon().of(term)) for term in terms]
    shared = [(_shared(terms, known, best, one), one) for one in others]
    said, least = quantities(question), _AS_NEAR * hits[best.passage].score
    for share, one in sorted(shared, key=lambda pair: -pair[0]):
        if _names_another(known, best, one, reading):
            continue
        same = share >= _SAME_TERMS
        near = kind.asked and hits[one.passage].score >= least and asked[1].agrees(one.unit)
        if not same and not near:
            continue
        if _says_otherwise(question, best, one, said):
            return one
        if not same or agree(values_in(best.unit), values_in(one.unit)):
            continue
        if kind.asked in _NAMED and not _same_name(terms, best, one):
            return one
        # Six devices and 8 台, 18 euros and 25 元: what is counted is written in another way.
        if (
            values_in(best.unit)
            and values_in(one.unit)
            and _holds_all(known, best)
            and _holds_all(known, one)
        ):
            return one
    most = max(others, key=lambda one: _likeness(reading, best, one))
    if are_alike(reading, best, most) and _says_otherwise(question, best, most, said):
        return most
    return None


def _names_another(known: Sequence[bool], best: Scored, one: Scored, reading: Reading) -> bool:
    """Whether ``best`` holds a word of the question that no lexicon knows, such as a name, and the
    other statement does not, and is unlike: the deposit in Leuven and 无锡店的押金.
    """
    return (
        bool(reading.likeness)
        and any(
            mine and not theirs and not word
            for mine, theirs, word in zip(best.own, one.own, known, strict=True)
        )
        and _likeness(reading, best, one) < _UNLIKE
    )


def are_alike(reading: Reading, one: Scored, other: Scored) -> bool:
    """Whether two statements tell of one thing by their vectors, where those are known."""
    return _likeness(reading, one, other) >= _LIKE


def _says_otherwise(question: str, best: Scored, one: Scored, said: Values) -> bool:
    """Whether two statements of the same thing give other values, or one denies what is asked."""
    mine, theirs = values_in(best.unit), values_in(one.unit)
    if differ(mine, theirs, said):
        return True
    denies = asks_whether(question) and contrary(best.unit.text, one.unit.text)
    return denies and not agree(mine, theirs)


def _likeness(reading: Reading, one: Scored, other: Scored) -> float:
    """How like two statements are, in deviations of unrelated ones; 0 where nobody knows."""
    pair = sorted((one.unit.known(number_of), other.unit.known(number_of)))
    return reading.likeness.get((pair[0], pair[1]), 0.0)


def _shared(terms: Sequence[Term], known: Sequence[bool], best: Scored, one: Scored) -> float:
    """How much of what ``best`` holds the other holds, of the words that can be told; 0..1."""
    held = shared = 0.0
    for term, tellable, mine, theirs in zip(terms, known, best.own, one.own, strict=True):
        if tellable or theirs:
            held += term.weight * mine
            shared += term.weight * min(mine, theirs)
    return shared / held if held else 0.0


def _holds_all(known: Sequence[bool], one: Scored) -> bool:
    return all(held >= 1.0 for held, told in zip(one.own, known, strict=True) if told)


def _same_name(terms: Sequence[Term], best: Scored, one: Scored) -> bool:
    """Whether a word that the question lacks stands in both, as far as words can be told."""
    asked = {term.key for term in terms}
    return any(
        one.unit.holds(term) or one.unit.holds_abroad(lexicon().of(term), han=not term.han) >= 1.0
        for term in question_terms(best.unit.text)
        if term.key not in asked and best.unit.holds(term)
    )
