"""Where words begin in the texts of candidates: made once a chunk, looked through all at once.

A Latin word of a query is found where a word begins with it, a Han word wherever it stands. What is
kept of a chunk is its folded text, where words begin in it with their first eight characters as one
number, and where Han characters stand with the pairs they begin.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.kernel.documents import ChunkRow

FIRST_HAN = "\u3400"
OCCURRENCES_MAX = 8
SPREAD = 1 << 14
"""Texts stand this far apart when places of all are put in one row; longer than any text."""

_CHARACTERS_MAX = 4000
_FOLDED_MAX = 16_000
_HEAD = 8
_APART = "\0" * _HEAD
_ENTRY_BYTES = 1200
"""About what an entry costs beside its arrays and texts."""
_BRACKETS = re.compile(r"\s*\(.*?\)\s*$")
_BEFORE = re.compile(r"^[\W_]+")
_BMP = 0x10000
_SPOKEN, _HAN = 1, 2
_TABLE = 1 << 16

Ints = npt.NDArray[np.int32]
Heads = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.uint32]
Where = npt.NDArray[np.intp]


class ChunkPlaces(msgspec.Struct, frozen=True):
    """One chunk's folded text and where its words are.

    ``words`` are offsets of words' first characters, ``heads`` their first eight as bytes (255:
    not ASCII, or no more text: 0); ``han`` and ``pairs`` (two UTF-16 units) the same of Han text.
    ``name`` is the title as other chunks would write it.
    """

    text: str
    title: str
    name: str
    name_key: int
    words: Ints
    heads: Heads
    han: Ints
    pairs: Pairs

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        arrays = 12 * len(self.words) + 8 * len(self.han)
        return arrays + len(self.text) * (1 if self.text.isascii() else 2) + _ENTRY_BYTES


class Found(msgspec.Struct, frozen=True):
    """Occurrences by row and place, at most eight of a word in a row.

    ``at`` counts from ``SPREAD`` times the row.
    """

    row: Where
    at: npt.NDArray[np.int64]
    unit: Where


class PlacesCache:
    """Least-recently-used places by chunk id, bounded in bytes; a chunk that says else is new."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, tuple[ChunkRow, ChunkPlaces]] = OrderedDict()
        self._lock = Lock()

    def of(self, chunks: Sequence[ChunkRow]) -> list[ChunkPlaces]:
        """The places of each chunk."""
        with self._lock:
            kept = [self._entries.get(chunk.chunk_id) for chunk in chunks]
            for chunk, entry in zip(chunks, kept, strict=True):
                if entry is not None:
                    self._entries.move_to_end(chunk.chunk_id)
        places = [
            entry[1] if entry is not None and _same(entry[0], chunk) else None
            for chunk, entry in zip(chunks, kept, strict=True)
        ]
        unknown = [chunk for chunk, one in zip(chunks, places, strict=True) if one is None]
        made = iter(self._made(unknown))
        return [next(made) if one is None else one for one in places]

    def statistics(self) -> dict[str, float]:
        """Chunks kept and about how many bytes they take."""
        with self._lock:
            return {"chunks": float(len(self._entries)), "bytes": float(self._bytes)}

    def _made(self, chunks: Sequence[ChunkRow]) -> list[ChunkPlaces]:
        places = places_of_all(chunks)
        with self._lock:
            for chunk, one in zip(chunks, places, strict=True):
                old = self._entries.pop(chunk.chunk_id, None)
                self._bytes -= old[1].nbytes if old is not None else 0
                self._entries[chunk.chunk_id] = (chunk, one)
                self._bytes += one.nbytes
            while self._bytes > self._limit:
                _, (_, gone) = self._entries.popitem(last=False)
                self._bytes -= gone.nbytes
        return places


def places_of(chunk: ChunkRow) -> ChunkPlaces:
    """What is kept of a chunk."""
    return places_of_all([chunk])[0]


def places_of_all(chunks: Sequence[ChunkRow]) -> list[ChunkPlaces]:
    """What is kept of each chunk; 10 to 30 us for 1,000 characters, many at once."""
    if not chunks:
        return []
    titles, texts = zip(*map(_title_and_text, chunks), strict=True)
    # Apart by more than a head, so that nothing reaches from one text into the next.
    codes = np.frombuffer(_APART.join((*texts, "")).encode("utf-32-le", "surrogatepass"), "<u4")
    starts = np.array([0, *(len(text) + _HEAD for text in texts)]).cumsum()
    kinds = _kinds(codes)
    spoken = kinds == _SPOKEN
    begins = spoken.copy()
    begins[1:] &= ~spoken[:-1]
    words = begins.nonzero()[0]
    low = np.minimum(codes, 255).astype(np.uint8)
    heads = low[words[:, None] + np.arange(_HEAD)].view("<u8").reshape(-1)
    stands = (kinds == _HAN).nonzero()[0]
    after = codes[stands + 1]
    pairs = codes[stands] | np.where(after < _BMP, after, 0) << np.uint32(16)
    word_ends = words.searchsorted(starts).tolist()
    han_ends = stands.searchsorted(starts).tolist()
    made = []
    for row, (title, text, start) in enumerate(zip(titles, texts, starts.tolist(), strict=False)):
        own, own_han = slice(*word_ends[row : row + 2]), slice(*han_ends[row : row + 2])
        name = _BEFORE.sub("", _BRACKETS.sub("", title))
        made.append(
            ChunkPlaces(
                text,
                title,
                name,
                _name_key(name),
                (words[own] - start).astype(np.int32),
                heads[own].copy(),
                (stands[own_han] - start).astype(np.int32),
                pairs[own_han].copy(),
            )
        )
    return made


def _title_and_text(chunk: ChunkRow) -> tuple[str, str]:
    """Both folded and cut; the text begins with the title."""
    title = folded(chunk.title)[:_CHARACTERS_MAX]
    said = f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    parts = (title, *map(folded, chunk.heading_path), folded(said[:_CHARACTERS_MAX]))
    return title, "\n".join(parts)[:_FOLDED_MAX]


def folded(text: str) -> str:
    """Full-width and compatibility forms as their usual ones, in small letters."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()


class Texts:
    """The candidates' places in one row."""

    def __init__(self, chunks: Sequence[ChunkPlaces]) -> None:
        self.chunks = chunks
        self._words = _joined([one.words for one in chunks])
        self._heads = np.concatenate([one.heads for one in chunks])
        self._han = _joined([one.han for one in chunks])
        self._pairs = np.concatenate([one.pairs for one in chunks])

    def find(self, units: Sequence[str]) -> Found:
        """Where each of ``units`` is."""
        latin = [at for at, unit in enumerate(units) if unit[0] < FIRST_HAN]
        other = [at for at, unit in enumerate(units) if unit[0] >= FIRST_HAN]
        at, unit = self._latin(units, latin)
        at_han, unit_han = self._in_han(units, other)
        at = np.concatenate([at, at_han])
        unit = np.concatenate([unit, unit_han])
        order = np.argsort(at, kind="stable")
        return _first_few(at[order], unit[order])

    def naming(self, names: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Which of ``names`` (four characters or more, with their keys) which rows hold."""
        latin = [(name, key) for name, key in names if not _is_han(name[0])]
        other = [(name, key) for name, key in names if _is_han(name[0])]
        found: set[tuple[str, int]] = set()
        for length in {min(len(name), _HEAD) for name, _ in latin}:
            some = [one for one in latin if min(len(one[0]), _HEAD) == length]
            heads = self._heads & np.uint64((1 << 8 * length) - 1)
            found |= self._holding(some, heads, self._words)
        if other and len(self._pairs):
            table = np.zeros(_TABLE, np.bool_)
            firsts = np.array([key & 0xFFFFFFFF for _, key in other], np.uint32)
            table[_mixed(firsts.astype(np.uint64))] = True
            maybe = table[_mixed(self._pairs.astype(np.uint64))].nonzero()[0]
            second = np.minimum(maybe + 2, len(self._pairs) - 1)
            follows = self._han[second] - self._han[maybe] == 2
            after = np.where(follows, self._pairs[second], 0).astype(np.uint64)
            heads = self._pairs[maybe] | after << np.uint64(32)
            found |= self._holding(other, heads, self._han[maybe])
        return found

    def _latin(
        self, units: Sequence[str], chosen: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], Where]:
        if not chosen:
            return _NOWHERE, _NONE
        own = [units[at] for at in chosen]
        table = np.zeros(_TABLE, np.bool_)
        for unit in own:
            first = ord(unit[0])
            if len(unit) == 1:
                table[first::256] = True
            else:
                table[first | min(ord(unit[1]), 255) << 8] = True
        maybe = table[self._heads.astype(np.uint16)].nonzero()[0]
        values = np.array([_head_of(unit) for unit in own], np.uint64)
        masks = np.array([(1 << 8 * min(len(unit), _HEAD)) - 1 for unit in own], np.uint64)
        hit, which = ((self._heads[maybe][:, None] & masks) == values).nonzero()
        at = self._words[maybe[hit]]
        long = np.array([len(unit) > _HEAD for unit in own])
        if long.any():
            texts = [one.text for one in self.chunks]
            kept = np.ones(len(at), np.bool_)
            for place in long[which].nonzero()[0].tolist():
                row, offset = divmod(int(at[place]), SPREAD)
                kept[place] = texts[row].startswith(own[which[place]], offset)
            at, which = at[kept], which[kept]
        return at, np.array(chosen, np.intp)[which]

    def _in_han(
        self, units: Sequence[str], chosen: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], Where]:
        if not chosen or not len(self._pairs):
            return _NOWHERE, _NONE
        own = [units[at] for at in chosen]
        first = np.zeros(_TABLE, np.bool_)
        second = np.zeros(_TABLE, np.bool_)
        first[[ord(unit[0]) for unit in own]] = True
        second[[ord(unit[1]) for unit in own if len(unit) > 1]] = True
        if any(len(unit) == 1 for unit in own):
            second[:] = True
        maybe = first[self._pairs.astype(np.uint16)].nonzero()[0]
        maybe = maybe[second[self._pairs[maybe] >> np.uint32(16)]]
        values = np.array([_pair_of(unit) for unit in own], np.uint32)
        masks = np.array([0xFFFF if len(unit) == 1 else 0xFFFFFFFF for unit in own], np.uint32)
        hit, which = ((self._pairs[maybe][:, None] & masks) == values).nonzero()
        return self._han[maybe[hit]], np.array(chosen, np.intp)[which]

    def _holding(
        self, names: Sequence[tuple[str, int]], heads: Heads, places: npt.NDArray[np.int64]
    ) -> set[tuple[str, int]]:
        """By a table of mixed keys, then by the keys, then by comparing, once a name and row."""
        wanted: dict[int, list[str]] = {}
        for name, key in names:
            wanted.setdefault(key, []).append(name)
        table = np.zeros(_TABLE, np.bool_)
        table[_mixed(np.array(list(wanted), np.uint64))] = True
        maybe = table[_mixed(heads)].nonzero()[0]
        rows = (places[maybe] // SPREAD).tolist()
        return {
            (name, row)
            for key, row in set(zip(heads[maybe].tolist(), rows, strict=True))
            for name in wanted.get(key, ())
            if _holds(self.chunks[row].text, name)
        }


_NOWHERE = np.zeros(0, np.int64)
_NONE = np.zeros(0, np.intp)


def _first_few(at: npt.NDArray[np.int64], unit: Where) -> Found:
    """Occurrences in order, without what comes after the eighth of a word in a row."""
    row = at // SPREAD
    by_unit = np.argsort(unit.astype(np.uint8), kind="stable")
    group = unit[by_unit] * (int(row[-1]) + 1 if len(row) else 1) + row[by_unit]
    begins = np.concatenate([np.ones(1, np.bool_), group[1:] != group[:-1]])[: len(group)]
    start = np.maximum.accumulate(np.where(begins, np.arange(len(group)), 0))
    kept = np.empty(len(group), np.bool_)
    kept[by_unit] = np.arange(len(group)) - start < OCCURRENCES_MAX
    return Found(row[kept], at[kept], unit[kept])


def _joined(offsets: Sequence[Ints]) -> npt.NDArray[np.int64]:
    apart = np.repeat(np.arange(len(offsets)) * SPREAD, [len(one) for one in offsets])
    joined: npt.NDArray[np.int64] = np.concatenate(offsets) + apart
    return joined


def _head_of(text: str) -> int:
    head = text[:_HEAD]
    if head.isascii():
        return int.from_bytes(head.encode(), "little")
    return int.from_bytes(bytes(min(ord(c), 255) for c in head), "little")


def _name_key(name: str) -> int:
    """What ``Texts.naming`` finds places by: eight bytes, or two pairs where text is Han."""
    if not name or not _is_han(name[0]):
        return _head_of(name)
    second = _pair_of(name[2:4]) if len(name) > 2 and _is_han(name[2]) else 0
    return _pair_of(name) | second << 32


def _holds(text: str, name: str) -> bool:
    """Whether ``name`` begins a word of ``text``, or is Han and stands there."""
    at = text.find(name)
    while at > 0 and not _is_han(name[0]):
        before = text[at - 1]
        if not before.isalnum() or _is_han(before):
            break
        at = text.find(name, at + 1)
    return at >= 0


def _pair_of(text: str) -> int:
    after = ord(text[1]) if len(text) > 1 and ord(text[1]) < _BMP else 0
    return ord(text[0]) | after << 16


def _mixed(keys: Heads) -> Heads:
    """Sixteen bits that all of a key's bits have a part in (Fibonacci hashing)."""
    mixed: Heads = keys * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(48)
    return mixed


def _is_han(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"


def _same(one: ChunkRow, two: ChunkRow) -> bool:
    """Whether two rows of one id say the same."""
    return one is two or (
        one.text == two.text
        and one.title == two.title
        and one.context == two.context
        and one.heading_path == two.heading_path
    )


def _kinds(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """What each character is: Han, another of which ``str.isalnum``, or neither."""
    told = _kinds_table()[np.minimum(codes, _BMP - 1)]
    beyond = (codes >= _BMP).nonzero()[0]
    for place in beyond.tolist():
        told[place] = chr(codes[place]).isalnum() * _SPOKEN
    return told


@functools.cache
def _kinds_table() -> npt.NDArray[np.uint8]:
    kinds = [_HAN if _is_han(chr(code)) else chr(code).isalnum() * _SPOKEN for code in range(_BMP)]
    return np.array(kinds, np.uint8)
