"""Text to terms: one analysis for documents and queries, Chinese and English.

Everything a term may be is decided here, so that a query is data: it is cut into terms and never
parsed. Width, Traditional characters, numbers and units are folded first. Han runs give dictionary
words with their sub-words, character pairs, and single characters; other scripts give words, with
identifiers kept whole and split. Caches have a spelling of their own that merges less: what is
found alike need not be answered alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from importlib.metadata import version

import rjieba
import tantivy

from forebay.folding import simplified
from forebay.retrieval.identifiers import DECIMAL, pieces, spellings, unhyphened
from forebay.retrieval.quantities import joined, scaled

ANALYSIS_VERSION = f"2.{version('opencc')}"
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
        dictionary is of Simplified Chinese, pairs carry names and new words.
        """
        text = joined(fold(text))
        runs = _RUN.findall(text)
        return [*self._cut(runs), *scaled(text), *unhyphened(runs)]

    def query(self, text: str) -> list[str]:
        """Return the distinct terms to look for, in order of first appearance."""
        text = joined(fold(text))
        return list(dict.fromkeys((*self._cut(_RUN.findall(text)), *scaled(text))))

    def _cut(self, runs: Iterable[str]) -> list[str]:
        terms: list[str] = []
        known = self._words.get
        for run in runs:
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

    def _expand(self, run: str) -> tuple[str, ...]:
        known = self._forms(run)
        if len(self._words) >= _CACHE_ENTRIES_MAX:
            self._words.clear()
        self._words[run] = known
        return known

    def _forms(self, run: str) -> tuple[str, ...]:
        run = run.replace("’", "'")
        run = run[:-2] if run.endswith(("'s", "'S")) else run
        whole = _strip_marks(run).lower()
        forms = [whole]
        if not DECIMAL.fullmatch(run):
            for part in _PART.findall(run):
                forms += [_strip_marks(piece).lower() for piece in pieces(part)]
            forms += spellings(whole)
        kept = [form[:_TERM_CHARACTERS_MAX] for form in dict.fromkeys(forms) if form]
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
    """Fold full-width, compatibility and Traditional characters; case is kept for identifiers."""
    if text.isascii():
        return text
    return simplified(unicodedata.normalize("NFKC", text))


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
