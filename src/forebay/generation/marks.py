"""Words of closed classes that tell things of a kind apart, the same in Chinese and English.

Ordinals, directions, colours, weekdays, months, seasons, parts of the day and the like: "the
second pump" and 二号水泵 hold the same mark, and another than "the first pump".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CLASSES = """
north:north northern|北; south:south southern|南; east:east eastern|东; west:west western|西
upper:upper upstream|上 上游; lower:lower downstream|下 下游
middle:middle central|中 中间 中部 中央
left:left|左; right:right|右
front:front|前; rear:rear back|后
inner:inner internal indoor inside|内 室内 内部
outer:outer external outdoor outside|外 室外 外部
new:new|新; old:old|旧 老
male:male men men's|男; female:female women women's|女
red:red|红色 红; blue:blue|蓝色 蓝; green:green|绿色 绿; yellow:yellow|黄色 黄
white:white|白色; black:black|黑色; grey:grey gray|灰色; brown:brown|棕色 褐色
orange:orange|橙色 橘色; purple:purple violet|紫色; pink:pink|粉色 粉红色
spring:spring|春季 春 春天; summer:summer|夏季 夏 夏天
autumn:autumn fall|秋季 秋 秋天; winter:winter|冬季 冬 冬天
monday:monday mondays|周一 星期一 礼拜一; tuesday:tuesday tuesdays|周二 星期二 礼拜二
wednesday:wednesday wednesdays|周三 星期三 礼拜三
thursday:thursday thursdays|周四 星期四 礼拜四
friday:friday fridays|周五 星期五 礼拜五; saturday:saturday saturdays|周六 星期六 礼拜六
sunday:sunday sundays|周日 星期日 星期天 周天 礼拜天
night:night overnight|夜班 夜间 晚班; day:daytime day|白班 日班 白天 日间
early:morning early|早班 早上 上午; late:evening late|中班 傍晚
weekend:weekend weekends|周末; weekday:weekday weekdays workday|工作日 平日
daily:daily|每日 日报; weekly:weekly|每周 周度; monthly:monthly|每月 月度 月报
quarterly:quarterly|季度 季报; yearly:yearly annual|年度 年报 每年
adult:adult adults|成人 成年; child:child children kids|儿童 小孩; senior:senior seniors|老人 老年
student:student students|学生; family:family|家庭; basic:basic|基础 基本; premium:premium|高级 高端
large:large big|大 大型 大号; medium:medium|中型 中号; small:small|小 小型 小号
temporary:temporary|临时; permanent:permanent|永久 长期 正式
domestic:domestic national|国内; foreign:foreign international|国外 国际
public:public|公共 公用; private:private|私人 私有
"""
_GROUPS = (
    ("direction", "north south east west"),
    ("level", "upper lower middle"),
    ("side", "left right"),
    ("face", "front rear"),
    ("inside", "inner outer"),
    ("age", "new old"),
    ("sex", "male female"),
    ("colour", "red blue green yellow white black grey brown orange purple pink"),
    ("season", "spring summer autumn winter"),
    ("weekday", "monday tuesday wednesday thursday friday saturday sunday"),
    ("shift", "night day early late weekend weekday"),
    ("period", "daily weekly monthly quarterly yearly"),
    ("person", "adult child senior student family"),
    ("rank", "basic premium family student"),
    ("size", "large medium small"),
    ("term", "temporary permanent"),
    ("reach", "domestic foreign"),
    ("access", "public private"),
)
_ENGLISH: dict[str, str] = {}
_CHINESE: dict[str, str] = {}
for _entry in _CLASSES.replace("\n", ";").split(";"):
    if _entry.strip():
        _name, _, _words = _entry.strip().partition(":")
        _one, _, _other = _words.partition("|")
        _ENGLISH |= dict.fromkeys(_one.split(), _name)
        _CHINESE |= dict.fromkeys(_other.split(), _name)
_GROUPS_OF = {
    name: frozenset(group for group, others in _GROUPS if name in others.split())
    for name in {name for _, names in _GROUPS for name in names.split()}
}

STATES = frozenset("lost broken damaged stolen missing expired unused".split())
"""They tell nothing apart: a lost key is no other kind of key."""

_ORDINALS = {
    word: str(value)
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth".split(), 1
    )
}
HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_TENS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_HAN_NUMBER = "[零〇一二两三四五六七八九十百]+"
_HAN_ORDINAL = re.compile(rf"第({_HAN_NUMBER}|\d+)|({_HAN_NUMBER}|\d+)号(?!线?码)|[甲乙丙丁]")
_HEAVENLY = dict(zip("甲乙丙丁", "1234", strict=True))
_ORDINAL = re.compile(
    rf"\b({'|'.join(_ORDINALS)})\b|\b(\d+)(?:st|nd|rd|th)\b|\b(?:no\.|number|#) ?(\d+)"
)
_WORD = re.compile(r"[a-z]+(?:'s)?")
_LONGEST_FIRST = sorted((word for word in _CHINESE if len(word) > 1), key=len, reverse=True)
_HAN_MARK = re.compile("|".join(_LONGEST_FIRST))


def mark_of(word: str) -> str | None:
    """The mark that a word of either language is, None where it is none."""
    found = _ENGLISH.get(word) or _CHINESE.get(word)
    if found is not None:
        return found
    ordinal = _ORDINAL.fullmatch(word)
    if ordinal is not None:
        return "#" + (_ORDINALS.get(ordinal[0]) or next(filter(None, ordinal.groups()[1:])))
    han = _HAN_ORDINAL.fullmatch(word)
    return None if han is None else _han_ordinal(han)


def marks(folded: str) -> dict[str, set[str]]:
    """Marks of a folded text by group; ordinals are a group of their own."""
    found: dict[str, set[str]] = {}
    for name in _named(folded):
        for group in _GROUPS_OF[name]:
            found.setdefault(group, set()).add(name)
    for match in _ORDINAL.finditer(folded):
        value = _ORDINALS.get(match[0]) or next(filter(None, match.groups()[1:]))
        found.setdefault("ordinal", set()).add("#" + value)
    if not folded.isascii():
        for match in _HAN_ORDINAL.finditer(folded):
            found.setdefault("ordinal", set()).add(_han_ordinal(match))
    return found


def _named(folded: str) -> Iterator[str]:
    for match in _WORD.finditer(folded):
        if match[0] in _ENGLISH:
            yield _ENGLISH[match[0]]
    if not folded.isascii():
        for match in _HAN_MARK.finditer(folded):
            yield _CHINESE[match[0]]


def _han_ordinal(match: re.Match[str]) -> str:
    written = match[1] or match[2]
    if written is None:
        return "#" + _HEAVENLY[match[0]]
    return "#" + (str(int(written)) if written.isdecimal() else str(han_number(written)))


def han_number(written: str) -> int:
    """The value of a number in Chinese characters, up to 万."""
    total = section = digit = 0
    for character in written:
        if character in HAN_DIGITS:
            digit = HAN_DIGITS[character]
        elif character == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        else:
            section += (digit or 1) * _TENS[character]
            digit = 0
    return total + section + digit


def both_ways() -> Iterator[tuple[list[str], list[str]]]:
    """The English and the Chinese words of every mark."""
    for name in _GROUPS_OF:
        yield (
            [word for word, one in _ENGLISH.items() if one == name],
            [word for word, one in _CHINESE.items() if one == name],
        )
    for word, value in _ORDINALS.items():
        han = "零一二三四五六七八九十"[int(value)]
        yield [word], [f"第{han}", f"{han}号", f"{value}号", f"第{value}"]


def groups_of(mark: str) -> frozenset[str]:
    """The groups a mark belongs to."""
    return frozenset(("ordinal",)) if mark[0] == "#" else _GROUPS_OF[mark]
