"""Which of many texts a question's words point to: enough to choose what is read for quotations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from forebay.generation.passages import Unit
from forebay.generation.terms import fold, question_terms, stems


def nearest(question: str, texts: Sequence[str], most: int) -> list[tuple[int, float]]:
    """At most ``most`` texts by number, best first, each with its share of the question's worth.

    A term is worth its weight, more where fewer of the texts hold it. Texts that hold none of them
    are left out. Takes time with the length of all texts: not for the event loop.
    """
    terms = question_terms(question)
    held = [[unit.holds(term) for term in terms] for unit in map(_whole, texts)]
    worth = [
        term.weight * math.log1p(len(texts) / (0.5 + sum(row[at] > 0.0 for row in held)))
        for at, term in enumerate(terms)
    ]
    total = sum(worth) or 1.0
    shares = [sum(a * b for a, b in zip(worth, row, strict=True)) / total for row in held]
    order = sorted(range(len(texts)), key=lambda at: (-shares[at], at))
    return [(at, shares[at]) for at in order[:most] if shares[at] > 0.0]


def _whole(text: str) -> Unit:
    """A whole text as one unit; whether it is in Han nobody asks of it."""
    return Unit("sentence", text, "", fold(text), stems(text), has_han=False, in_han=False)
