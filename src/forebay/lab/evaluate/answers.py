"""Whether an answer says what it should: exact match and F1, by words or by characters.

English is compared by words, without case, punctuation and articles, and F1 counts shared words
(SQuAD). Chinese is compared by characters (words of other scripts whole), and F1 counts the longest
run that both share (CMRC 2018). Of several right answers the best counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_TOKEN = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_JOINED = re.compile(r"(?<=\d)[.,:'](?=\d)|(?<=[^\W\d_])['\u2019](?=[^\W\d_])")
_MARKER = re.compile(r"\s?\[\d{1,3}\]")
_ARTICLES = frozenset(("a", "an", "the"))


def tokens(text: str) -> list[str]:
    """Words in lower case and single Han characters, without punctuation and articles."""
    folded = unicodedata.normalize("NFKC", text).lower()
    # 1,452.4 is one number, and so is the same without its comma; don't is one word.
    joined = _JOINED.sub(lambda mark: "." if mark[0] in ".:" else "", folded)
    found = re.findall(rf"\d+(?:\.\d+)+|{_TOKEN.pattern}", joined)
    return [token for token in found if token not in _ARTICLES]


def without_markers(text: str) -> str:
    """An answer without its ``[n]``."""
    return _MARKER.sub("", text)


def exact_match(said: str, answers: Sequence[str]) -> float:
    """1 when ``said`` is one of ``answers`` but for case, punctuation and articles."""
    own = tokens(said)
    return float(any(own == tokens(answer) for answer in answers))


def f1(said: str, answers: Sequence[str], language: str) -> float:
    """The harmonic mean of precision and recall against the nearest of ``answers``; 0..1."""
    own = tokens(said)
    return max((_f1(own, tokens(answer), language) for answer in answers), default=0.0)


def holds(said: str, answers: Sequence[str], parts: Sequence[str] = ()) -> float:
    """1 when ``said`` contains one of ``answers``, or all of ``parts`` where there are any."""
    own = tokens(said)
    if parts:
        return float(all(_contains(own, tokens(part)) for part in parts))
    return float(any(_contains(own, tokens(answer)) for answer in answers))


def _f1(own: list[str], right: list[str], language: str) -> float:
    if not own or not right:
        return float(own == right)
    if language == "zh":
        matcher = SequenceMatcher(None, right, own, autojunk=False)
        shared = matcher.find_longest_match().size
    else:
        shared = (Counter(own) & Counter(right)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(own), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def _contains(own: list[str], right: list[str]) -> bool:
    size = len(right)
    return size > 0 and any(own[at : at + size] == right for at in range(len(own) - size + 1))
