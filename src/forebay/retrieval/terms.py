"""Text to terms: one analysis for documents and queries, Chinese and English.

Everything a term may be is decided here, so that a query is data: it is cut into terms and never
parsed. Han runs give dictionary words with their sub-words, character pairs, and single
characters; other scripts give words, with identifiers kept whole and split.
"""

from __future__ import annotations

import re
import unicodedata

import rjieba
import tantivy

ANALYSIS_VERSION = 1
"""Part of the index format: raise it whenever a text may give other terms than before."""

_CJK = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = rf"[^\W_{_CJK}]"
_RUN = re.compile(rf"[{_CJK}]+|{_WORD}+(?:[_.,:/@&'’+#\-]+{_WORD}+)*(?:\+\+|#)?", re.UNICODE)
_FIRST_CJK = "\u3005"
_CJK_CHARACTER = re.compile(rf"[{_CJK}]")
_PART = re.compile(r"[^\W_]+", re.UNICODE)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TERM_CHARACTERS_MAX = 64
_STEM_MARK = "~"
_CACHE_ENTRIES_MAX = 65_536


class Analyzer:
    """Cuts text into terms; safe to share between threads.

    The cache of word expansions is an optimisation with a hard bound on entries: natural text
    repeats its words, and expansion is the dear part.
    """

    def __init__(self, *, stemming: bool) -> None:
        self._stemming = stemming
        self._stemmer = (
            tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
            .filter(tantivy.Filter.stemmer("english"))
            .build()
        )
        self._words: dict[str, tuple[str, ...]] = {}

    def document(self, text: str) -> list[str]:
        """Return the terms under which ``text`` is found, repeats included.

        Han runs give dictionary words and sub-words, every pair and every single character: the
        dictionary is of Simplified Chinese, pairs carry Traditional, names and new words.
        """
        terms: list[str] = []
        known = self._words.get
        for run in _RUN.findall(fold(text)):
            expanded = known(run)
            if expanded is not None:
                terms += expanded
            elif run[0] >= _FIRST_CJK and _CJK_CHARACTER.match(run):
                terms += [word for word in rjieba.cut_for_search(run) if len(word) > 1]
                terms += [run[i : i + 2] for i in range(len(run) - 1)]
                terms += run
            else:
                terms += self._expand(run)
        return terms

    def query(self, text: str) -> list[str]:
        """Return the distinct terms to look for, in order of first appearance."""
        return list(dict.fromkeys(self.document(text)))

    def _expand(self, run: str) -> tuple[str, ...]:
        known = self._forms(run)
        if len(self._words) >= _CACHE_ENTRIES_MAX:
            self._words.clear()
        self._words[run] = known
        return known

    def _forms(self, run: str) -> tuple[str, ...]:
        whole = _strip_marks(_THOUSANDS.sub("", run)).lower()
        whole = whole.replace("’", "'").removesuffix("'s")
        parts: list[str] = []
        for part in _PART.findall(run):
            pieces = _CAMEL.findall(part) if _is_camel(part) else [part]
            parts += [_strip_marks(piece).lower() for piece in pieces]
        if "," in run and "".join(parts).isdigit():
            parts = []
        if run.endswith(("'s", "’s", "'S", "’S")):
            parts = parts[:-1]
        forms = dict.fromkeys([whole, *parts] if len(parts) > 1 else [whole, *parts[:1]])
        kept = [form[:_TERM_CHARACTERS_MAX] for form in forms if form]
        return tuple(dict.fromkeys([*kept, *self._stems(kept)]))

    def _stems(self, words: list[str]) -> list[str]:
        """Stems go beside the words, marked: a word itself is worth more than its family."""
        if not self._stemming:
            return []
        stems = [
            self._stemmer.analyze(word)
            for word in words
            if len(word) > 3 and word.isascii() and word.isalpha()
        ]
        return [_STEM_MARK + found[0] for found in stems if found]


_LANGUAGE_CHARACTERS = 2_000


def fold(text: str) -> str:
    """Fold full-width and compatibility characters; case is kept for identifiers."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def is_chinese(text: str) -> bool:
    """Whether CJK characters make up a good part of the letters of ``text``, by its beginning.

    Bounded: counting the letters of 2 MB held the interpreter, and so everybody, for 50 ms.
    """
    text = text[:_LANGUAGE_CHARACTERS]
    cjk = len(_CJK_CHARACTER.findall(text))
    letters = sum(map(str.isalpha, text))
    return cjk > 0 and cjk * 4 >= letters


def _strip_marks(word: str) -> str:
    """Drop accents, so that "café" and "cafe" meet; other scripts keep their marks."""
    if word.isascii():
        return word
    return "".join(
        c for c in unicodedata.normalize("NFKD", word) if ord(c) < 0x300 or ord(c) > 0x36F
    )


def _is_camel(part: str) -> bool:
    return not (part.islower() or part.isupper() or part.istitle() or not part.isascii())
