"""Whether two questions ask the same: decided by their words, since cosines cannot.

可以退 and 不可以退 have a cosine of .976, true paraphrases .962 to .984. So vectors only propose,
and this decides: both questions must say the same numbers, codes, words and negations, in the same
order wherever order may carry meaning. What may differ is how one asks: courtesy, the frame of the
question, glue words, plurals. Where in doubt the answer is no: that costs a hit, the other way
round costs a wrong answer.
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
    r"|(?P<sign>[%°$€£¥<>=≥≤±+*/^&|~-])"
)
_CHINESE = re.compile(f"[{_HAN}]")
_HAN_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千万亿半]+")
_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_IDIOMS = ("一下", "一般", "一起", "一直", "一定", "一样", "一些", "十分", "万一", "统一", "唯一")
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
_WHAT_IS = re.compile(r"^(?:what|which)\s+(?=(?:the|a|an|my|our)\s.*\s(?:is|are|was|were)$)")
"""Left of a question that was said inside a sentence: (tell me) what the price is."""
_HAN_FRAMES = re.compile(
    r"请问一下|请问|麻烦问一下|麻烦|我想知道|我想问一下|我想问|想问一下|告诉我|你好|您好|谢谢|一下|请"
)
_HAN_GLUE = frozenset("的了吗呢啊吧呀么嘛哦是我你您咱")
_HAN_SAME = (("怎么样", "如何"), ("怎样", "如何"), ("怎么", "如何"), ("多长时间", "多久"))
"""Other ways to ask the same; longer ones first."""

_GLUE = frozenset(
    "a an the of for in at is are was were am be been do does i my mine we our "
    "it its that this these those there s please".split()
)
_SAME = {"your": "you", "yours": "you", "yourself": "you", "us": "me", "need": "must"}
_CONTRACTIONS = (
    (re.compile(r"\b(can|won|don|doesn|didn|isn|aren|wasn|weren|shouldn|couldn|wouldn|mustn|hasn|"
                r"haven|hadn)'?t\b"), r"\1 not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\b(what|who|where|when|how|that|it|there|here)'s\b"), r"\1 is"),
    (re.compile(r"\b(\w+)'(?:re|ve|ll|d|m)\b"), r"\1"),
    (re.compile(r"\bwhat is the (?:procedure|process|way) (?:for|to)\b"), "how to"),
    (re.compile(r"\b(?:what|which) (?:is|are|was|were)\b"), " "),
    (re.compile(r"\bhow (?:do|can|could|should|would|may) (?:i|we|you|one)\b"), "how to"),
)  # fmt: skip
_NEGATIONS = frozenset("not no never none nothing without neither nor except unless non".split())
_HAN_NEGATIONS = ("不", "没", "無", "无", "非", "未", "别", "勿", "莫", "否", "禁")
_DIRECTIONS = frozenset(
    "to from into onto out off before after since until till than over under above below between "
    "by with via per through against instead versus vs if when because behind".split()
)
_HAN_DIRECTIONS = frozenset("从到至给向对比由被把将转换变为以前后上下里外内高低大小多少先再如若")


class Content(NamedTuple):
    """What a question says, in order: numbers, codes and words, each as one token."""

    tokens: tuple[str, ...]
    numbers: tuple[str, ...]
    codes: tuple[str, ...]
    negations: tuple[str, ...]
    directed: bool


def content(text: str) -> Content:
    """Reduce a question to what it says; two that ask the same have equal contents."""
    names = _names(text)
    # In a Chinese sentence a letter is a name, never an article.
    glue = frozenset[str]() if _CHINESE.search(text) else _GLUE
    text = canonical(text)
    for pattern, written in _CONTRACTIONS:
        text = pattern.sub(written, text)
    text = _WHAT_IS.sub("", _FRAMES.sub("", text))
    tokens: list[str] = []
    numbers: list[str] = []
    codes: list[str] = []
    negations: list[str] = []
    directed = False
    for piece in _PIECE.finditer(text):
        if piece["han"]:
            directed |= _read_han(piece["han"], tokens, numbers, negations)
            continue
        word = piece[0]
        if piece["sign"]:
            tokens.append(word)
            directed = True
        elif any(c.isdigit() for c in word):
            (numbers if word.isdigit() or _is_quantity(word) else codes).append(word)
            tokens.append(word)
        elif word in _WORD_NUMBERS or word in _ORDINALS:
            value = _WORD_NUMBERS.get(word) or _ORDINALS[word]
            numbers.append(value)
            tokens.append(value)
        elif not word.isalpha():
            codes.append(word)
            tokens.append(word)
        else:
            if word in _NEGATIONS:
                negations.append("not")
            directed |= word in _DIRECTIONS
            if word in names:
                codes.append(word)
            if word not in glue or word in names:
                tokens.append(word if word in names else _SAME.get(word) or _singular(word))
    return Content(tuple(tokens), tuple(numbers), tuple(codes), tuple(negations), directed)


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
    if Counter(a.tokens) != Counter(b.tokens):
        return "words"
    # The same words in another order may say the reverse, or nothing else.
    free = not (a.directed or b.directed or a.negations or a.numbers or a.codes)
    return None if free else "direction"


def _names(text: str) -> frozenset[str]:
    """Words that are written like names: capitals inside a sentence, or all of them."""
    text = unicodedata.normalize("NFKC", text)
    words = re.findall(r"[A-Za-z][A-Za-z]+", text)
    shouted = text.upper() == text
    found = set()
    for at, word in enumerate(words):
        if not shouted and (word.isupper() or (at and word[0].isupper())):
            found.add(word.lower())
    return frozenset(found) if len(found) < max(2, len(words) - 1) else frozenset()


def _read_han(text: str, tokens: list[str], numbers: list[str], negations: list[str]) -> bool:
    """Characters one by one, since what is a word is often a matter of taste; numerals by value.

    Returns whether order may matter.
    """
    text = _HAN_FRAMES.sub("", text)
    for said, written in _HAN_SAME:
        text = text.replace(said, written)
    directed = False
    at = 0
    while at < len(text):
        idiom = next((word for word in _IDIOMS if text.startswith(word, at)), None)
        numeral = None if idiom else _HAN_NUMBER.match(text, at)
        if idiom:
            tokens.extend(idiom)
            at += len(idiom)
            continue
        if numeral:
            value = _han_value(numeral[0])
            numbers.append(value)
            tokens.append(value)
            at = numeral.end()
            continue
        character = text[at]
        if character in _HAN_NEGATIONS:
            negations.append("not")
        directed |= character in _HAN_DIRECTIONS
        if character not in _HAN_GLUE:
            tokens.append(character)
        at += 1
    return directed


def _han_value(text: str) -> str:
    """The value of a numeral, as digits; a text that is none stands for itself."""
    if "半" in text:
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
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
