"""Words that are one slip of the finger from a word of the passages: "acess token", "recieve"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from forebay.generation.passages import Passage, Unit
from forebay.generation.terms import WORD_WEIGHT, Term

_SHORTEST = 5
"""Characters (of its stem) from which a word is hardly one slip from another word of its own."""
_MOST = 4
"""Words of one question that are looked for: nobody slips more often and is understood."""


def respelt(terms: Sequence[Term], passages: Sequence[Passage]) -> tuple[Term, ...]:
    """The terms, a common word that stands nowhere as the one word of the passages that is a letter
    left out, added, changed or swapped away and begins alike.

    Names and codes stay as they are: of those the next one is another thing.
    """
    strange = [at for at, term in enumerate(terms) if _may_be(term, passages)][:_MOST]
    return tuple(
        _respelt(term, passages) if at in strange else term for at, term in enumerate(terms)
    )


def _may_be(term: Term, passages: Sequence[Passage]) -> bool:
    key = term.key
    if term.han or term.weight != WORD_WEIGHT or len(key) < _SHORTEST - 1 or not key.isalpha():
        return False
    return not any(key in unit.stems for unit in _units(passages))


def _respelt(term: Term, passages: Sequence[Passage]) -> Term:
    key = term.key
    near = {
        word
        for unit in _units(passages)
        for word in unit.known(_by_initial).get(key[0], ())
        if max(len(word), len(key)) >= _SHORTEST and is_one_slip(key, word)
    }
    return msgspec.structs.replace(term, key=near.pop()) if len(near) == 1 else term


def _by_initial(unit: Unit) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in unit.stems:
        if len(word) >= _SHORTEST - 1:
            found.setdefault(word[0], []).append(word)
    return found


def _units(passages: Sequence[Passage]) -> Iterator[Unit]:
    for passage in passages:
        yield passage.head
        yield from passage.units


def is_one_slip(one: str, other: str) -> bool:
    """Whether two words differ by one letter left out or changed, or by two neighbours swapped."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    rest, others = one[at:], other[at:]
    if len(rest) != len(others):
        longer, shorter = sorted((rest, others), key=len, reverse=True)
        return longer[1:] == shorter
    return rest[1:] == others[1:] or (rest[1::-1] == others[:2] and rest[2:] == others[2:])
