"""Compound questions: what to look up for each side of a comparison, or each question (F3.1).

Only forms that leave no doubt are split. The parts are looked up beside the whole question, so
that a split that was wrong costs a search and hides nothing.
"""

from __future__ import annotations

import re

from forebay.folding import simplified
from forebay.query.followup import standalone

MOST_CHARACTERS = 300
MOST_PARTS = 3
_MOST_SIDE_CHARACTERS = 60

_ASPECT = (
    r"(?:\s+(?:on|in terms of|regarding|with respect to|in regard to|when it comes to|by|for)\s+"
    r"(?P<x>.+?))?"
)
_END = r"[\s?.!]*$"
_EN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            rf"^(?:please\s+|can you\s+)*compare\s+(?P<a>.+?)\s+(?:and|with|to|against|versus|vs)"
            rf"\s+(?P<b>.+?){_ASPECT}{_END}"
        ),
        (
            r"^(?:(?:what(?:['’]s|\s+is|\s+are)|tell me|explain|describe|list)\s+)?(?:the\s+)?"
            r"(?:main\s+|key\s+)?(?:differences?|similarities)\s+between\s+(?P<a>.+?)"
            r"\s+and\s+(?P<b>.+?)"
            rf"{_ASPECT}{_END}"
        ),
        (
            r"^how\s+(?:do|does|did|is|are)\s+(?P<a>.+?)\s+(?:differ(?:ent)?\s+from|compared?\s+(?:to|with))\s+"
            rf"(?P<b>.+?){_ASPECT}{_END}"
        ),
        (
            r"^how\s+(?:do|are)\s+(?P<a>.+?)\s+and\s+(?P<b>.+?)\s+(?:differ|compare|different)"
            rf"(?:\s+(?:on|in|in terms of|regarding)\s+(?P<x>.+?))?{_END}"
        ),
        r"^(?P<a>.{2,60}?)\s+(?:vs\.?|versus)\s+(?P<b>.{2,60}?)" + _ASPECT + _END,
        (
            r"^(?:which|who|what)\s+(?:one\s+)?(?:is|are|was|were|has|have|had)\s+[^,]{2,40}?\s*[,:]\s*"
            rf"(?P<a>.+?)\s+or\s+(?P<b>.+?){_END}"
        ),
    )
)
_ZH = tuple(
    re.compile(pattern)
    for pattern in (
        (
            r"^(?:请)?(?:从(?P<x>[^，,]{1,12}?)(?:上|方面|角度)?[，,]?)?(?:比较|对比)(?:一下)?\s*(?P<a>[^，,。？?]+?)\s*"
            r"(?:和|与|跟|同|以及)\s*(?P<b>[^，,。？?]+?)(?:[？?。！!]*)$"
        ),
        (
            r"^(?:请问)?(?P<a>[^，,。？?]+?)\s*(?:和|与|跟|同|相比|比起)\s*(?P<b>[^，,。？?]+?)(?:之间|相比)?"
            r"(?:在(?P<x>[^，,。？?]{1,12}?)(?:上|方面|中))?(?:的)?(?:主要|几个|[两二三]个)?(?:到底)?(?:有什么|有何|"
            r"有哪些|有啥)?(?:主要)?(?:的)?"
            r"(?:区别|差别|差异|不同|异同|不一样)(?:是什么|有哪些|在哪里?|呢)?[？?。！!]*$"
        ),
        (
            r"^(?:请问)?(?P<a>[^，,。？?]+?)\s*(?:和|与|跟|还是)\s*(?P<b>[^，,。？?]+?)[，,]?\s*"
            r"(?:哪一?[个种款台家边]?|谁)(?:更|最|比较)[^，,。？?]{1,8}?(?:一些|"
            r"一点)?[？?。！!]*$"
        ),
    )
)
_EN_TWO = re.compile(
    r"[,;]?\s+(?:and|also|plus)(?:\s+also)?,?\s+(?=(?:who|what|where|when|why|how|which)\b(?!['’]))"
    r"|\?\s+(?=\S)",
    re.IGNORECASE,
)
_EN_ASKS = re.compile(
    r"^(?:and\s+|also\s+)?(?:who|what|where|when|why|how|which|whose|is|are|was|were|do|does|did|"
    r"can|"
    r"could|should|must|may|will|has|have)\b",
    re.IGNORECASE,
)
_ZH_TWO = re.compile(
    r"[，,；;？?]\s*(?:以及|还有|并且|而且|同时|另外|又|和)?\s*(?=\S)|(?:以及|还有)\s*(?=\S)"
)
_ZH_ASKS = re.compile(
    r"什么|多少|多久|多长|怎么|怎样|如何|谁|哪|几[年月天次个]|为什么|为何|是否|能不能|可不可以|"
    r"有没有|[吗么][？?]?$"
)
_HAN = re.compile("[\u3400-\u9fff]")
_YEAR = re.compile(r"(?:19|20)\d\d")
_TRIM = " \t\"'“”‘’「」《》的"


def parts_of(question: str) -> tuple[str, ...]:
    """What to look up beside the whole question; empty for a question that is one.

    Every part stands alone. Takes microseconds; the same for the same input.
    """
    if len(question) > MOST_CHARACTERS or "\n" in question.strip():
        return ()
    text = question.strip()
    chinese = _HAN.search(text) is not None
    sides = _sides(text, chinese=chinese)
    return sides or _questions(text, chinese=chinese)


def _sides(text: str, *, chinese: bool) -> tuple[str, ...]:
    plain = simplified(text) if chinese else text
    for pattern in _ZH if chinese else _EN:
        found = pattern.match(plain)
        if found is None:
            continue
        names = found.re.groupindex
        a, b = (text[found.start(name) : found.end(name)].strip(_TRIM) for name in "ab")
        x = text[found.start("x") : found.end("x")] if "x" in names and found["x"] else ""
        if not a or not b or max(len(a), len(b)) > _MOST_SIDE_CHARACTERS:
            return ()
        if chinese and not x and "的" in b:
            # "比较 A 和 B 的价格": the price is of both.
            b, _, x = b.rpartition("的")
        if not chinese:
            a, b = _whole(a, b)
        if a.lower() == b.lower() or (not chinese and (" and " in a or " and " in b)):
            return ()
        return tuple(_about(side.strip(_TRIM), x.strip(_TRIM), chinese=chinese) for side in (a, b))
    return ()


def _whole(a: str, b: str) -> tuple[str, str]:
    """Both sides with what they share: annual and sick leave, revenue in 2018 and 2019."""
    years = [_YEAR.findall(side) for side in (a, b)]
    if _YEAR.fullmatch(b) and len(years[0]) == 1:
        return a, _YEAR.sub(b, a)
    if _YEAR.fullmatch(a) and len(years[1]) == 1:
        return _YEAR.sub(a, b), b
    bare = a.removeprefix("the ")
    if " " not in bare and bare.islower() and b.count(" ") > b.startswith("the "):
        shared = b.removeprefix("the ").partition(" ")[2]
        return f"{a} {shared}", b
    return a, b


def _about(side: str, aspect: str, *, chinese: bool) -> str:
    if not aspect or side.endswith(aspect):
        return side
    joint = "的" if chinese and _HAN.match(side[-1]) else " "
    return f"{side}{joint}{aspect}"


def _questions(text: str, *, chinese: bool) -> tuple[str, ...]:
    """Several questions in one; each later one may refer to what the first is about."""
    plain = simplified(text) if chinese else text
    borders = list((_ZH_TWO if chinese else _EN_TWO).finditer(plain))
    if not borders or len(borders) >= MOST_PARTS:
        return ()
    starts = [0, *(border.end() for border in borders)]
    ends = [*(border.start() for border in borders), len(text)]
    found = [text[start:end].strip(" ，,；;") for start, end in zip(starts, ends, strict=True)]
    asks = _ZH_ASKS.search if chinese else _EN_ASKS.search
    if not chinese and found[0].count(" ") < 2:
        return ()  # how and when is one question
    if any(len(one) < 3 or not asks(simplified(one)) for one in found):
        return ()
    return (found[0], *(standalone(one, found[:1]) for one in found[1:]))
