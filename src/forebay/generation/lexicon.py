"""Words of Chinese and English that may mean the same, for questions in another language.

A list of common words (``data/lexicon.txt``), no dictionary: of names and rare words it cannot
tell. What it does not know is no evidence for or against a passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources

from forebay.folding import simplified
from forebay.generation.marks import both_ways
from forebay.generation.places import in_other_words
from forebay.generation.terms import Term, stem

Parts = tuple[frozenset[str], ...]
"""What a term consists of: of each part what it may be in the other language; () is unknown."""

Alike = frozenset[str] | re.Pattern[str]
"""Stems, or a pattern of Han words."""

_LONGEST = 4
_KEPT = 4096


class Lexicon:
    """Looks words up in both directions; English ones by their stems."""

    def __init__(
        self, english: Mapping[str, frozenset[str]], han: Mapping[str, frozenset[str]]
    ) -> None:
        self._english = english
        self._han = han

    def of(self, term: Term) -> Parts:
        """What ``term`` may be in the other language: stems for Han, Han words for others."""
        if not term.han:
            found = self._english.get(term.key)
            return () if found is None else (found,)
        whole = self._han.get(term.key)
        return (whole,) if whole is not None else self._cut(term.key)

    def alike(self, term: Term) -> Alike | None:
        """What may stand for ``term`` in its own language: words that share a translation."""
        ours, theirs = (self._han, self._english) if term.han else (self._english, self._han)
        found = {one for word in ours.get(term.key, ()) for one in theirs.get(word, ())}
        found.discard(term.key)
        if not term.han:
            return frozenset(found) or None
        # A single character is part of too many words.
        longer = sorted((one for one in found if len(one) > 1), key=len, reverse=True)
        return re.compile("|".join(longer)) if longer else None

    def _cut(self, key: str) -> Parts:
        """A compound by its longest known parts; () where some of it is not known."""
        parts, at = [], 0
        while at < len(key):
            for size in range(min(_LONGEST, len(key) - at), 0, -1):
                known = self._han.get(key[at : at + size])
                if known is not None:
                    parts.append(known)
                    at += size
                    break
            else:
                return ()
        return tuple(parts)


@cache
def lexicon() -> Lexicon:
    """The list that is shipped, read at its first use: a few milliseconds, half a megabyte."""
    english: dict[str, set[str]] = {}
    han: dict[str, set[str]] = {}
    for theirs, ours in _lines():
        for word in theirs:
            english.setdefault(stem(word), set()).update(ours)
        for word in ours:
            han.setdefault(word, set()).update(map(stem, theirs))
    return Lexicon(
        {word: frozenset(found) for word, found in english.items()},
        {word: frozenset(found) for word, found in han.items()},
    )


@lru_cache(maxsize=_KEPT)
def alike(term: Term) -> Alike | None:
    """What may stand for a term in its own language; None: nothing is known."""
    found = lexicon().alike(term)
    place = in_other_words(term.key) if term.han else ""
    if place and not isinstance(found, frozenset):
        return re.compile(f"{found.pattern}|{place}" if found else place)
    return found


def _lines() -> Iterator[tuple[list[str], list[str]]]:
    file = resources.files("forebay.generation").joinpath("data/lexicon.txt")
    for line in simplified(file.read_text("utf-8")).splitlines():
        if line and line[0] != "#":
            english, _, han = line.partition("|")
            yield english.split(), han.split()
    yield from both_ways()
