"""What kind of answer a question asks for, and whether a sentence looks like one."""

from __future__ import annotations

import re
from collections.abc import Callable

from forebay.generation.passages import Unit

NUMBER_BONUS = 0.12
MEASURE_BONUS = 0.15

_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:many|much|long|old|far|often|tall|high|large|big|fast|heavy)|when|what "
    r"(?:year|date|percent\w*|age|time|number|day|price)|which (?:year|number))\b"
    r"|多少|几|哪年|哪一年|何时|什么时候|什么时间|多久|多长|多大|多高|多远|多重|哪一天|何年",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|[一二三四五六七八九十百千万亿]{2}|[零两]|[一二三四五六七八九十][天个年次种名倍月周]"
)
_WRITTEN = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|"
    r"million|billion|once|twice|half|annually|daily|weekly|monthly)\b",
    re.IGNORECASE,
)
_PATTERNS = (
    # money
    r"多少钱|价格|价钱|费用|花费|\b(?:how much|price|cost|fee)\b",
    r"元|￥|¥|\$|€|£|单价|免费|\b(?:CNY|RMB|USD|EUR|GBP|yuan|dollars?|price|free)\b",
    # duration
    (
        r"多久|多长时间|几天|多少天|几年|几个月|几小时|期限|\bhow long\b"
        r"|\bhow many (?:days|hours|weeks|months)"
    ),
    r"[天日年月周]|小时|分钟|\b(?:second|minute|hour|day|week|month|year)s?\b",
    # point in time
    r"什么时候|何时|几点|哪年|哪一年|哪天|\b(?:when|what time|what date|which year|what year)\b",
    (
        r"\d[:：]\d\d|[日年月点]|\b\d{4}\b|\b(?:january|february|march|april|may|june|july|august|"
        r"september|october|november|december|century)\b"
    ),
    # weight
    r"多重|重量|\b(?:how heavy|weight)\b",
    r"千克|公斤|吨|克|\d ?(?:kg|g|t)\b|\b(?:tons?|tonnes?|pounds?)\b",
    # telephone
    r"电话|内线|分机|\b(?:phone|extension|call)\b",
    r"\d{3}",
)


def _shows_number(unit: Unit) -> bool:
    return _NUMBER.search(unit.text) is not None or _WRITTEN.search(unit.text) is not None


def _shower(answers: str) -> Callable[[Unit], bool]:
    """Whether a unit shows what a pattern finds; a table's header counts."""
    pattern = re.compile(answers, re.IGNORECASE)

    def shows(unit: Unit) -> bool:
        text = f"{unit.lead}\n{unit.text}" if unit.kind == "row" else unit.text
        return pattern.search(text) is not None

    return shows


_MEASURES = tuple(
    (re.compile(asks, re.IGNORECASE), _shower(answers))
    for asks, answers in zip(_PATTERNS[::2], _PATTERNS[1::2], strict=True)
)


class AnswerKind:
    """Read once per question; ``bonus`` is asked of every unit."""

    def __init__(self, question: str) -> None:
        self._number = _ASKS_NUMBER.search(question) is not None
        self._answers = [shows for asks, shows in _MEASURES if asks.search(question)]

    def bonus(self, unit: Unit) -> float:
        """What a unit gains by looking like such an answer."""
        gained = 0.0
        if self._number and unit.known(_shows_number):
            gained += NUMBER_BONUS
        if self._answers and any(unit.known(shows) for shows in self._answers):
            gained += MEASURE_BONUS
        return gained
