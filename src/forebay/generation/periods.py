"""Days a question names, and the periods of a statement that hold them or leave them out.

7–13 December, 12.7-12.13, 12月28日至次年1月3日, "from 1 March", 截至6月30日, 周一至周五. A day is
counted in months of 31 days, so that all years are alike; a year is left out where it is not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from forebay.generation.answer_types import asks_whether
from forebay.generation.marks import han_number
from forebay.generation.passages import Unit, cells
from forebay.generation.terms import HAN, fold

_MONTH_DAYS = 31
_YEAR_DAYS = 12 * _MONTH_DAYS
_WEEK_DAYS = 7
_EVER = 3000 * _YEAR_DAYS
_NAMES = "january february march april may june july august september october november december"
_NUMBER_OF = {name[:3]: number for number, name in enumerate(_NAMES.split(), 1)}
_MONTH = "|".join(
    [rf"{name[:3]}(?:{name[3:]})?\b\.?" if name[3:] else rf"{name}\b" for name in _NAMES.split()]
    + [r"sept\b\.?"]
)
_HAN = "[一二三四五六七八九十]{1,3}"
_DATE = re.compile(
    r"(?<![\d.])(?P<y>(?:19|20)\d\d)(?P<sign>[-/.])(?P<m>\d{1,2})(?P=sign)(?P<d>\d{1,2})(?![\d.])"
    rf"|(?:(?P<hy>\d{{4}})年)?(?<!\d)(?P<hm>\d{{1,2}}|{_HAN})月"
    rf"(?:(?P<hd>\d{{1,2}}|{_HAN})(?!个)[日号號]?|[底末])?(?!份?份额)"
    rf"|(?<![\d.,])(?P<ed>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<em>{_MONTH}),?"
    r"(?: (?P<ey>(?:19|20)\d\d)\b)?"
    rf"|\b(?P<bm>{_MONTH})(?: (?P<bd>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:%]))?,?"
    r"(?: (?P<by>(?:19|20)\d\d)\b)?"
    r"|(?<![\w.,/$€£¥])(?P<sm>\d{1,2})(?P<s>[./])(?P<sd>\d{1,2})(?:(?P=s)(?P<sy>(?:19|20)\d\d))?"
    rf"(?![\d./%a-z]| ?[a-z%°℃元块米克斤升个倍折版小分万千亿年页度吨秒岁人次])"
    rf"|(?<![a-z\d.,:/第$€£¥])(?P<d1>\d{{1,2}})(?:st|nd|rd|th|(?P<day>[日号號](?!以?内)))?"
    r"(?![a-z\d.:/%]|,\d)"
    rf"|(?<![\d第])(?P<d2>\d{{1,2}}|{_HAN})(?P<day2>[日号號])(?!以?内)"
)
_BARE_MAY = re.compile(
    r"(?:\b(?:in|of|from|to|until|till|through|since|during|and|by|before|after|early|late)|[-–—~])"
    r" ?$"
)
"""What stands before a month without a day whose name is, or may be short for, another word."""
_DAY = r"mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun"
_WEEKDAY = re.compile(
    rf"\b(?P<en>{_DAY})(?P<whole>days?)?\b|(?:[周週]|星期|[礼禮]拜)(?P<han>[一二三四五六日天])(?!班)"
    r"|(?P<two>\bweekends?\b|[周週]末|双休日)|(?P<five>\bweekdays?\b|(?<![\d个几两三四五六七八十])工作日)"
    r"|(?P<all>\bdaily\b|\b(?:every|seven) days?\b|每天|每日|天天)"
)
_OF_WEEK = {name: at for at, name in enumerate("mon tue wed thu fri sat sun".split())}
_OF_WEEK |= {name: at for at, name in enumerate("一二三四五六日")} | {"天": 6}
_BESIDE = (
    r"[ ,]*(?:\(?(?:[周週]|星期|[礼禮]拜)[一二三四五六日天]\)?"
    rf"|\(?\b(?:{_DAY})(?:days?)?\b\.?\)?)?[ ,]*(?:\d{{1,2}}:\d\d)?[ ,]*"
)
"""A weekday or a time, beside the end of a period."""
_TO = re.compile(
    rf"{_BESIDE}起?(?:-|–|—+|~+|至|到|\||\b(?:to|until|till|through|thru|and)\b)"
    rf"(?: (?:and )?including)?[ |]*(?:次年|翌年|当年|the )?{_BESIDE}"
)
_FROM = re.compile(
    r"(?:\b(?:from|since|after|as of|starting|beginning|effective)(?: on)?(?: the)?|自从?|从)"
    rf"{_BESIDE}$"
)
_UNTIL = re.compile(
    r"(?:\b(?:until|till|through|before|by|no later than|up to)(?: the| and including)?"
    rf"|截[至止]|[至到]){_BESIDE}$"
)
_ONWARDS = re.compile(
    rf"{_BESIDE}(?:\bon(?:wards?)?\b(?! [a-z])|起|[以之]?[后後]|以[来來]|[开開]始)"
)
_AT_LATEST = re.compile(rf"{_BESIDE}(?:\bat the latest\b|[以之]前|前|为?止|截止)")
_BETWEEN = re.compile(r"\bbetween(?: the)? $")
_BEFORE = 28
_NAMED = re.compile(rf"[{HAN}a-z](?<![本这该上下个]月)(?<!请问)$")
_NO_DAY = re.compile("[线楼门厅店院室库机桌柜房]")
"""阿波罗1号 and 10号线 are no days of a month."""


_ASKS_WHEN = re.compile(
    r"\bwhen\b|\bdeadline\b|[什甚][么麼][时時][候间間]|何[时時]|哪一?天|截止|最[晚迟遲]"
)
_HINT = re.compile(
    rf"\d[-./]\d|[月日号號周週末星礼禮双]|工作日|\b(?:{'|'.join(_NUMBER_OF)}|{_DAY}|weekend|weekday)"
)
"""What a text with a date or weekday has; it is looked for ten times as fast as those."""


class Period(msgspec.Struct, frozen=True):
    """Days from ``low`` on, ``more`` after it; ``cycle``: after how many they come again (a year, a
    month, a week). ``absolute``: the year is counted. ``bounds``: it has an end that is said.
    """

    low: int
    more: int
    cycle: int
    absolute: bool = False
    bounds: bool = False

    def like(self, other: Period) -> bool:
        """Whether both are dates, or both weekdays."""
        return (self.cycle == _WEEK_DAYS) == (other.cycle == _WEEK_DAYS)

    def meets(self, other: Period) -> bool:
        """Whether both have a day in common, as far as both say it."""
        if not self.like(other):
            return False
        apart = other.low - self.low
        if self.absolute and other.absolute:
            return -other.more <= apart <= self.more
        cycle = min(self.cycle, other.cycle)
        return apart % cycle <= self.more or -apart % cycle <= other.more


class Days(msgspec.Struct, frozen=True):
    """The days that a question names; ``beyond``: a sentence on other days may answer it."""

    periods: tuple[Period, ...]
    beyond: bool = False

    def within(self, unit: Unit) -> bool:
        """Whether a unit has a period that holds one of them."""
        return any(one.meets(other) for one in unit.known(_periods) for other in self.periods)

    def between(self, unit: Unit) -> bool:
        """Whether a unit gives the bounds of a period that holds one of them."""
        there = unit.known(_periods)
        return any(one.bounds and one.meets(other) for one in there for other in self.periods)

    def without(self, unit: Unit) -> bool:
        """Whether a unit tells of other days: it has periods, and none that holds one of them.

        Whether something is so beyond a period, a sentence tells that gives the period; and when
        the leave of August is asked for, one that gives a date in June.
        """
        there = unit.known(_periods)
        if not there or (self.beyond and unit.kind != "row"):
            return False
        bounds = any(one.bounds and one.like(self.periods[0]) for one in there)
        return bounds and not self.within(unit)


class _Date(msgspec.Struct):
    """A date where it stands; of its parts some may be missing."""

    year: int | None
    month: int | None
    day: int | None
    start: int
    end: int
    sure: bool = True
    """Whether it is a date by itself, and not but beside another."""


def asked_days(question: str) -> tuple[str, Days | None]:
    """A folded question with blanks for its dates, or else its weekdays, and those."""
    folded = question
    if _HINT.search(question) is None:
        return question, None
    for spans in (_dates_of(folded, alone=True), _weekdays_of(folded)):
        if found := list(spans):
            for _, start, end in found:
                folded = folded[:start] + " " * (end - start) + folded[end:]
            dates = found[0][0].cycle != _WEEK_DAYS
            beyond = asks_whether(question) or (dates and _ASKS_WHEN.search(question) is not None)
            return folded, Days(tuple(one for one, *_ in found), beyond)
    return folded, None


def without_dates(folded: str) -> str:
    """A folded text with blanks for its dates."""
    if _HINT.search(folded) is None:
        return folded
    for _, start, end in _dates_of(folded):
        folded = folded[:start] + " " * (end - start) + folded[end:]
    return folded


def periods(text: str) -> tuple[Period, ...]:
    """The periods and days of a text in reading order, weekdays last."""
    folded = fold(text)
    if _HINT.search(folded) is None:
        return ()
    return tuple(one for spans in (_dates_of(folded), _weekdays_of(folded)) for one, *_ in spans)


def _periods(unit: Unit) -> tuple[Period, ...]:
    """What is said of days in a unit itself, or else in the nearest that it stands under."""
    if unit.kind == "row" and (named := periods(cells(unit.text)[0])):
        # A row whose name is a day tells of no other.
        return tuple(msgspec.structs.replace(one, bounds=True) for one in named)
    for text in (unit.text, unit.lead, unit.section, unit.above):
        if found := periods(text):
            return found
    return ()


_Found = Iterator[tuple[Period, int, int]]


def _dates_of(folded: str, *, alone: bool = False) -> _Found:
    """``alone``: a day without a month is one, too."""
    dates = [one for match in _DATE.finditer(folded) if (one := _read(match, alone))]
    at = 0
    while at < len(dates):
        one, after = dates[at], dates[at + 1] if at + 1 < len(dates) else None
        if after is not None and _joined(folded, one, after):
            at += 2
            yield _from_to(one, after), one.start, after.end
            continue
        at += 1
        if one.month is None:
            if alone and one.sure and one.day is not None:
                named = _NAMED.search(folded[max(0, one.start - 2) : one.start])
                if not named and not _NO_DAY.match(folded, one.end):
                    yield Period(one.day - 1, 0, _MONTH_DAYS), one.start, one.end
        elif one.sure:
            yield _open(folded, one), one.start, one.end
            if alone and folded[one.start : one.end].count("/") and one.day and one.day <= 12:
                yield _from_to(other := _swapped(one), other), one.start, one.end


def _read(match: re.Match[str], alone: bool) -> _Date | None:
    found = match.groupdict()

    def number(*names: str) -> int | None:
        text = next((found[name] for name in names if found[name]), None)
        if text is None:
            return None
        if text[0].isdigit():
            return int(text)
        return _NUMBER_OF.get(text[:3]) or han_number(text)

    year, month = (number(*(place + part for place in ("", *"hebs"))) for part in "ym")
    day = number("d", "hd", "ed", "bd", "sd", "d1", "d2")
    if month and day and month > 12 and found["s"]:
        month, day = day, month
    if not 0 < (month or 1) <= 12 or not 0 < (day or 1) <= _MONTH_DAYS:
        return None
    # "3.5" is rather a number than a date.
    sure = bool(month and (alone or year or not found["s"])) or bool(found["day"] or found["day2"])
    if (name := found["bm"]) and day is None and year is None:
        before = match.string[max(0, match.start() - 12) : match.start()]
        plain = len(name) > 3 and name != "march"
        sure = plain or _BARE_MAY.search(before) is not None
    return _Date(year, month, day, *match.span(), sure)


def _swapped(one: _Date) -> _Date:
    return _Date(one.year, one.day, one.month, one.start, one.end)


def _joined(folded: str, one: _Date, after: _Date) -> bool:
    """Whether two dates are the ends of one period."""
    between = folded[one.end : after.start]
    if _TO.fullmatch(between) is None:
        return False
    if "and" in between and not _BETWEEN.search(folded[max(0, one.start - 12) : one.start]):
        return False
    whole = [bool(date.month and date.day) for date in (one, after)]
    if "|" in between:
        # Two cells: begin and end, but no number of a week and a date.
        return all(whole) and one.sure and after.sure
    return any(whole) or bool(one.month and after.month) or bool(after.month and one.day)


def _from_to(one: _Date, after: _Date) -> Period:
    month, day, last, until = one.month, one.day, after.month, after.day
    if month is None:
        # 7–13 December; 10至12月.
        month, day = (last, day) if until is not None else (day, None)
    if last is None:
        last = month
    low = _MONTH_DAYS * ((month or 1) - 1) + (day or 1) - 1
    high = _MONTH_DAYS * ((last or 1) - 1) + (until or _MONTH_DAYS) - 1
    begin = one.year
    if begin is None and after.year is not None:
        begin = after.year - (low > high)
    more = (high - low) % _YEAR_DAYS
    if begin is None:
        return Period(low, more, _YEAR_DAYS, bounds=one is not after)
    end = begin + (low > high) if after.year is None else after.year
    low, high = low + _YEAR_DAYS * begin, high + _YEAR_DAYS * end
    return Period(low, max(0, high - low), _YEAR_DAYS, absolute=True, bounds=one is not after)


def _open(folded: str, one: _Date) -> Period:
    """A date alone, or what begins or ends with it; without a year, within one."""
    here = _from_to(one, one)
    before = folded[max(0, one.start - _BEFORE) : one.start]
    first, last = (0, _YEAR_DAYS - 1) if not here.absolute else (-_EVER, _EVER)
    if _ONWARDS.match(folded, one.end) or _FROM.search(before):
        return Period(here.low, last - here.low, _YEAR_DAYS, here.absolute, bounds=True)
    if _AT_LATEST.match(folded, one.end) or _UNTIL.search(before):
        more = here.low + here.more - first
        return Period(first, more, _YEAR_DAYS, here.absolute, bounds=True)
    return here


def _weekdays_of(folded: str) -> _Found:
    found = list(_WEEKDAY.finditer(folded))
    at = 0
    while at < len(found):
        one, after = found[at], found[at + 1] if at + 1 < len(found) else None
        low, at = _day_of(one), at + 1
        if low is not None and after is not None and (high := _day_of(after)) is not None:
            between = folded[one.end() : after.start()]
            if between.strip() and "and" not in between and _TO.fullmatch(between):
                at += 1
                more = (high - low) % _WEEK_DAYS
                yield Period(low, more, _WEEK_DAYS, bounds=True), one.start(), after.end()
                continue
        if low is not None:
            if one["whole"] or one["han"]:
                yield Period(low, 0, _WEEK_DAYS), *one.span()
            continue
        first, more = (5, 1) if one["two"] else (0, 4) if one["five"] else (0, 6)
        yield Period(first, more, _WEEK_DAYS, bounds=True), *one.span()


def _day_of(match: re.Match[str]) -> int | None:
    name = match["han"] or (match["en"] or "")[:3]
    return _OF_WEEK.get(name)
