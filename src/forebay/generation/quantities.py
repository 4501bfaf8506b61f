"""What a sentence says in numbers, dates and times, whatever the notation.

1.5 h and 90 分钟 are one duration, 2 t and 2000 kg one mass, 八折 and "20 % off" one price,
18:00, 6 pm and 下午六点 one time: values are compared in a unit of their kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from forebay.generation.marks import HAN_DIGITS, han_number
from forebay.generation.passages import Unit
from forebay.generation.terms import fold, question_terms, stem

YEAR = "year of"
_SAME_SHARE = 0.026
"""How far values written in different units may be apart: 1 TB is 1000 or 1024 GB."""


class Value(msgspec.Struct, frozen=True):
    """A number in its kind's unit, and as it was counted; parts of a date may be missing."""

    number: float
    unit: str
    parts: tuple[int | None, ...] = ()

    def same(self, other: Value) -> bool:
        """Whether both say the same, as far as both say it."""
        if self.parts or other.parts:
            pairs = zip(self.parts, other.parts, strict=False)
            return all(a == b for a, b in pairs if a is not None and b is not None)
        if self.unit == other.unit:
            return abs(self.number - other.number) < 1e-6 * max(1.0, abs(self.number))
        return abs(self.number - other.number) <= _SAME_SHARE * max(self.number, other.number)


class Counted(msgspec.Struct, frozen=True):
    """A number where it stands: in its kind's unit, as it is written (``raw``), and its unit."""

    kind: str
    number: float
    unit: str
    raw: float
    start: int
    end: int


Values = dict[str, set[Value]]

_WORDS = {
    word: str(value)
    for value, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen".split(),
        1,
    )
} | {
    word: str(10 * value)
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_WRITTEN = re.compile(rf"\b({'|'.join(_WORDS)})\b(?=[ -]?[a-z]|[.,;]|$)")
BY_STEM = {stem(word): digits for word, digits in _WORDS.items()}
"""Digits of English numbers by their stem."""
_ORDINAL = {
    word: value
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth".split(), 1
    )
}
_UNITS: dict[str, tuple[str, float]] = {}
for _kind, _entries in {
    "duration": (
        "s 秒 second seconds sec=1 min mins minute minutes 分钟=60 h hr hrs hour hours 小时 "
        "钟头=3600 day days 天 工作日 自然日 日=86400 week weeks 周 星期 礼拜=604800 "
        "month months 月=2629800 "
        "quarter quarters 季度=7889400 year years 年=31557600"
    ),
    "mass": (
        "mg 毫克=.001 g gram grams 克=1 kg kilo kilos kilogram kilograms 千克 公斤=1000 斤=500 "
        "t ton tons tonne tonnes 吨=1000000 lb lbs pound_mass=453.6"
    ),
    "length": (
        "mm 毫米=.001 cm 厘米=.01 m metre metres meter meters 米=1 km kilometre kilometres "
        "kilometer kilometers 公里 千米=1000 mile miles 英里=1609.3 ft foot feet 英尺=.3048 "
        "inch inches 英寸=.0254"
    ),
    "volume": "ml 毫升=.001 l litre litres liter liters 升=1 m3 立方米=1000",
    "data": "kb=.001 mb 兆字节=1 gb=1000 tb=1000000",
    "power": "w watt watts 瓦=1 kw 千瓦=1000 mw 兆瓦=1000000 gw=1000000000",
    "euro": "€ eur euro euros 欧元=1",
    "pound": "£ gbp 英镑=1",
    "dollar": "$ usd dollar dollars 美元=1",
    "yuan": "¥ ￥ cny rmb yuan 元 块 人民币=1",
    "degree": "° °c ℃ degree degrees 度 摄氏度=1",
    "percent": "% ％ percent=1",
}.items():
    _same: list[str] = []
    for _entry in _entries.split():
        _word, _, _factor = _entry.partition("=")
        _same.append(_word)
        if _factor:
            _UNITS |= {word: (_kind, float(_factor)) for word in _same}
            _same = []
_MEASURES = frozenset(
    [kind for kind, _ in _UNITS.values()] + "date weekday clock share paid floor".split() + [YEAR]
)
MEASURED = frozenset(kind for kind, _ in _UNITS.values())
"""Kinds of what is measured: a number of them is no name."""
_SCALES = {"百": 1e2, "千": 1e3, "万": 1e4, "亿": 1e8}
_SCALES |= {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_HAN_NUMBER = "[零〇一二两三四五六七八九十百千万]+"
_COUNTER = "[次名台吨米人倍层块楼册页本辆节棵位间张条件座户家门种项支套份步转期号岁等]"
# "Within 13日" is a time, "on 7月13日" a date.
_HAN_UNIT = "|".join(
    "日(?=[以之]?内)" if unit == "日" else re.escape(unit)
    for unit in sorted((u for u in _UNITS if not u.isascii()), key=len, reverse=True)
)
_QUANTITY = re.compile(
    rf"(?<![a-z\d.\-/])(?:(?P<digits>\d+(?:,\d{{3}})*(?:\.\d+)?)|"
    rf"(?<![第周期])(?P<han>{_HAN_NUMBER}))"
    rf"\s?(?P<scale>million|billion|thousand|hundred|"
    rf"[万亿](?![\d零一二三四五六七八九十]))?\s?(?:个(?P<half>半)?)?"
    rf"(?:(?:working|business|calendar|consecutive|full)[ -])?"
    rf"(?P<unit>{_HAN_UNIT}|{_COUNTER}|[%％°℃€$£]c?|[a-z]+\d?)?(?P<after>半)?"
)
_PREFIXED = re.compile(
    r"(?P<unit>[€$¥￥£]|\b(?:cny|rmb|usd|eur|gbp)) ?(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?)"
)
_MAY = re.compile(r"(?<=\d )may(?= (?!(?:of|and|or|to|at|until|from|in|on)\b)[a-z])")
"""A verb behind a number, as small as no month is written: "under 14 may climb"."""
_HALVES = (
    (re.compile(r"\bhalf an hour\b|(?<!个)半个?(?:小时|钟头)"), "duration", 1800.0),
    (re.compile(r"\bhalf a year\b|(?<!个)半年"), "duration", 15778800.0),
    (re.compile(r"\bhalf\b(?! (?:past|an?\b))|一半"), "percent", 50.0),
)
_HUNDREDTHS = re.compile(rf"百分之(?P<n>{_HAN_NUMBER}|\d+(?:\.\d+)?)")
_TENTHS = re.compile(r"(?P<n>[\d一二三四五六七八九][\d一二三四五六七八九.]{0,2})折")
_LESS = re.compile(r"\bdiscount|\boff\b|\brebate|\breduc|优惠|减|让利|便宜")
_CLOCK = re.compile(
    r"(?P<before>早上|上午|凌晨|清晨|中午|下午|傍晚|晚上|夜里)?"
    r"(?:(?<![\d.,])(?P<h>\d{1,2})[:：](?P<m>\d\d)(?:[:：]\d\d)?(?: ?(?P<half>[ap])\.?m\b)?"
    r"|(?<![\d.,:])(?P<hour>\d{1,2}) ?(?P<pm>[ap])\.?m\b"
    r"|(?P<dian>\d{1,2}|[一二两三四五六七八九十]{1,3})[点时](?!间|候)(?:(?P<ban>半)|"
    r"(?P<ke>[一三])刻"
    r"|(?P<fen>\d{1,2}|[一二三四五六七八九十]{1,3})分?)?)"
)
_PAST = re.compile(r"\b(?P<part>half|quarter) (?P<way>past|to) (?P<hour>\d{1,2})\b")
_MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november "
        "december".split(),
        1,
    )
}
_MONTH = "|".join(_MONTHS)
_DATES = (
    re.compile(r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    re.compile(
        r"(?:(?P<y>\d{4})年)?(?P<m>\d{1,2}|[一二三四五六七八九十]{1,2})月(?!份?份额)"
        r"(?:(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})[日号])?"
    ),
    re.compile(
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m>{_MONTH})\b,?(?: (?P<y>\d{{4}}))?"
    ),
    re.compile(
        rf"\b(?P<m>{_MONTH})\b(?: (?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:))?,?(?: (?P<y>\d{{4}}))?"
    ),
)
_WEEKDAY = re.compile(
    r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期|礼拜)([一二三四五六日天])(?!班)"
)
_WEEKDAYS = {"mon": 1, "tues": 2, "wednes": 3, "thurs": 4, "fri": 5, "satur": 6, "sun": 7}
_WEEKDAYS |= {"日": 7, "天": 7} | {c: i for i, c in enumerate("一二三四五六", 1)}
_FLOOR = re.compile(rf"\b({'|'.join(_ORDINAL)}|\d+(?:st|nd|rd|th)) (floor|storey|story|level)\b")
_YEAR_NUMBER = re.compile(r"1[5-9]\d\d|20\d\d")


def in_digits(folded: str) -> str:
    """A folded text with its English numbers up to ninety in digits; its length may change."""
    return _WRITTEN.sub(lambda word: _WORDS[word[1]], folded)


def quantities(text: str) -> Values:
    """Values of a text by kind, or by what is counted."""
    folded = in_digits(fold(_MAY.sub("can", text)))
    found: Values = {}
    for kind, value, start, end in _special(folded):
        found.setdefault(kind, set()).add(value)
        # Its characters are taken: the rest is looked at without them.
        folded = folded[:start] + "\0" * (end - start) + folded[end:]
    for kind, value in _plain(folded):
        found.setdefault(kind, set()).add(value)
    return found


def values_in(unit: Unit) -> Values:
    """Values of a unit's text; to be looked at only."""
    return unit.known(_of_unit)


def counts(values: Values) -> Values:
    """What is counted, and bare numbers: values that are no measures."""
    return {kind: found for kind, found in values.items() if kind not in _MEASURES}


def _of_unit(unit: Unit) -> Values:
    return quantities(unit.text)


def differ(mine: Values, theirs: Values, asked: Values) -> bool:
    """Whether each has a value of one kind that the other lacks; what the question says aside."""
    return any(
        _lacks(values, theirs[kind] | asked.get(kind, set()))
        and _lacks(theirs[kind], values | asked.get(kind, set()))
        for kind, values in mine.items()
        if kind in theirs
    )


def agree(mine: Values, theirs: Values) -> bool:
    """Whether they have a value in common."""
    return any(
        one.same(other)
        for kind, values in mine.items()
        for one in values
        for other in theirs.get(kind, ())
    )


def _lacks(values: set[Value], others: set[Value]) -> bool:
    return any(not any(one.same(other) for other in others) for one in values)


def _special(folded: str) -> Iterator[tuple[str, Value, int, int]]:
    """Dates, times, shares: what is no number and a unit; in the order they are looked for."""
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        if any(match.start() < end and start < match.end() for start, end in taken):
            return False
        taken.append(match.span())
        return True

    for read in (_dates, _times, _floors, _shares):
        for kind, value, match in read(folded):
            if free(match):
                yield kind, value, *match.span()


_Read = Iterator[tuple[str, Value, re.Match[str]]]


def _dates(folded: str) -> _Read:
    for pattern in _DATES:
        for match in pattern.finditer(folded):
            parts = tuple(_part(match[name]) for name in ("y", "m", "d"))
            yield "date", Value(0.0, "date", parts), match
    for match in _WEEKDAY.finditer(folded):
        yield "weekday", Value(_WEEKDAYS[match[1] or match[2]], "weekday"), match


def _times(folded: str) -> _Read:
    for pattern in (_PAST, _CLOCK):
        for match in pattern.finditer(folded):
            yield "clock", Value(_minutes(match), "clock"), match


def _floors(folded: str) -> _Read:
    for match in _FLOOR.finditer(folded):
        yield "floor", Value(_ORDINAL.get(match[1]) or int(match[1][:-2]), "floor"), match


def _shares(folded: str) -> _Read:
    less = _LESS.search(folded) is not None
    for match in _TENTHS.finditer(folded):
        digits = "".join(str(HAN_DIGITS.get(c, c)) for c in match["n"] if c != ".")
        yield "paid", Value(float(f"0.{digits}") * 100, "percent"), match
    for match in _HUNDREDTHS.finditer(folded):
        yield *_percent(_number(match["n"]), less=less), match
    for pattern, kind, number in _HALVES:
        for match in pattern.finditer(folded):
            half = kind, Value(number, "half")
            yield *(_percent(number, less=less) if kind == "percent" else half), match


def dated(folded: str) -> Iterator[str]:
    """The dates and times of a folded text, as they are written."""
    for read in (_dates, _times):
        for _, _, match in read(folded):
            yield match[0]


def _plain(folded: str) -> Iterator[tuple[str, Value]]:
    less = _LESS.search(folded) is not None
    for one in counted(folded):
        percent = one.kind == "percent"
        yield (
            _percent(one.number, less=less) if percent else (one.kind, Value(one.number, one.unit))
        )


def counted(folded: str) -> Iterator[Counted]:
    """The numbers of a folded text with what they count, in order; those with a sign before first.

    A year stands for itself. Dates, times and shares in words are not looked for.
    """
    for match in _PREFIXED.finditer(folded):
        kind, factor = _UNITS[match["unit"]]
        raw = _number(match["digits"])
        yield Counted(kind, factor * raw, kind, raw, *match.span())
    for match in _QUANTITY.finditer(_PREFIXED.sub(_blank, folded)):
        if match["han"] and not match["unit"]:
            continue
        number = _number(match["digits"] or match["han"])
        number *= _SCALES.get(match["scale"] or "", 1.0)
        number += 0.5 * bool(match["half"] or match["after"])
        unit = match["unit"] or ""
        if unit in ("", "年") and _YEAR_NUMBER.fullmatch(match["digits"] or ""):
            kind, factor, unit = YEAR, 1.0, YEAR
        elif unit in _UNITS:
            kind, factor = _UNITS[unit]
        elif unit == "楼":
            kind, factor, unit = "floor", 1.0, "floor"
        else:
            kind = stem(unit) if unit.isascii() and question_terms(unit) else ""
            kind = kind if unit.isascii() else unit
            factor, unit = 1.0, kind
        # "5,001 to 50,000": what follows is no unit.
        end = match.end() if unit or not match["unit"] else match.start("unit")
        yield Counted(kind, factor * number, unit, number, match.start(), end)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _percent(number: float, *, less: bool) -> tuple[str, Value]:
    """A share; 20 % off is what 八折 is: 80 % to pay."""
    return ("paid", Value(100 - number, "percent")) if less else ("share", Value(number, "percent"))


def _part(written: str | None) -> int | None:
    if written is None:
        return None
    return _MONTHS.get(written) or int(_number(written))


def _number(written: str) -> float:
    plain = written.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return float(han_number(plain))


def _minutes(match: re.Match[str]) -> float:
    """Minutes on the dial of twelve hours: whether it is morning is often left unsaid."""
    found = match.groupdict()
    if found.get("way"):
        part = 30 if found["part"] == "half" else 15
        sign = 1 if found["way"] == "past" else -1
        return (60 * int(found["hour"]) + sign * part) % 720
    hour = _number(found["h"] or found["hour"] or found["dian"])
    minute = found["m"] or found["fen"]
    minutes = _number(minute) if minute else 0.0
    minutes += 30 * bool(found["ban"]) + 15 * {"一": 1, "三": 3}.get(found["ke"] or "", 0)
    return (60 * hour + minutes) % 720
