"""The laboratory's own tokens: one rule for workload, bench, simulated engine and ``/tokenize``.

A token is one CJK character, a piece of at most four characters of any other word, or one
punctuation mark; white space separates and costs nothing. Real vocabularies average near four
characters a token on English and one on Chinese; what matters here is that all parts agree.
"""

from __future__ import annotations

import itertools
import re
import zlib

# Han with its extensions and iteration marks, kana, Hangul syllables.
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_OTHER = rf"[^\W{_CJK}]{{1,4}}|[^\w\s]"
_TOKEN = re.compile(rf"[{_CJK}]|{_OTHER}")
# Finds a run of CJK as itself and every other token as an empty text.
_RUNS = re.compile(rf"([{_CJK}]+)|{_OTHER}")
_ASCII = re.compile(r"(?a:\w{1,4})|[^\w\s]")


def count_tokens(text: str) -> int:
    """Number of tokens of ``text``; texts joined by white space add up.

    Twice as fast as to split and count: a run of CJK is found as one and told by its length.
    """
    if text.isascii():
        return len(_ASCII.findall(text))
    runs = _RUNS.findall(text)
    return len(runs) - sum(map(bool, runs)) + len("".join(runs))


def split_tokens(text: str) -> list[str]:
    """The tokens of ``text`` as text."""
    return _TOKEN.findall(text)


def tokenize(text: str) -> list[int]:
    """A 32-bit id for each token: the same piece has the same id in every process.

    Found one by one, so that other threads get their turn in long texts.
    """
    crc32 = zlib.crc32
    return [crc32(found[0].encode("utf-8", "surrogatepass")) for found in _TOKEN.finditer(text)]


def first_tokens(text: str, count: int) -> str:
    """``text`` up to the end of its token number ``count``; all of it when it has fewer."""
    if count <= 0:
        return ""
    found = next(itertools.islice(_TOKEN.finditer(text), count - 1, None), None)
    return text if found is None else text[: found.end()]
