"""Numbers that tell things of a series apart: the model 350, version 7.1, the year 2025.

What stands under the title of one of them is said of that one, unless it names another itself.
"""

from __future__ import annotations

import re

from forebay.generation.passages import Unit
from forebay.generation.quantities import MEASURED, YEAR, counted
from forebay.generation.terms import HAN, question_terms

_YEAR = "year"
_VERSION = "version"
_WORD_BEFORE = re.compile(rf"(?:([a-z]{{2,}})[ \-]?|([{HAN}]{{2}}) ?)$")
_BEFORE = 24
_YEAR_NUMBER = re.compile(r"(?:19|20)\d\d")
_IN_YEAR = re.compile(r"\b(?:in|during|since|until|before|after|of|for|from) $")
Labels = dict[str, set[str]]


def labels(folded: str) -> Labels:
    """The numbers of a folded text by the word before them, and its versions and years."""
    found: Labels = {}
    for one in counted(folded):
        if one.kind in MEASURED or (one.kind and one.kind != YEAR and not one.kind.isascii()):
            continue
        match = _NUMBER.match(folded, one.start)
        if match is None:
            continue
        number = match[0]
        text = folded[max(0, one.start - _BEFORE) : one.start]
        if one.kind == YEAR or (
            _YEAR_NUMBER.fullmatch(number) and (not one.kind or _IN_YEAR.search(text))
        ):
            found.setdefault(_YEAR, set()).add(number)
            continue
        if "." in number:
            found.setdefault(_VERSION, set()).add(number)
        before = _WORD_BEFORE.search(text)
        word = before and (before[1] or before[2])
        if word and question_terms(word):
            found.setdefault(word, set()).add(number)
    return found


_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def is_of_another(mine: Labels, unit: Unit, head: Unit) -> bool:
    """Whether a title has another number of a kind than the question, and its statement no other.

    ``mine``: the labels of the question.
    """
    there = head.known(_labels)
    for kind, numbers in mine.items():
        above = there.get(kind)
        if not above or not numbers.isdisjoint(above):
            continue
        if kind == _YEAR and min(above) <= min(numbers) <= max(above):
            continue
        if not any(_stands_in(number, unit.folded) for number in numbers):
            return True
    return False


def _stands_in(number: str, folded: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", folded) is not None


def _labels(head: Unit) -> Labels:
    return labels(head.folded)
