"""Which units answer: one to a few, each adding something, in reading order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.generation.support import Scored
from forebay.generation.terms import Term
from forebay.kernel.documents import Hit

_OWN = 0.35
_RANK = 0.5
_NUMBER = 0.12
_HEADING = 0.3
"""Weights beside the window's coverage: the unit's own coverage, the hit's score relative to the
best, a number where one is asked for, and the penalty of a heading. Tuned on the first half of
the XQuAD questions for how often the quotation holds the answer (``benchmarks/extractive``)."""
_MORE = 0.62
_GAIN = 0.08
_SAME_WORDS = 0.8

_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:many|much|long|old|far|often|tall|high|large|big|fast)|when|what (?:year|date|"
    r"percent\w*|age|time|number|day)|which year)\b"
    r"|多少|几|哪年|哪一年|何时|什么时候|什么时间|多久|多长|多大|多高|多远|幾|哪一天|何年|什麼時候",
    re.IGNORECASE,
)
_NUMBER_IN = re.compile(
    r"\d|[一二三四五六七八九十百千万亿]{2}|[零两]|[一二三四五六七八九十][天个年次种名倍]"
)
_WRITTEN = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|"
    r"million|billion|once|twice|half|annually|daily|weekly|monthly)\b"
)


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

    The best unit first; then those that come near it and cover terms that are still open, or lie
    right beside it in its passage, as long as they fit.
    """
    if not units:
        return []
    total = sum(term.weight for term in terms) or 1.0
    best_score = max((hit.score for hit in hits), default=0.0) or 1.0
    number = _ASKS_NUMBER.search(question) is not None
    worth = [
        (_worth(one, hits[one.passage].score / best_score, terms, total, number=number), one)
        for one in units
    ]
    worth.sort(key=lambda pair: (-pair[0], pair[1].passage, pair[1].position))
    best_worth, best = worth[0]
    chosen = [best]
    covered = list(best.own)
    room = max_characters - len(best.unit.text)
    for value, one in worth[1:]:
        if len(chosen) >= max_quotes or value < _MORE * best_worth:
            break
        gain = sum(
            term.weight * max(0.0, own - had)
            for term, own, had in zip(terms, one.own, covered, strict=True)
        )
        size = len(one.unit.text)
        if gain < _GAIN * total or size > room or _repeats(one, chosen):
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


def _worth(one: Scored, rank: float, terms: Sequence[Term], total: float, *, number: bool) -> float:
    own = sum(term.weight * held for term, held in zip(terms, one.own, strict=True)) / total
    worth = one.window + _OWN * own + _RANK * rank
    if number and _has_number(one.unit.text):
        worth += _NUMBER
    if one.unit.kind == "heading" or one.unit.text.endswith(("?", "？")):
        worth -= _HEADING
    return worth


def _has_number(text: str) -> bool:
    return _NUMBER_IN.search(text) is not None or _WRITTEN.search(text.lower()) is not None


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


def _shingles(one: Scored) -> frozenset[str]:
    folded = one.unit.folded
    pairs = {folded[at : at + 3] for at in range(len(folded) - 2)}
    return frozenset(pairs)
