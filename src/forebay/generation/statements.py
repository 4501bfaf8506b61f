"""Whether the chosen statements say what is asked, where passages speak of the thing at all.

Refused is what shows no such thing as is asked for (a person, a date), and what leaves too much of
the question open: a logistic score of two shares of the question's weight and the passage's score,
fitted apart for Chinese, whose words are cut and not given. Constants: ``benchmarks/answers``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.contrast import compares, is_arbitrary, tells_of_another
from forebay.generation.passages import cells
from forebay.generation.subjects import Subject
from forebay.generation.support import Reading, Scored, held_of
from forebay.generation.tables import is_rest
from forebay.generation.terms import NAME_WEIGHT, WORD_WEIGHT, Term, fold, stems
from forebay.generation.things import is_thing, names_kind
from forebay.kernel.documents import Hit

_HEAD = 0.5
_HELD = 0.4
_CODE = 0.5
_ALL = 0.9
_SURELY = 0.95
_BEGUN = 1.8
"""Where a Chinese statement has the question's own beginning, what it lacks is surely not said: so
many times what is lacking counts else, where words may have been cut in another way."""
_AS_MUCH = 0.5
_SAYS_ONE_THING = {True: 64, False: 150}
"""Characters up to which a sentence (Chinese, other) says little beside what it holds."""


class Telling(msgspec.Struct, frozen=True):
    """A fitted model: log-odds that a right answer is told; 0 is the threshold.

    ``open``: share of the question's weight that the best statement's passage lacks. ``named``:
    share that no passage has, where short statements hold only what is asked about and nothing
    that is asked of it; else 0. ``measured``: 1 where a measure is asked for, ``typed``: 1 where a
    person, place or time is. ``share``: the hit's score where scores are shares of an ideal.
    """

    constant: float
    open: float
    named: float
    measured: float
    typed: float
    share: float = 0.0


class TellingModel(msgspec.Struct, frozen=True):
    """Constants by language of the question, with scores that are shares and without; ``crossing``:
    all passages are in the other script.
    """

    han: Telling
    han_share: Telling
    other: Telling
    other_share: Telling
    crossing: Telling


def telling_score(
    asked: tuple[AnswerType, Subject],
    terms: Sequence[Term],
    reading: Reading,
    chosen: Sequence[Scored],
    hits: Sequence[Hit],
    model: TellingModel,
) -> float:
    """Log-odds that ``chosen`` tells what is asked; rows and code are not judged."""
    kind, subject = asked
    if _only_common(terms, reading):
        return -math.inf
    said = open_share(terms, reading, chosen)
    if said >= 1.0 and _names_nowhere(terms, reading):
        # Only a title above speaks of what is asked: an owner stands for no director.
        return -math.inf
    if not subject.amounts and _another_row(terms, reading, chosen):
        return -math.inf
    if any(one.unit.kind in ("row", "code") for one in chosen):
        return -math.inf if of_another(asked, terms, reading, chosen, hits) else math.inf
    if not any(kind.shown(one.unit) for one in chosen) and not (
        # Not every name is known as one: where all else is said, one may well be there.
        kind.asked == "who"
        and held_of(terms, fullest(terms, chosen)) >= _SURELY * sum(term.weight for term in terms)
    ):
        return -math.inf
    if of_another(asked, terms, reading, chosen, hits):
        return -math.inf
    best = fullest(terms, chosen)
    if (
        best.unit.has_han == any(term.han for term in terms)
        and is_arbitrary(terms, best, reading, kind)
        and named_share(subject, kind.unnamed(terms), reading, chosen)
    ):
        return -math.inf
    left = said if reading.features.crossing else open_share(terms, reading, chosen, hits)
    share = max(hits[one.passage].score for one in chosen) if reading.features.share else 0.0
    if reading.features.crossing:
        telling = model.crossing
    elif any(term.han for term in terms):
        telling = model.han_share if share else model.han
    else:
        telling = model.other_share if share else model.other
    unnamed = terms if reading.features.crossing else kind.unnamed(terms)
    return (
        telling.constant
        + telling.open * left
        + telling.named * named_share(subject, unnamed, reading, chosen)
        + telling.measured * kind.is_measure
        + telling.typed * bool(kind.asked)
        + telling.share * share
    )


def of_another(
    asked: tuple[AnswerType, Subject],
    terms: Sequence[Term],
    reading: Reading,
    chosen: Sequence[Scored],
    hits: Sequence[Hit],
) -> bool:
    """Whether words say that the statements are about another thing than the question; code is not
    judged, and of a statement in the other script nobody can tell what it lacks.
    """
    kind, subject = asked
    if any(one.unit.kind in ("row", "code") for one in chosen):
        best = fullest(terms, chosen)
        return best.unit.kind == "row" and _row_lacks(subject, terms, reading, best, hits)
    if _begins_with_another(subject, terms, reading, chosen):
        return True
    best = fullest(terms, chosen)
    if best.unit.has_han != any(term.han for term in terms):
        return False
    return tells_of_another(terms, best, reading, measure=kind.asked not in ("who", "place"))


def fullest(terms: Sequence[Term], chosen: Sequence[Scored]) -> Scored:
    """The statement that holds most of the question itself; of equals the first."""
    return max(chosen, key=lambda one: held_of(terms, one))


def says_all(terms: Sequence[Term], reading: Reading) -> bool:
    """Whether a statement has every word of a question that names something."""
    return any(term.weight >= WORD_WEIGHT for term in terms) and any(
        all(one.own) for one in reading.units
    )


def showing(kind: AnswerType, reading: Reading, chosen: Sequence[Scored]) -> Reading:
    """The units that show the type of thing asked for themselves, and hold about as much as
    ``chosen``.
    """
    least = _AS_MUCH * max((one.fit for one in chosen), default=0.0)
    units = [one for one in reading.units if one.fit >= least and kind.shown(one.unit, itself=True)]
    return msgspec.structs.replace(reading, units=tuple(units))


def _only_common(terms: Sequence[Term], reading: Reading) -> bool:
    """Whether passages hold a single common word of the question and none that says what it is
    about: of "how many days of maternity leave" the days.
    """
    held = [term.weight for term, have in zip(terms, reading.held, strict=True) if have]
    return (
        len(terms) > 1
        and len(held) < 2
        and not reading.features.crossing
        and sum(held) < WORD_WEIGHT
    )


def _names_nowhere(terms: Sequence[Term], reading: Reading) -> bool:
    """Whether the question has a name or number that no passage holds."""
    return not reading.features.crossing and any(
        term.weight >= NAME_WEIGHT and have <= 0.0
        for term, have in zip(terms, reading.held, strict=True)
    )


def _another_row(terms: Sequence[Term], reading: Reading, chosen: Sequence[Scored]) -> bool:
    """Whether rows are quoted for their columns alone, and the question has a word for another."""
    lacking = [
        term
        for term, have in zip(terms, reading.held, strict=True)
        if have <= 0.0 and term.weight >= WORD_WEIGHT
    ]
    return (
        bool(lacking)
        and not reading.features.crossing
        and all(one.unit.kind == "row" and _has_key(one) for one in chosen)
        and not any(is_rest(one.unit) or _in_cells(term, one) for one in chosen for term in terms)
    )


def _row_lacks(
    subject: Subject,
    terms: Sequence[Term],
    reading: Reading,
    best: Scored,
    hits: Sequence[Hit],
) -> bool:
    """Whether a row, and what stands above it, lack what says which of its kind is meant: a name
    that no passage has, a number, a Chinese noun before a word that is there.
    """
    if reading.features.crossing:
        return False
    above = reading.heads[best.passage]
    chunk = hits[best.passage].chunk
    titles = fold(" ".join((chunk.title, *chunk.heading_path)))
    text = "".join(term.key for term, have in zip(terms, reading.held, strict=True) if have)
    for term, own, head, have in zip(terms, best.own, above, reading.held, strict=True):
        if own > 0.0 or head > 0.0 or term.weight < WORD_WEIGHT:
            continue
        if term.han:
            told = not best.unit.in_han or have > 0.0 or all(one in text for one in term.key)
            modifies = not told and subject.modifies(term.key, best.unit, titles)
            if modifies and names_kind(term.key):
                return True
        elif (
            term.weight >= NAME_WEIGHT
            and (have <= 0.0 or any(map(str.isdigit, term.key)))
            and not subject.dates(term.key)
        ):
            return True
    return False


def _has_key(row: Scored) -> bool:
    """Whether a row begins with a word, and not with a number."""
    return any(character.isalpha() for character in cells(row.unit.text)[0])


def _in_cells(term: Term, row: Scored) -> bool:
    text = row.unit.text
    return term.key in text.lower() if term.han else term.key in stems(text)


def open_share(
    terms: Sequence[Term], reading: Reading, chosen: Sequence[Scored], hits: Sequence[Hit] = ()
) -> float:
    """Share of the question's weight that the best statement's passage lacks, 0..1; with ``hits``
    what stands in its headings counts, too: they are said of each statement, and may well be the
    question. A title is said of all that is told.
    """
    total = sum(term.weight for term in terms) or 1.0
    best = max(chosen, key=lambda one: (one.fit, -one.passage))
    around = [one.own for one in reading.units if one.passage == best.passage]
    held = [max(own[at] for own in around) for at in range(len(terms))]
    heading = fold(" ".join(hits[best.passage].chunk.heading_path)) if hits else ""
    if heading:
        above = stems(heading)
        held = [
            max(here, _HEAD * (term.key in (heading if term.han else above)))
            for here, term in zip(held, terms, strict=True)
        ]
    return sum(term.weight * (1.0 - here) for here, term in zip(held, terms, strict=True)) / total


def _begins_with_another(
    subject: Subject, terms: Sequence[Term], reading: Reading, chosen: Sequence[Scored]
) -> bool:
    """Whether a short statement says all that a Chinese question asks, of something else: what the
    question begins with is a thing that no passage speaks of.
    """
    if len(terms) < 2 or not terms[0].han or reading.held[0] > 0.0 or reading.features.crossing:
        return False
    rest = sum(term.weight for term in terms[1:])
    if terms[0].weight < WORD_WEIGHT or rest < WORD_WEIGHT or not is_thing(terms[0].key):
        return False
    if not subject.starts_with(terms[0].key):
        # 哪个实体: what is asked for, and not of what.
        return False
    return any(
        held_of(terms, one) >= _ALL * rest
        for one in chosen
        if len(one.unit.text) <= _SAYS_ONE_THING[True]
    )


def named_share(
    subject: Subject, terms: Sequence[Term], reading: Reading, chosen: Sequence[Scored]
) -> float:
    """Share that no passage has, where short statements hold only what is asked about."""
    if compares(terms) or any(
        len(one.unit.text) > _SAYS_ONE_THING[one.unit.has_han] for one in chosen
    ):
        return 0.0
    held = [max(one.own[at] for one in chosen) for at in range(len(terms))]
    asked_of = subject.asked_of(terms, held, [one.unit for one in chosen])
    if not any(terms[at].weight >= WORD_WEIGHT or terms[at].han for at in asked_of) or any(
        held[at] >= _HELD for at in asked_of
    ):
        return 0.0
    # A code and its parts are one thing, whatever they weigh together.
    codes = [subject.in_code(term.key) for term in terms]
    total = sum(term.weight for term, code in zip(terms, codes, strict=True) if not code)
    total += _CODE * any(codes)
    missing = sum(
        term.weight * (1.0 - have) for term, have in zip(terms, reading.held, strict=True)
    ) / (total or 1.0)
    return missing * (_BEGUN if subject.begins([one.unit for one in chosen]) else 1.0)
