"""Whether two questions ask the same: decided by their words, since cosines cannot.

可以退 and 不可以退 have a cosine of .976, true paraphrases .962 to .984. So vectors only propose,
and this decides: both questions must say the same numbers, codes, words and negations, in the same
order: who does what to whom is told by nothing else. What may differ is how one asks: courtesy, the
frame of the question, glue words, plurals, "hours of the library" for "library hours". Where in
doubt the answer is no: that costs a hit, the other way round costs a wrong answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Literal, NamedTuple

from forebay.cache.canonical import canonical

Difference = Literal["empty", "numbers", "codes", "names", "negation", "direction", "words"]

_HAN = "々〇㐀-䶿一-鿿豈-\ufaff\U00020000-\U000323af"
_PIECE = re.compile(
    rf"(?P<han>[{_HAN}]+)"
    rf"|(?P<code>[^\W_{_HAN}]+(?:[-_./:@#+&'][^\W_{_HAN}]+)*[+#]*)"
    r"|(?P<pause>[,.;:!?…、。])"
    # Whatever else is seen says something: an operator, an arrow, a vowel's mark, a picture.
    r"|(?P<sign>[^\w\s'\"`]|_)"
)
_CHINESE = re.compile(f"[{_HAN}]")
_HAN_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千万亿半]+")
_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_VAGUE = re.compile(
    "^[一二两三四五六七八九]{2}$|[一二两三四五六七八九]{2}[十百千万亿]|[百千万亿][一二两三四五六七八九]$|^[百千万亿]"
)
"""二三 is two or three, 三四百 is 300 or 400, 一百二 is 120, and 百 begins words."""
_IDIOMS = (
    "百度",
    "千万",
    "一下",
    "一般",
    "一起",
    "一直",
    "一定",
    "一样",
    "一些",
    "十分",
    "万一",
    "统一",
    "唯一",
)
"""Words that hold a numeral and count nothing."""

_WORD_NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()
    )
}
_ORDINALS = {"first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th"}

_FRAMES = re.compile(
    r"^(?:(?:hi|hello|hey|please|thanks|excuse me)[,.! ]+)*"
    r"(?:(?:please )?(?:can|could|would|will) you (?:please )?(?:tell|show|explain|give|help)"
    r"(?: to)?(?: me| us)?(?: understand)?\s+|(?:please )?(?:tell|show|give) (?:me|us)\s+"
    r"|i(?:'d| would) like to know\s+|i want to know\s+|do you know\s+)?"
)
_WHAT_IS = re.compile(r"^(?:what|which)\s+(?=(?:the|a|an|my|our)\s.*\s(?:is|are)$)")
"""Left of a question that was said inside a sentence: (tell me) what the price is."""
_HAN_FRAMES = re.compile(
    r"^(?:你好|您好|请问一下|请问|麻烦问一下|麻烦(?=[你您请帮告])|我想知道|我想问一下|我想问|想问一下"
    r"|请?告诉我|请(?![假教客求示愿命辞柬帖罪安])|一下)+|谢谢$|一下"
)
"""At the beginning: inside, 麻烦 and 请 are words (请假, 办理麻烦吗)."""
_HAN_GLUE = frozenset("的了吗呢啊吧呀么嘛哦是")
_HAN_I, _HAN_YOU = frozenset("我咱"), frozenset("你您")
"""Glue unless there are both: then who is who counts."""
_HAN_SAME = (
    ("是不是", "是否"),
    ("怎么样", "如何"),
    ("怎样", "如何"),
    ("怎么", "如何"),
    ("多长时间", "多久"),
)
"""Other ways to ask the same; longer ones first."""

_GLUE = frozenset(
    "a an the of is are am do does i my mine we our "
    "it its that this these those there please".split()
)
_SAME = {"your": "you", "yours": "you", "yourself": "you", "us": "me", "were": "was"}
_NO_PLURALS = frozenset("arms customs damages glasses goods means minutes news savings".split())
"""Without their s they are other words."""
_CONTRACTIONS = (
    (re.compile(r"\b(can|won|don|doesn|didn|isn|aren|wasn|weren|shouldn|couldn|wouldn|mustn|hasn|"
                r"haven|hadn)'?t\b"), r"\1 not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\b(what|who|where|when|how|that|it|there|here)'s\b"), r"\1 is"),
    (re.compile(r"\b(\w+)'(?:re|ve|ll|d|m)\b"), r"\1"),
    (re.compile(r"\bwhat is the (?:procedure|process|way) (?:for|to)\b"), "how to"),
    (re.compile(r"\b(?:what|which) (?:is|are)\b"), " "),
    (re.compile(r"\bhow (?:do|can|could|should|would|may) (?:i|we|you|one)\b"), "how to"),
)  # fmt: skip
_NEGATIONS = frozenset("not no never none nothing without neither nor except unless non".split())
_HAN_NEGATIONS = ("不", "没", "無", "无", "非", "未", "别", "勿", "莫", "否", "禁")
_PAUSE = ","
_PLACES = frozenset(("for", "in", "at"))
"""Glue, but for "in 5 days" and "for 5 days"."""


class Content(NamedTuple):
    """What a question says, in order: numbers, codes and words, each as one token.

    ``turned``: the same with "B A" for its one "A of B"; empty where that might say another thing.
    """

    tokens: tuple[str, ...]
    numbers: tuple[str, ...]
    codes: tuple[str, ...]
    negations: tuple[str, ...]
    turned: tuple[str, ...]


class _Read:
    """What has been read of a text so far; ``of``: how many tokens stood before each "of"."""

    __slots__ = ("codes", "negations", "numbers", "of", "tokens")

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.numbers: list[str] = []
        self.codes: list[str] = []
        self.negations: list[str] = []
        self.of: list[int] = []

    def pause(self) -> None:
        """Note where a clause ends: "No, refunds" is not "No refunds"."""
        if self.tokens and self.tokens[-1] != _PAUSE:
            self.tokens.append(_PAUSE)

    def content(self) -> Content:
        """All of it; pauses count where something is negated, places where there is a number."""
        tokens = self.tokens
        while tokens and tokens[-1] == _PAUSE:
            tokens.pop()
        turned: list[str] = []
        if len(self.of) == 1 and not (self.negations or self.numbers or self.codes):
            turned = [*tokens[self.of[0] :], *tokens[: self.of[0]]]
        idle = set() if self.negations else {_PAUSE}
        if not self.numbers:
            idle |= _PLACES
        tokens, turned = [[t for t in part if t not in idle] for part in (tokens, turned)]
        parts = (tokens, self.numbers, self.codes, self.negations, turned)
        return Content(*map(tuple, parts))


def content(text: str) -> Content:
    """Reduce a question to what it says; two that ask the same have equal contents."""
    names = _names(text)
    # In a Chinese sentence a letter is a name, never an article.
    glue = frozenset[str]() if _CHINESE.search(text) else _GLUE
    text = canonical(text)
    for pattern, written in _CONTRACTIONS:
        text = pattern.sub(written, text)
    text = _WHAT_IS.sub("", _FRAMES.sub("", text))
    read = _Read()
    for piece in _PIECE.finditer(text):
        if piece["han"]:
            _read_han(piece["han"], read)
        elif piece["pause"]:
            read.pause()
        elif piece["sign"]:
            read.tokens.append(piece[0])
        else:
            _read_word(piece[0], names, glue, read)
    return read.content()


def _read_word(word: str, names: frozenset[str], glue: frozenset[str], read: _Read) -> None:
    if any(c.isdigit() for c in word):
        (read.numbers if word.isdigit() or _is_quantity(word) else read.codes).append(word)
        read.tokens.append(word)
    elif word in _WORD_NUMBERS or word in _ORDINALS:
        value = _WORD_NUMBERS.get(word) or _ORDINALS[word]
        read.numbers.append(value)
        read.tokens.append(value)
    elif not word.isalpha():
        read.codes.append(word)
        read.tokens.append(word)
    else:
        if word in _NEGATIONS:
            read.negations.append("not")
        if word == "of":
            read.of.append(len(read.tokens))
        if word in names:
            read.codes.append(word)
        if word not in glue or word in names:
            read.tokens.append(word if word in names else _SAME.get(word) or _singular(word))


def difference(one: str, other: str) -> Difference | None:
    """What tells two questions apart; None: they ask the same."""
    a, b = content(one), content(other)
    if not a.tokens or not b.tokens:
        return "empty"
    if Counter(a.numbers) != Counter(b.numbers):
        return "numbers"
    if Counter(a.codes) != Counter(b.codes):
        return "codes"
    if a.negations != b.negations:
        return "negation"
    if a.tokens == b.tokens:
        return None
    if bool(a.turned) != bool(b.turned) and (a.turned or a.tokens) == (b.turned or b.tokens):
        return None
    return "words" if Counter(a.tokens) != Counter(b.tokens) else "direction"


def _names(text: str) -> frozenset[str]:
    """Words that are written like names: capitals inside a sentence, or all of them."""
    text = unicodedata.normalize("NFKC", text)
    words = re.findall(r"[A-Za-z]+", text)
    shouted = text.upper() == text
    found = set()
    for at, word in enumerate(words):
        if word == "I" or (word == "A" and not at):
            continue
        if not shouted and (word.isupper() or (at and word[0].isupper())):
            found.add(word.lower())
    return frozenset(found) if len(found) < max(2, len(words) - 1) else frozenset()


def _read_han(text: str, read: _Read) -> None:
    """Characters one by one, since what is a word is often a matter of taste; numerals by value."""
    text = _HAN_FRAMES.sub("", text)
    for said, written in _HAN_SAME:
        text = text.replace(said, written)
    persons = _HAN_I | _HAN_YOU
    both = not (_HAN_I.isdisjoint(text) or _HAN_YOU.isdisjoint(text))
    glue = _HAN_GLUE if both else _HAN_GLUE | persons
    at = 0
    while at < len(text):
        idiom = next((word for word in _IDIOMS if text.startswith(word, at)), None)
        numeral = None if idiom else _HAN_NUMBER.match(text, at)
        if idiom:
            read.tokens.extend(idiom)
            at += len(idiom)
            continue
        if numeral:
            value = _han_value(numeral[0])
            read.numbers.append(value)
            read.tokens.append(value)
            at = numeral.end()
            continue
        character = text[at]
        if character in _HAN_NEGATIONS:
            read.negations.append("not")
        if character not in glue:
            read.tokens.append(character)
        at += 1


def _han_value(text: str) -> str:
    """The value of a numeral, as digits; what is none, or no exact one, stands for itself."""
    if "半" in text or _VAGUE.search(text):
        return text
    if not any(c in _HAN_UNITS for c in text):
        return "".join(str(_HAN_DIGITS[c]) for c in text)
    total = section = digit = 0
    for character in text:
        if character in _HAN_DIGITS:
            digit = _HAN_DIGITS[character]
        elif (unit := _HAN_UNITS[character]) < 10_000:
            section += (digit or 1) * unit
            digit = 0
        else:
            total += (section + digit or 1) * unit
            section = digit = 0
    return str(total + section + digit)


def _is_quantity(word: str) -> bool:
    return re.fullmatch(r"\d+(?:[.,:/-]\d+)*(?:st|nd|rd|th|s|h|d|k|m)?", word) is not None


def _singular(word: str) -> str:
    """Crude: only what cannot make two different words equal in one domain."""
    if (
        len(word) > 3
        and word not in _NO_PLURALS
        and word.endswith("s")
        and not word.endswith(("ss", "us", "is"))
    ):
        return word[:-1]
    return word
