"""Which units answer: one to a few, each adding something, in reading order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import mul

from forebay.generation.answer_kinds import AnswerKind
from forebay.generation.sides import other_side
from forebay.generation.support import Scored
from forebay.generation.terms import Term
from forebay.kernel.documents import Hit

_OWN = 0.35
_RANK = 0.5
_HEADING = 0.3
"""Weights beside the coverage of a unit and its surroundings: the unit's own coverage, the hit's
score relative to the best, the penalty of a heading. Tuned on the first half of the XQuAD
questions for how often the quotation holds the answer (``benchmarks/extractive``)."""
_NEAR = 0.3
"""The same for each deviation that its own vector is nearer (``benchmarks/answers``)."""
_MORE = 0.62
_GAIN = 0.08
_OTHER_SIDE = 0.5
"""Of the best unit's worth, what a sentence needs to be its other side."""
_UNSURE = 0.34
_SAME_WORDS = 0.8
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def choose(
    question: str,
    terms: Sequence[Term],
    hits: Sequence[Hit],
    units: Sequence[Scored],
    *,
    max_quotes: int,
    max_characters: int,
) -> list[Scored]:
    """Return the units to quote, in reading order (by passage, then place); none if there is none.

    The best unit first; where another document says otherwise, its sentence too: which one holds
    is not for us to say. Then those that come near the best and cover terms that are still open,
    or lie right beside it in its passage, as long as they fit.
    """
    if not units:
        return []
    total = sum(term.weight for term in terms) or 1.0
    best_score = max((hit.score for hit in hits), default=0.0) or 1.0
    asked = AnswerKind(question)
    weights = [term.weight for term in terms]
    ranks = [hit.score / best_score for hit in hits]
    worth = [(_worth(one, ranks[one.passage], weights, total, asked), one) for one in units]
    worth.sort(key=lambda pair: (-pair[0], pair[1].passage, pair[1].position))
    best_worth, best = worth[0]
    chosen = [best]
    # Where the best unit shares few words with the question, the words around it decide little.
    unsure = _share(best, weights, total) < _UNSURE
    covered = list(best.own)
    room = max_characters - len(best.unit.text)
    near = [one for value, one in worth[1:] if value >= _OTHER_SIDE * best_worth]
    other = other_side(question, terms, best, near, hits) if max_quotes > 1 else None
    if other is not None and len(other.unit.text) <= room:
        chosen.append(other)
        room -= len(other.unit.text)
    for value, one in worth[1:]:
        if len(chosen) >= max_quotes or value < _MORE * best_worth:
            break
        gain = sum(
            term.weight * max(0.0, own - had)
            for term, own, had in zip(terms, one.own, covered, strict=True)
        )
        size = len(one.unit.text)
        if size > room or one is other:
            continue
        adds = gain >= _GAIN * total or unsure
        if not (_contradicts(one, chosen, hits) or (adds and not _repeats(one, chosen))):
            continue
        chosen.append(one)
        room -= size
        covered = [max(a, b) for a, b in zip(covered, one.own, strict=True)]
    return sorted(chosen, key=lambda one: (one.passage, one.position))


def lead_of(units: Sequence[Scored], *, max_characters: int) -> list[Scored]:
    """The opening of the first passage: what is quoted when words cannot choose."""
    chosen: list[Scored] = []
    room = max_characters
    for one in units:
        if one.passage != units[0].passage or len(chosen) == 2:
            break
        if len(one.unit.text) > room and chosen:
            break
        chosen.append(one)
        room -= len(one.unit.text)
    return chosen


def _worth(
    one: Scored, rank: float, weights: Sequence[float], total: float, asked: AnswerKind
) -> float:
    worth = one.fit + _OWN * _share(one, weights, total) + _RANK * rank + asked.bonus(one.unit)
    worth += _NEAR * (one.near or 0.0)
    return worth - _HEADING if one.unit.kind == "heading" else worth


def _share(one: Scored, weights: Sequence[float], total: float) -> float:
    share: float = sum(map(mul, weights, one.own)) / total
    return share


def _repeats(one: Scored, chosen: Sequence[Scored]) -> bool:
    """Whether the same thing is quoted already: overlapping chunks repeat their sentences."""
    for other in chosen:
        if one.unit.text in other.unit.text or other.unit.text in one.unit.text:
            return True
        mine, theirs = _shingles(one), _shingles(other)
        smaller = min(len(mine), len(theirs))
        if smaller and len(mine & theirs) >= _SAME_WORDS * smaller:
            return True
    return False


def _contradicts(one: Scored, chosen: Sequence[Scored], hits: Sequence[Hit]) -> bool:
    """Whether it says in other numbers what a sentence of another document says."""
    mine = _NUMBER.findall(one.unit.folded)
    if not mine or one.unit.kind != "sentence":
        return False
    return any(
        other.unit.kind == "sentence"
        and hits[other.passage].chunk.document_id != hits[one.passage].chunk.document_id
        and len(theirs := _NUMBER.findall(other.unit.folded)) == len(mine)
        and theirs != mine
        and _masked(other) == _masked(one)
        for other in chosen
    )


def _masked(one: Scored) -> str:
    """A sentence with every number alike."""
    return " ".join(_NUMBER.sub("0", one.unit.folded).split()).rstrip(".。!！")


def _shingles(one: Scored) -> frozenset[str]:
    folded = one.unit.folded
    pairs = {folded[at : at + 3] for at in range(len(folded) - 2)}
    return frozenset(pairs)
