"""Documents of one kind that tell of one thing each: benefits in Portugal and in Spain.

Where two titles are alike but for a word in one place, and the question has one of the two, what
stands under the other is said of another thing, though no statement there says of which.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.generation.contrast import Tokens, places
from forebay.generation.passages import Unit
from forebay.generation.support import Reading, Scored
from forebay.generation.terms import Term, stems
from forebay.kernel.documents import Hit

_HELD = 0.9
_LACKED = 0.4
"""How much of a word a title has that names its thing, and one that names another."""


def without_siblings(reading: Reading, heads: Sequence[Unit], hits: Sequence[Hit]) -> Reading:
    """The reading without statements under titles of siblings of what is asked about; those that
    name the thing themselves stay.

    ``heads``: title and headings of each hit. Sections of one document tell of no siblings.
    """
    documents = [hit.chunk.document_id for hit in hits]
    lacked: dict[int, list[int]] = {}
    for at, term in enumerate(reading.terms):
        held = [own[at] for own in reading.heads]
        if max(held, default=0.0) < _HELD or min(held) > _LACKED:
            continue
        about = [one for one, have in enumerate(held) if have >= _HELD]
        for other, have in enumerate(held):
            if have <= _LACKED and any(
                documents[one] != documents[other]
                and _is_sibling(term, reading.terms, heads[one], heads[other])
                for one in about
            ):
                lacked.setdefault(other, []).append(at)
    if not lacked:
        return reading

    def is_told(one: Scored) -> bool:
        return all(one.own[at] > _LACKED for at in lacked.get(one.passage, ()))

    units = tuple(filter(is_told, reading.units))
    return msgspec.structs.replace(reading, units=units or reading.units)


def _is_sibling(term: Term, terms: Sequence[Term], head: Unit, other: Unit) -> bool:
    """Whether the place of the word in one title is taken in the other by a word not asked for."""
    return any(
        mine and theirs and _is_of(term, mine) and not any(_is_of(each, theirs) for each in terms)
        for mine, theirs in places(head, other)
    )


def _is_of(term: Term, words: Tokens) -> bool:
    if not term.han:
        return any(term.key in stems(word) for word in words)
    text = "".join(words)
    return text in term.key or term.key in text
