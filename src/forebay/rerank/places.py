"""Where words begin in the texts of candidates, looked through all at once.

A Latin word of a query is found where a word begins with it, a Han word wherever it stands. The
texts stand in one row of 16-bit characters; one table folds each character and tells what it is.
Nothing is kept of a chunk, since looking into one costs less than looking it up.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.kernel.documents import ChunkRow

FIRST_HAN = "\u3400"
OCCURRENCES_MAX = 8
SPREAD = 1 << 14
"""Texts stand this far apart in ``Found.at``; longer than any text."""
NAME_MIN = 4
"""Shorter titles name nothing; the first four characters of a name are what is looked for."""

_CHARACTERS_MAX = 4000
_FOLDED_MAX = 16_000
_HEAD = 8
_APART = "\0" * _HEAD
"""As long as what is read where a word begins, so that nothing reaches into the next text."""
_BRACKETS = re.compile(r"\s*\(.*?\)\s*$")
_BEFORE = re.compile(r"^[\W_]+")
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_LETTER_BEYOND, _ELSE_BEYOND = "\u0101", "\uffff"
"""What stands for characters beyond 16 bits: a letter that no word of a query has, and none."""
_TABLE = 1 << 16
_ALL, _ALL_BITS, _BYTE = np.arange(_TABLE, dtype=np.uint16), np.uint16(_TABLE - 1), np.uint16(8)
_SPOKEN, _HAN, _IN_CONTEXT = (np.uint8(1 << bit) for bit in range(3))
_SIGMA = 0x3A3
_JAMO = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
_TITLES_KEPT = 1024
_MIX = np.uint64(0x9E3779B97F4A7C15)

Codes = npt.NDArray[np.uint16]
Kinds = npt.NDArray[np.uint8]
Heads = npt.NDArray[np.uint64]
Where = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


class Named(msgspec.Struct, frozen=True):
    """A folded title, and what of it other chunks would write."""

    title: str
    name: str


class Found(msgspec.Struct, frozen=True):
    """Occurrences by row and place, at most eight of a word in a row.

    ``at`` counts from ``SPREAD`` times the row.
    """

    row: Where
    at: npt.NDArray[np.int64]
    unit: Where


class Texts:
    """The candidates' titles, headings and texts, folded, in one row."""

    def __init__(self, chunks: Sequence[ChunkRow]) -> None:
        self.named = [named(chunk.title) for chunk in chunks]
        self._starts, self._codes, kinds = _told([_said(chunk) for chunk in chunks])
        begins = kinds & (_SPOKEN | _HAN)
        begins[1:] &= ~(kinds[:-1] & _SPOKEN)
        self._begins: Where = (begins != 0).nonzero()[0]
        self._firsts = self._codes[self._begins]

    def find(self, units: Sequence[str]) -> Found:
        """Where each of ``units`` is."""
        heads = _heads_of(units)
        at = self._beginning(heads)
        # Of those, the few whose second character is some unit's, too.
        table = np.zeros(_TABLE, np.bool_)
        table[heads[:, 0] ^ heads[:, 1] << _BYTE] = True
        for alone in heads[heads[:, 1] == 0, 0]:
            table[(_ALL << _BYTE) ^ alone] = True
        at = at[table.take(self._codes[at] ^ self._codes[at + 1] << _BYTE)]
        at, unit = self._going_on(at, units, heads)
        row = self._starts.searchsorted(at, side="right") - 1
        return _first_few(row, at - self._starts[row] + row * SPREAD, unit)

    def naming(self, names: Sequence[str]) -> set[tuple[str, int]]:
        """Which of ``names`` (of ``NAME_MIN`` characters or more) which rows hold."""
        heads = _heads_of(names)
        four, eight = heads.view(np.uint64).T
        at = self._beginning(heads)
        at = at[_table_of(four).take(_mixed(self._numbers(at, NAME_MIN)[:, 0]))]
        # Many words begin as some name does: where names are long, four more characters tell.
        long = heads[:, -1] != 0
        first, second = self._numbers(at, _HEAD).T
        maybe = _table_of((four ^ _mixed(eight))[long]).take(_mixed(first ^ _mixed(second)))
        maybe |= _table_of(four[~long]).take(_mixed(first))
        at, which = self._going_on(at[maybe], names, heads)
        rows = self._starts.searchsorted(at, side="right") - 1
        return {(names[name], row) for name, row in zip(which.tolist(), rows.tolist(), strict=True)}

    def _beginning(self, heads: Codes) -> Where:
        """Where something begins with the first character of one of ``heads``."""
        first = np.zeros(_TABLE, np.bool_)
        first[heads[:, 0]] = True
        at: Where = self._begins[first.take(self._firsts)]
        return at

    def _numbers(self, at: Where, characters: int) -> Heads:
        """The ``characters`` from each place on, four to a number."""
        count, size = len(self._codes) - characters + 1, 2 * characters
        reading = np.ndarray((count,), f"V{size}", buffer=self._codes, strides=(2,))
        return reading[at].view(np.uint64).reshape(-1, characters // 4)

    def _going_on(self, at: Where, words: Sequence[str], heads: Codes) -> tuple[Where, Where]:
        """At which of ``at`` which word stands."""
        found, values = self._numbers(at, _HEAD), heads.view(np.uint64)
        masks = ((heads != 0) * _ALL_BITS).view(np.uint64)
        alike = (found[:, :1] & masks[:, 0]) == values[:, 0]
        alike &= (found[:, 1:] & masks[:, 1]) == values[:, 1]
        hit, which = alike.nonzero()
        at = at[hit]
        long = np.array([len(word) > _HEAD for word in words])[which]
        if long.any():
            kept, said = ~long, self._codes.tobytes()
            coded = [word.encode("utf-16-le", "surrogatepass") for word in words]
            for one in long.nonzero()[0].tolist():
                kept[one] = said.startswith(coded[which[one]], 2 * int(at[one]))
            at, which = at[kept], which[kept]
        return at, which


@functools.lru_cache(_TITLES_KEPT)
def named(title: str) -> Named:
    """The name in a title: without what stands before it or behind it in brackets."""
    said = name = _by_library(title[:_CHARACTERS_MAX])
    if ")" in name:
        name = _BRACKETS.sub("", name)
    return Named(said, name if name[:1].isalnum() else _BEFORE.sub("", name))


def folded(text: str) -> str:
    """Full-width and compatibility forms as their usual ones, in small letters."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()


def prepare() -> None:
    """Make the table of characters, which takes a tenth of a second, once."""
    _characters()


def _said(chunk: ChunkRow) -> str:
    said = f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    parts = (chunk.title[:_CHARACTERS_MAX], *chunk.heading_path, said[:_CHARACTERS_MAX])
    return "\n".join(parts)[:_FOLDED_MAX]


def _told(texts: list[str]) -> tuple[Where, Codes, Kinds]:
    """Where each text begins, and of each character its fold and what it is."""
    folds, kinds_of = _characters()
    codes = _joined(texts)
    if len(codes) != sum(map(len, texts)) + _HEAD * len(texts):
        texts = [_by_library(text) if _BEYOND.search(text) else text for text in texts]
        codes = _joined(texts)
    kinds, starts = kinds_of.take(codes), _starts(texts)
    if kinds.max(initial=0) >= _IN_CONTEXT:
        odd = (kinds & _IN_CONTEXT).nonzero()[0]
        for row in set((starts.searchsorted(odd, side="right") - 1).tolist()):
            texts[row] = _by_library(texts[row])
        codes, starts = _joined(texts), _starts(texts)
        kinds = kinds_of.take(codes)
    return starts, folds.take(codes), kinds


def _by_library(text: str) -> str:
    return _in_16_bits(folded(text))[:_FOLDED_MAX]


def _starts(texts: Sequence[str]) -> Where:
    return np.array([0, *[len(text) + _HEAD for text in texts[:-1]]], np.intp).cumsum()


def _joined(texts: Sequence[str]) -> Codes:
    return np.frombuffer(_APART.join((*texts, "")).encode("utf-16-le", "surrogatepass"), "<u2")


def _in_16_bits(text: str) -> str:
    if text.isascii():
        return text
    return _BEYOND.sub(lambda one: _LETTER_BEYOND if one[0].isalnum() else _ELSE_BEYOND, text)


def _first_few(row: Where, at: npt.NDArray[np.int64], unit: Where) -> Found:
    """Occurrences in order, without what comes after the eighth of a word in a row."""
    by_unit = np.argsort(unit.astype(np.uint8), kind="stable")
    group = unit[by_unit] * (int(row[-1]) + 1 if len(row) else 1) + row[by_unit]
    begins = np.concatenate([np.ones(1, np.bool_), group[1:] != group[:-1]])[: len(group)]
    start = np.maximum.accumulate(np.where(begins, np.arange(len(group)), 0))
    kept = np.empty(len(group), np.bool_)
    kept[by_unit] = np.arange(len(group)) - start < OCCURRENCES_MAX
    return Found(row[kept], at[kept], unit[kept])


def _heads_of(words: Sequence[str]) -> Codes:
    """First eight characters of each; 0 where a word is shorter."""
    coded = [word[:_HEAD].encode("utf-16-le", "surrogatepass") for word in words]
    data = b"".join([one.ljust(2 * _HEAD, b"\0") for one in coded])
    return np.frombuffer(data, "<u2").reshape(-1, _HEAD)


def _table_of(keys: Heads) -> Flags:
    table = np.zeros(_TABLE, np.bool_)
    table[_mixed(keys)] = True
    return table


def _mixed(keys: Heads) -> Heads:
    """Sixteen bits that all of a key's bits have a part in (Fibonacci hashing)."""
    mixed: Heads = keys * _MIX >> np.uint64(48)
    return mixed


def _is_han(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"


@functools.cache
def _characters() -> tuple[Codes, Kinds]:
    """By character: its fold, and whether it is a spoken one, or Han; last, whether its fold is
    longer or depends on what stands around it (the fold is itself, then).
    """
    composing = {_SIGMA, *_JAMO}
    for code in range(_TABLE):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            composing.add(int(parts[1], 16))
    folds, kinds = np.zeros(_TABLE, np.uint16), np.zeros(_TABLE, np.uint8)
    for code in range(_TABLE):
        character = chr(code)
        fold = folded(character)
        alone = len(fold) == 1 and ord(fold) < _TABLE
        if not alone or code in composing or unicodedata.combining(character):
            kinds[code] |= _IN_CONTEXT
        kept = fold if alone else character
        folds[code] = ord(kept)
        kinds[code] |= _HAN if _is_han(kept) else _SPOKEN if kept.isalnum() else 0
    return folds, kinds
