"""Packed facts of chunks: what exact scoring needs, and a bounded memory of them."""

from __future__ import annotations

import functools
import struct
import zlib
from collections import Counter, OrderedDict
from collections.abc import Sequence
from threading import Lock

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_TABLE_SIZE = 1 << 16
_COUNT_MAX = 255
_TERM_BYTES = 5
_TAIL = struct.Struct("<I?")
"""Number of terms with repeats, and whether the document is Chinese; as long as one term."""
_TAILS = np.dtype([("length", "<u4"), ("chinese", "u1")])
_ENTRY_BYTES = 120
"""About what an entry costs beside its bytes."""
_FULL = 0.95
_ROUNDS, _STRAYS = 64, 4096
"""Entries that are let stay in a row before one goes all the same; chunks asked for that have no
entry, at most.
"""


class Facts(msgspec.Struct, frozen=True):
    """One row per chunk: counts of the terms asked for, lengths in terms, Chinese or not."""

    frequencies: Floats
    lengths: Floats
    chinese: Mask

    def rows(self, chosen: Mask) -> Facts:
        """Return the rows of ``chosen`` chunks."""
        return Facts(self.frequencies[chosen], self.lengths[chosen], self.chinese[chosen])

    def with_more(self, more: Facts) -> Facts:
        """Return these rows and those of ``more``."""
        return Facts(
            np.concatenate([self.frequencies, more.frequencies]),
            np.concatenate([self.lengths, more.lengths]),
            np.concatenate([self.chinese, more.chinese]),
        )


def term_hash(term: str) -> int:
    """Return 32 bits of a term; a collision within one chunk is one in 20 million."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


asked_hash = functools.lru_cache(1 << 16)(term_hash)
"""The same for terms of questions, which come several times in a search."""


def pack_facts(terms: Sequence[str], *, chinese: bool) -> bytes:
    """Pack n little-endian uint32 term hashes, n uint8 counts (at most 255), length, language."""
    counts = Counter(terms)
    hashes = [term_hash(term) for term in counts]
    return (
        struct.pack(f"<{len(hashes)}I", *hashes)
        + bytes([min(_COUNT_MAX, count) for count in counts.values()])
        + _TAIL.pack(len(terms), chinese)
    )


def packed_hashes(packed: Sequence[bytes]) -> Hashes:
    """Return the term hashes of all ``packed`` chunks, one per chunk and term."""
    return np.frombuffer(
        b"".join([data[: 4 * (len(data) // _TERM_BYTES - 1)] for data in packed]), "<u4"
    )


def packed_terms(data: bytes) -> int:
    """Return how many different terms one packed chunk has; 0 without any facts."""
    return max(0, len(data) // _TERM_BYTES - 1)


def packed_counts(data: bytes) -> bytes:
    """Return one byte per term of one packed chunk, in the order of its hashes."""
    return data[4 * (len(data) // _TERM_BYTES - 1) : -_TERM_BYTES]


def packed_length(data: bytes) -> int:
    """Return the length in terms of one packed chunk."""
    length: int = _TAIL.unpack_from(data, len(data) - _TERM_BYTES)[0]
    return length


def packed_chinese(data: bytes) -> bool:
    """Return whether one packed chunk is of a Chinese document."""
    return data[-1] != 0


class FactsTable:
    """Packed facts of some chunks, side by side."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        terms = np.array(list(map(len, packed)), np.int64) // _TERM_BYTES - 1
        middles = (4 * terms).tolist()
        self._ends = terms.cumsum()
        self.hashes = np.frombuffer(
            b"".join([data[:middle] for data, middle in zip(packed, middles, strict=True)]), "<u4"
        )
        self._counts = np.frombuffer(
            b"".join(
                [data[middle:-_TERM_BYTES] for data, middle in zip(packed, middles, strict=True)]
            ),
            np.uint8,
        )
        tails = np.frombuffer(b"".join([data[-_TERM_BYTES:] for data in packed]), _TAILS)
        self._lengths = tails["length"].astype(np.float64)
        self._chinese = tails["chinese"] != 0

    def of(self, terms: Sequence[str]) -> Facts:
        """Return what is known of the chunks and ``terms``."""
        shape = (len(self._lengths), len(terms))
        if not terms or not len(self.hashes):
            return Facts(np.zeros(shape), self._lengths, self._chinese)
        at, place = self._held(np.array([asked_hash(term) for term in terms], np.uint32))
        cell = self._ends.searchsorted(at, side="right") * len(terms) + place
        summed = np.bincount(cell, self._counts[at], shape[0] * shape[1])
        frequencies = summed.astype(np.float64, copy=False).reshape(shape)
        return Facts(frequencies, self._lengths, self._chinese)

    def _held(self, wanted: Hashes) -> tuple[Places, Places]:
        """Return where hashes are ``wanted`` ones, and which."""
        order = wanted.argsort()
        # Nearly all hashes are of terms nobody asked for: a table of their low bits drops those.
        table = np.zeros(_TABLE_SIZE, np.bool_)
        table[wanted % _TABLE_SIZE] = True
        maybe = table[self.hashes.astype(np.uint16)].nonzero()[0]
        asked = self.hashes[maybe]
        place = order[np.minimum(wanted[order].searchsorted(asked), len(wanted) - 1)]
        held = wanted[place] == asked
        return maybe[held], place[held]


def unpack_facts(packed: Sequence[bytes], terms: Sequence[str]) -> Facts:
    """Return what is known of ``packed`` chunks and the terms asked for."""
    return FactsTable(packed).of(terms)


class FactsCache:
    """Packed facts by chunk id, bounded in bytes; a chunk never changes.

    What was asked for since its turn to go came last stays for another round (CLOCK): to note that
    costs a tenth of keeping an order by use.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, bytes] = OrderedDict()
        self._asked: set[int] = set()
        self._lock = Lock()

    @property
    def in_use(self) -> bool:
        """Whether anything was asked for so far."""
        return bool(self._entries)

    @property
    def has_room(self) -> bool:
        """Whether more can be remembered without forgetting what was used."""
        return self._bytes < _FULL * self._limit

    def get(self, chunk_ids: Sequence[int]) -> list[bytes | None]:
        """Return what is known of each chunk."""
        with self._lock:
            if not self.has_room:
                self._asked.update(chunk_ids)
            return list(map(self._entries.get, chunk_ids))

    def put(self, chunk_id: int, data: bytes) -> None:
        """Remember one chunk's facts."""
        with self._lock:
            if chunk_id in self._entries:
                return
            if len(self._asked) > len(self._entries) + _STRAYS:
                self._asked.intersection_update(self._entries)
            self._entries[chunk_id] = data
            self._bytes += len(data) + _ENTRY_BYTES
            while self._bytes > self._limit:
                self._drop_one()

    def _drop_one(self) -> None:
        oldest = next(iter(self._entries))
        for _ in range(_ROUNDS):
            if oldest not in self._asked:
                break
            self._asked.discard(oldest)
            self._entries.move_to_end(oldest)
            oldest = next(iter(self._entries))
        self._bytes -= len(self._entries.pop(oldest)) + _ENTRY_BYTES
