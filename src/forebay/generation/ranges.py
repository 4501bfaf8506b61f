"""Amounts a question names as a condition, and the ranges of a statement they fall into.

"Who approves 20,000 yuan", "after five years of service": the amount need not stand in the answer;
"5 to under 15 years", 满5年不满15年 and "over 400,000" hold the amounts between their bounds. Days
that a question names are such a condition, too (``periods``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from forebay.generation.passages import Passage, Unit
from forebay.generation.periods import Days, asked_days, without_dates
from forebay.generation.quantities import BY_STEM, Counted, counted, in_digits
from forebay.generation.terms import HAN, Term, fold, question_terms

_FACTS = frozenset(("date", "clock", "weekday", "year of", "floor"))
"""Kinds that name a point and no amount."""
_MONEY = frozenset(("yuan", "euro", "dollar", "pound"))
_NUMERAL = re.compile(r"[\d零〇一二两三四五六七八九十百千万]")
_NOT_MORE = r"under|below|less than|fewer than|not more than|no more than"
_NOT_LESS = r"over|above|more than|at least|not less than|no less than"
_TO = re.compile(rf"[ ,，]*(?:to|and|-|–|—|~|～|至|到|不满|不足)?[ ,，]*(?:{_NOT_MORE})?[ ,，]*")
_UNDER = re.compile(
    rf"(?:\b(?:{_NOT_MORE}|up to|at most|within)|不满|不足|低于|少于|不超过|小于|至多|最多)[ ,，]*$"
)
_OVER = re.compile(
    rf"(?:\b(?:{_NOT_LESS}|from|exceeding|beyond|after)|满|超过|高于|多于|大于|至少|自)[ ,，]*$"
)
_AND_UNDER = re.compile(r"[ ,，]*(?:(?:and|or) (?:less|under|below)\b|(?:及|或)?以[下内]|封顶)")
_AND_OVER = re.compile(r"[ ,，]*(?:(?:and|or) (?:more|over|above|longer)\b|\+|(?:及|或)?以上|起)")
_DAY_NUMBER = re.compile(r"\d{1,2}")
_BEFORE = 24
_SAME = 1e-9


Condition = Counted | Days
"""What a statement's ranges may hold."""


class Range(msgspec.Struct, frozen=True):
    """Amounts of one kind from ``low`` to ``high``, in the kind's unit."""

    kind: str
    low: float
    high: float

    def holds(self, amount: Counted) -> bool:
        """Whether an amount lies between the bounds; of money the currency may be left unsaid."""
        if amount.kind != self.kind and {amount.kind, self.kind} - _MONEY != {""}:
            return False
        slack = _SAME * max(1.0, abs(amount.number))
        return self.low - slack <= amount.number <= self.high + slack


def amounts(question: str, terms: Sequence[Term]) -> dict[str, Condition]:
    """The amounts and days of a question by the keys of their terms; codes and times are none."""
    folded = fold(question)
    rest, days = asked_days(folded)
    found: dict[str, Condition] = {}
    if days:
        others = {term.key for term in question_terms(rest)}
        found = {term.key: days for term in terms if term.key not in others}
    keys = [
        (term.key, BY_STEM.get(term.key, term.key))
        for term in terms
        if term.key not in found and (term.key in BY_STEM or _NUMERAL.search(term.key))
    ]
    if not keys:
        return found
    folded = in_digits(rest)
    for one in counted(folded):
        if one.kind in _FACTS:
            continue
        written = folded[one.start : one.end].replace(",", "")
        digits = re.match(rf"[^\d{HAN}]*(\d+(?:\.\d+)?)", written)
        for key, number in keys:
            if (digits and digits[1] == number) or (not key.isascii() and key in written):
                found[key] = one
    return found


def admitted(
    terms: Sequence[Term],
    units: Sequence[Unit],
    known: dict[str, Condition],
    held: list[Sequence[float]],
    above: Sequence[float] = (),
) -> list[Sequence[float]]:
    """``held``, and what each term that is an amount or a day is worth for units that have it in a
    range; a day only where they, or what is ``above`` them, hold something else that is asked.
    """
    if not known:
        return held
    rest = [at for at, term in enumerate(terms) if not isinstance(known.get(term.key), Days)]
    speak = not rest or any(above[at] for at in rest if above)
    found = list(held)
    for at, term in enumerate(terms):
        amount = known.get(term.key)
        if isinstance(amount, Counted):
            found[at] = [
                max(here, float(any(one.holds(amount) for one in unit.known(_ranges))))
                for here, unit in zip(held[at], units, strict=True)
            ]
        elif amount is not None:
            # 9 o'clock is no ninth, 20 parts are no twentieth.
            number = _DAY_NUMBER.fullmatch(term.key) is not None
            found[at] = [
                (1.0 if speak or any(held[other][position] for other in rest) else here)
                if amount.within(unit)
                else here * (not number)
                for position, (here, unit) in enumerate(zip(held[at], units, strict=True))
            ]
    return found


def excluded(unit: Unit, known: dict[str, Condition]) -> bool:
    """Whether a row has ranges of an amount's kind, and none that holds it; of days any unit."""
    return any(
        amount.without(unit) if isinstance(amount, Days) else _outside(amount, unit)
        for amount in known.values()
    )


def is_of_other_days(
    terms: Sequence[Term],
    known: dict[str, Condition],
    passages: Sequence[Passage],
    chosen: Sequence[Unit],
) -> bool:
    """Whether statements say more of what is asked of a day than ``chosen``, but of other days."""
    days = next((one for one in known.values() if isinstance(one, Days)), None)
    if days is None:
        return False
    rest = [term for term in terms if not isinstance(known.get(term.key), Days)]

    def said(unit: Unit) -> float:
        return sum(term.weight * unit.holds(term) for term in rest)

    most = max(map(said, chosen))
    told = [unit for unit in chosen if days.within(unit)]
    return not any(map(said, told)) and any(
        unit.kind != "heading" and days.without(unit) and said(unit) > most
        for passage in passages
        # What stands beside them need not repeat what they say: "winter: 18 January to …".
        if not any(one in passage.units for one in told)
        for unit in passage.units
    )


def by_range(known: dict[str, Condition], units: Sequence[Unit]) -> bool:
    """Whether a question names an amount, or a day that lies between what ``units`` tell."""
    return any(
        any(map(one.between, units)) if isinstance(one, Days) else True for one in known.values()
    )


def _outside(amount: Counted, unit: Unit) -> bool:
    found = unit.known(_ranges) if unit.kind == "row" else ()
    return any(one.kind == amount.kind for one in found) and not any(
        one.holds(amount) for one in found
    )


def lies_within(one: Unit, other: Unit) -> bool:
    """Whether an amount of one of two units lies within a range of the other with two bounds."""
    return any(
        math.isfinite(bounds.low) and math.isfinite(bounds.high) and bounds.holds(amount)
        for here, there in ((one, other), (other, one))
        for bounds in here.known(_ranges)
        for amount in there.known(_amounts)
    )


def _amounts(unit: Unit) -> tuple[Counted, ...]:
    return tuple(counted(in_digits(fold(unit.text))))


def _ranges(unit: Unit) -> tuple[Range, ...]:
    return ranges(unit.text)


def ranges(text: str) -> tuple[Range, ...]:
    """The ranges of a text in reading order; a number without a bound is none."""
    folded = in_digits(without_dates(fold(text)))
    numbers = [one for one in counted(folded) if one.kind not in _FACTS]
    found: list[Range] = []
    at = 0
    while at < len(numbers):
        one = numbers[at]
        after = numbers[at + 1] if at + 1 < len(numbers) else None
        if after is not None and _joined(folded, one, after):
            low = one.number if one.kind == after.kind else _as(one, after)
            found.append(Range(after.kind, low, after.number))
            at += 2
            continue
        before = folded[max(0, one.start - _BEFORE) : one.start]
        if _UNDER.search(before) or _AND_UNDER.match(folded, one.end):
            found.append(Range(one.kind, -math.inf, one.number))
        elif _OVER.search(before) or _AND_OVER.match(folded, one.end):
            found.append(Range(one.kind, one.number, math.inf))
        at += 1
    return tuple(found)


def _joined(folded: str, one: Counted, after: Counted) -> bool:
    """Whether two numbers are the ends of one range: "5 to under 15 years", 满5年不满15年."""
    between = folded[one.end : after.start]
    if one.kind not in ("", after.kind):
        return False
    return bool(between.strip(" ,，")) and _TO.fullmatch(between) is not None


def _as(one: Counted, other: Counted) -> float:
    """A number without a unit in the unit of another."""
    return one.raw * (other.number / other.raw if other.raw else 1.0)
