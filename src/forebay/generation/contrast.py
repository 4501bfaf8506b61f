"""Whether a statement is one of several that differ in the thing they tell of, none of them asked.

"Acetone boils at 56 degrees", "ethanol boils at 78 degrees": where two statements are alike but for
a word in one place, that word tells things apart, whatever it means. A question that has neither
word, and another that is in neither statement, is about a third thing; one whose word stands in
that place of another statement is about a sibling. No list of words is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.generation.answer_types import AnswerType
from forebay.generation.passages import Unit
from forebay.generation.quantities import counted, values_in
from forebay.generation.support import Reading, Scored
from forebay.generation.terms import HAN, WORD_WEIGHT, Term, stems

_SHORT = {True: 64, False: 150}
"""Characters (Chinese, other) up to which a statement tells of one thing."""
_TOKEN = re.compile(rf"\0|[{HAN}]|[^\W_{HAN}]+(?:['’.,:\-/][^\W_{HAN}]+)*|[^\w\s]")
_NUMERAL = re.compile(
    r"\d|^(?:mon|tues|wednes|thurs|fri|satur|sun)days?$|^(?:january|february|march|april|may|june"
    r"|july|august|september|october|november|december)$"
)
_WEEKDAY = re.compile("(?:周|星期|礼拜)[一二三四五六日天]")
_VALUE = "\0"
_ALIKE = 3
"""The share of the longer statement's tokens that both must have is one in so many."""
_WIDEST = {True: 6, False: 3}
"""Tokens (Chinese characters, other words) that name a thing at most."""
_AFTER = {True: 2, False: 1}
"""Tokens behind the place that must be the same."""
_LEAN = 0.1
"""Deviations that a statement about the thing asked about is nearer, at least, than its like."""
_ENDS = frozenset(".。!！;；?？")
_COMPARING = frozenset({
    *stems("difference differences differ differs different compare compared comparison versus vs"),
    *"区别 差别 差异 不同 异同 不一样 比较 对比 相比".split(),
})  # fmt: skip
"""What says that things are compared: a statement about one of them lacks the other."""


def tells_of_another(
    terms: Sequence[Term], best: Scored, reading: Reading, *, measure: bool
) -> bool:
    """Whether ``best`` lacks a word of the question, and its place is held by another there.

    ``measure``: the answer is a number, so that words in the same place are no two answers.
    """
    if not _tells_one_thing(best.unit):
        return False
    lacking = [
        (term, have > 0.0)
        for term, held, have in zip(terms, best.own, reading.held, strict=True)
        if held <= 0.0 and term.weight >= WORD_WEIGHT
    ]
    if not lacking:
        return False
    asked = frozenset(term.key for term in terms)
    others = [
        one for one in reading.units if one.unit is not best.unit and _tells_one_thing(one.unit)
    ]
    # What a heading says is said of each of its statements, and may tell them apart.
    above = reading.heads[best.passage]
    alike = [one for one in others if reading.heads[one.passage] == above]
    return any(_is_third(asked, best, one, measure=measure) for one in alike) or any(
        _is_sibling(asked, term, best.unit, others) for term, elsewhere in lacking if elsewhere
    )


def leans_away(chosen: Sequence[Scored], reading: Reading) -> bool:
    """Whether vectors of sentences say that a question in another language is about another thing.

    Of two statements that are alike but for a word, the one with the word of the nearest of
    ``chosen`` is nearer to a question about its thing, whatever else they say: on the mean of all
    such pairs.
    """
    best = max(chosen, key=lambda one: one.near or 0.0)
    if best.near is None or not _tells_one_thing(best.unit):
        return False
    known = [one for one in reading.units if one.near is not None and _tells_one_thing(one.unit)]
    tokens, mentioned = best.unit.known(_tokens), best.unit.known(_words)
    words = [one.unit.known(_words) for one in known]
    apart: list[float] = []
    for at, one in enumerate(known):
        for again, other in enumerate(known[at + 1 :], at + 1):
            # Alike, and with a word of the best that is not in both.
            common = words[at] & words[again]
            if len(common) * _ALIKE < len(words[at]) or len(mentioned & common) == len(
                mentioned & (words[at] | words[again])
            ):
                continue
            for mine, theirs in places(one.unit, other.unit):
                here, there = _contains(tokens, mine), _contains(tokens, theirs)
                if here != there and _names_two(mine, theirs):
                    nearer = (one.near or 0.0) - (other.near or 0.0)
                    apart.append(nearer if here else -nearer)
    return bool(apart) and sum(apart) < _LEAN * len(apart)


def compares(terms: Sequence[Term]) -> bool:
    """Whether a question compares things."""
    return any(term.key in _COMPARING for term in terms)


def is_arbitrary(terms: Sequence[Term], best: Scored, reading: Reading, kind: AnswerType) -> bool:
    """Whether another statement holds the same of the question and tells of something else: then
    neither says what is asked of the thing.
    """
    if not _tells_one_thing(best.unit) or compares(terms) or not kind.asked_at_all:
        return False
    above = reading.heads[best.passage]
    if not any(
        held <= 0.0 and head <= 0.0 and term.weight >= WORD_WEIGHT
        for term, held, head in zip(terms, best.own, above, strict=True)
    ):
        return False
    mine = values_in(best.unit).keys()
    return any(
        one.unit is not best.unit
        and _tells_one_thing(one.unit)
        and all(theirs >= held for theirs, held in zip(one.own, best.own, strict=True))
        and reading.heads[one.passage] == above
        and kind.shown(one.unit)
        and mine.isdisjoint(values_in(one.unit).keys())
        for one in reading.units
    )


def _is_third(asked: frozenset[str], best: Scored, other: Scored, *, measure: bool) -> bool:
    """Whether two statements hold the same of the question and differ in a word it lacks."""
    if any(mine > theirs for mine, theirs in zip(best.own, other.own, strict=True)):
        return False
    found = places(best.unit, other.unit)
    named = [place for place in found if _names_two(*place)]
    if not named or any(_asks_for(asked, word) for place in named for word in place):
        return False
    # One place alone may be that of the answer, of which two documents say different things.
    return measure or len(found) > 1


def _names_two(mine: Tokens, theirs: Tokens) -> bool:
    """Whether the words of a place are two names: no values, and nothing that is put in front."""
    one, other = "".join(mine), "".join(theirs)
    return (
        _VALUE not in one + other
        and not (one.endswith(other) or other.endswith(one))
        and all(token.isalnum() or len(token) > 1 for token in mine + theirs)
    )


def _is_sibling(asked: frozenset[str], term: Term, best: Unit, others: Sequence[Scored]) -> bool:
    """Whether a word of ``best`` stands elsewhere where the question's word stands."""
    about = [one.unit for one in others if one.unit.holds(term) >= 1.0]
    rest = [one.unit for one in others if one.unit.holds(term) < 1.0] if about else []
    tokens = best.known(_tokens)
    for unit in about:
        for other in (*rest, best):
            for mine, theirs in places(unit, other):
                if (
                    _VALUE not in theirs
                    and _is_in(term, mine)
                    and not _asks_for(asked, theirs)
                    and _contains(tokens, theirs)
                ):
                    return True
    return False


Tokens = tuple[str, ...]
Place = tuple[Tokens, Tokens]


def places(one: Unit, other: Unit) -> list[Place]:
    """The places in which two statements differ, both being the same before and behind each; none
    where they are not the same all along.
    """
    left, right = one.known(_tokens), other.known(_tokens)
    longest = max(len(left), len(right))
    # Most are not alike at all, which is told fast.
    if len(one.known(_words) & other.known(_words)) * _ALIKE < longest:
        return []
    found: list[Place] = []
    i = j = same = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            same += 1
            i, j = i + 1, j + 1
            continue
        step = _meet(left[i:], right[j:], han=one.in_han)
        if step is None:
            return []
        found.append((left[i : i + step[0]], right[j : j + step[1]]))
        i, j = i + step[0], j + step[1]
    if i < len(left) or j < len(right) or 2 * same < longest:
        return []
    return found


def _meet(left: Tokens, right: Tokens, *, han: bool) -> tuple[int, int] | None:
    """How many tokens each side goes on until both are the same again, or at their end."""
    widest, after = _WIDEST[han], _AFTER[han]
    for both in range(2, 2 * widest + 1):
        for size in range(1, both):
            rest = both - size
            if size > widest or rest > widest:
                continue
            ends = left[size : size + after], right[rest : rest + after]
            if ends[0] == ends[1] and size <= len(left) and rest <= len(right):
                return size, rest
    return None


def _tokens(unit: Unit) -> Tokens:
    """The tokens of a statement, each number as a value, without its end."""
    folded = unit.folded
    if unit.in_han:
        for one in sorted(counted(folded), key=lambda one: -one.start):
            folded = folded[: one.start] + _VALUE + folded[one.end :]
        folded = _WEEKDAY.sub(_VALUE, folded)
    found = [
        _VALUE if match[0] == _VALUE or _NUMERAL.search(match[0]) else match[0]
        for match in _TOKEN.finditer(folded)
    ]
    while found and found[-1] in _ENDS:
        found.pop()
    return tuple(found)


def _words(unit: Unit) -> frozenset[str]:
    return frozenset(unit.known(_tokens))


def _tells_one_thing(unit: Unit) -> bool:
    return unit.kind in ("sentence", "item") and len(unit.text) <= _SHORT[unit.has_han]


def _asks_for(asked: frozenset[str], words: Tokens) -> bool:
    """Whether a word in a place is the question's."""
    text = "".join(words)
    return (
        any(key in text or text in key for key in asked)
        if not text.isascii()
        else any(not stems(word).isdisjoint(asked) for word in words)
    )


def _is_in(term: Term, words: Tokens) -> bool:
    return term.key in "".join(words) if term.han else any(term.key in stems(one) for one in words)


def _contains(tokens: Tokens, words: Tokens) -> bool:
    size = len(words)
    return any(tokens[at : at + size] == words for at in range(len(tokens) - size + 1))
