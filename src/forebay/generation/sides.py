"""Whether two sentences that speak of the same thing say different things of it.

They differ in a number of the same unit, a weekday or month, a name, one word in the same place,
or, where the question asks whether something is so, in a negation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from forebay.generation.passages import Unit
from forebay.generation.quantities import YEAR, quantities, values_in
from forebay.generation.quantities import agree as values_agree
from forebay.generation.quantities import differ as values_differ
from forebay.generation.support import Scored
from forebay.generation.terms import (
    HAN,
    MAX_QUESTION_CHARACTERS,
    WORD_WEIGHT,
    Term,
    stems,
)
from forebay.kernel.documents import Hit

_SAME_TERMS = 0.65
"""Share of the best sentence's covered weight that the other side must cover too."""
_KNOWN = 0.55
"""Share of the question's weight that the best sentence must cover itself."""
_HELD = 0.4
_SAYS_MUCH = {True: 64, False: 150}
"""Characters beyond which a sentence (Chinese, other) says so much that its numbers, names and
negations are hardly ever about what is asked."""
_SLOT_CHARACTERS = {True: 6, False: 32}
"""The longest word or name that may stand in the same place, in Chinese and in other scripts."""

_NO_LIMIT = re.compile(
    r"不(?:得|能|可以?)?(?:超过|少于|多于|低于|高于|晚于|早于|大于|小于|足|满|仅|但|过|同|论|断)"
    r"|[无不]论|未来|非常|特别|无线|\bno (?:more|less|later|fewer|sooner|earlier)\b|\bnot only\b"
)
"""What only looks like a negation: limits, glue, words that hold such a character."""
_NEGATION = re.compile(
    r"[不没無无未勿]|禁止|严禁|\b(?:not?|never|cannot|without|neither|nor|forbidden|prohibited|"
    r"banned)\b|n['’]t\b"
)
_ASKS_WHETHER = re.compile(
    r"^\W*(?:may|can|could|is|are|was|were|do|does|did|must|should|will|has|have|shall)\b"
    r"|[吗嗎]|是否|(.)[不没]\1|可不可以",
    re.IGNORECASE,
)
_ASKS_WHEN = re.compile(
    r"\b(?:when|years?|date|since)\b|时候|何时|[哪几何]年|哪一年|日期|時|年份", re.IGNORECASE
)
_ASKS_NAME = re.compile(r"\b(?:who|whom|whose|where|which)\b", re.IGNORECASE)
_ASKS_NAME_HAN = re.compile(r"谁|誰|何人|哪位|哪里|哪儿|哪裡|何处|什么地方|在哪")
_PLACED = {
    True: re.compile(rf"([由归在是为向找于])([{HAN}]{{2,4}})"),
    False: re.compile(r"\b(by|at|in|on|is|near|to|with|from)\s(?:the |a |an )?([^\W\d]\w*)"),
}
"""A word that names follow, and what begins behind it."""
_CLAUSE = re.compile(r"[，；;：]\s*|[,:]\s+")
_ENDS = " .。!！;；,，"


def other_side(
    question: str,
    terms: Sequence[Term],
    best: Scored,
    others: Iterable[Scored],
    hits: Sequence[Hit],
) -> Scored | None:
    """The first of ``others``, best first, in which another document says something else.

    It covers nearly the terms ``best`` covers, and all of the rarest of them among the passages:
    a sentence about valves is no other side of one about pumps. Where no other document does, a
    sentence of the same one that covers all that ``best`` covers and gives another value.
    """
    question = question[:MAX_QUESTION_CHARACTERS]
    total = sum(term.weight for term in terms)
    covered = sum(term.weight * held for term, held in zip(terms, best.own, strict=True))
    if not _tells_one_thing(best.unit) or covered < _KNOWN * total:
        return None
    document = hits[best.passage].chunk.document_id
    alike = [
        one
        for one in others
        if _tells_one_thing(one.unit) and one.unit.has_han == best.unit.has_han
    ]
    apart = [one for one in alike if hits[one.passage].chunk.document_id != document]
    needed = _rarest(terms, best, apart)
    for one in apart:
        if (
            needed
            and _shared(terms, best, one) >= _SAME_TERMS * covered
            and all(one.own[at] >= _HELD for at in needed)
            and differ(question, terms, best.unit, one.unit)
        ):
            return one
    # Items of one list differ: that is what they are there for.
    if best.unit.kind == "item":
        return None
    within = [
        one
        for one in alike
        if one.unit.kind == "sentence" and hits[one.passage].chunk.document_id == document
    ]
    return _another_value(question, terms, best, within)


def _another_value(
    question: str, terms: Sequence[Term], best: Scored, within: Sequence[Scored]
) -> Scored | None:
    """The first sentence of the same document that gives another value for all ``best`` covers."""
    asked = quantities(question)
    for one in within:
        same = all(theirs >= mine for mine, theirs in zip(best.own, one.own, strict=True))
        if same and values_differ(values_in(best.unit), values_in(one.unit), asked):
            return one
    return None


def _shared(terms: Sequence[Term], best: Scored, one: Scored) -> float:
    return sum(
        term.weight * min(held, own)
        for term, held, own in zip(terms, best.own, one.own, strict=True)
    )


def differ(question: str, terms: Sequence[Term], one: Unit, other: Unit) -> bool:
    """Whether two units that cover the same terms answer the question differently."""
    values, their_values = dict(values_in(one)), dict(values_in(other))
    if not _ASKS_WHEN.search(question):
        # What a sentence says of the year it was written in is beside the question.
        for each in (values, their_values):
            each.pop(YEAR, None)
    if values_differ(values, their_values, quantities(question)):
        return True
    mine, theirs = _clause(one, terms), _clause(other, terms)
    if _ASKS_WHETHER.search(question):
        return _negated(mine) != _negated(theirs)
    if _ASKS_NAME.search(question):
        known = stems(question)
        names, their_names = _names(one.text, known), _names(other.text, known)
        if names and their_names and not (names <= their_names or their_names <= names):
            return True
    if values_agree(values, their_values):
        return False
    return _one_word_apart(mine, theirs) or _other_name(question, mine, theirs)


def _tells_one_thing(unit: Unit) -> bool:
    return unit.kind in ("sentence", "item") and len(unit.text) <= _SAYS_MUCH[unit.has_han]


def _is_han(text: str) -> bool:
    return re.search(f"[{HAN}]", text) is not None


def _rarest(terms: Sequence[Term], best: Scored, apart: Sequence[Scored]) -> list[int]:
    """Which of the terms in ``best`` the fewest of the other passages hold."""
    counts: dict[int, int] = {}
    for at, term in enumerate(terms):
        if best.own[at] >= _HELD and (term.weight >= WORD_WEIGHT or term.han):
            counts[at] = len({one.passage for one in apart if one.own[at] >= _HELD})
    fewest = min(counts.values(), default=0)
    return [at for at, count in counts.items() if count == fewest]


def _clause(unit: Unit, terms: Sequence[Term]) -> str:
    """The clause that speaks of what is asked."""

    def covered(clause: str) -> float:
        words = stems(clause)
        return sum(
            term.weight
            for term in terms
            if (term.key in clause.lower() if term.han else term.key in words)
        )

    return max(_CLAUSE.split(unit.text), key=covered).strip(_ENDS)


def _negated(clause: str) -> bool:
    return _NEGATION.search(_NO_LIMIT.sub(" ", clause.lower())) is not None


def _names(text: str, known: frozenset[str]) -> set[str]:
    """Capitalised words the question does not hold; the first only before another."""
    words = text.split()
    capital = [word[0].isupper() for word in words]
    return {
        word.strip("\"'’”.,;:!?()")
        for at, word in enumerate(words)
        if capital[at] and (at or (len(words) > 1 and capital[1])) and not stems(word) & known
    }


def _one_word_apart(mine: str, theirs: str) -> bool:
    """Whether they are alike but for a word or name in one place."""
    before = _alike(mine, theirs)
    left, right = mine[before:], theirs[before:]
    after = _alike(left[::-1], right[::-1])
    left, right = left[: len(left) - after], right[: len(right) - after]
    longest = max(len(left), len(right))
    return bool(
        left and right and longest <= _SLOT_CHARACTERS[_is_han(mine)] and longest <= before + after
    )


def _other_name(question: str, mine: str, theirs: str) -> bool:
    """Whether a question for who or where is answered by two names in the same place.

    "By the foreman" and "by the director": the word before is the same, and neither name is in
    the other clause or in the question.
    """
    if not (_ASKS_NAME.search(question) or _ASKS_NAME_HAN.search(question)):
        return False
    question = question.lower()
    found = [
        {
            before: rest
            for before, rest in _PLACED[_is_han(clause)].findall(clause.lower())
            if rest not in question and rest not in other.lower()
        }
        for clause, other in ((mine, theirs), (theirs, mine))
    ]
    return not found[0].keys().isdisjoint(found[1])


def _alike(one: str, other: str) -> int:
    """With how many equal characters they begin."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)
