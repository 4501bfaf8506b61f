"""Packed term counts of chunks: what exact scoring needs, and a bounded memory of them."""

from __future__ import annotations

import struct
import zlib
from collections import Counter, OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

_TABLE_SIZE = 1 << 16
_COUNT_MAX = 255
_ENTRY_BYTES = 120
"""About what an entry costs beside its bytes."""


def term_hash(term: str) -> int:
    """Return 32 bits of a term; a collision within one chunk is one in 20 million."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def pack_counts(terms: Sequence[str]) -> bytes:
    """Pack term counts: n little-endian uint32 term hashes, then n uint8 counts (at most 255)."""
    counts = Counter(terms)
    hashes = [term_hash(term) for term in counts]
    return struct.pack(f"<{len(hashes)}I", *hashes) + bytes(
        [min(_COUNT_MAX, count) for count in counts.values()]
    )


def term_frequencies(packed: Sequence[bytes], terms: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return a ``len(packed)`` x ``len(terms)`` matrix of counts from packed term counts."""
    matrix = np.zeros((len(packed), len(terms)))
    if not terms:
        return matrix
    sizes = [len(data) // 5 for data in packed]
    both = list(zip(packed, sizes, strict=True))
    hashes = np.frombuffer(b"".join([data[: 4 * size] for data, size in both]), "<u4")
    counts = np.frombuffer(b"".join([data[4 * size :] for data, size in both]), np.uint8)
    wanted = np.asarray([term_hash(term) for term in terms], "<u4")
    order = np.argsort(wanted)
    # Nearly all hashes are of terms nobody asked for: a table of their low bits drops those.
    table = np.zeros(_TABLE_SIZE, np.bool_)
    table[wanted % _TABLE_SIZE] = True
    maybe = np.flatnonzero(table[hashes & np.uint32(_TABLE_SIZE - 1)])
    place = np.searchsorted(wanted, hashes[maybe], sorter=order)
    place = order[np.minimum(place, len(wanted) - 1)]
    held = wanted[place] == hashes[maybe]
    rows = np.searchsorted(np.cumsum(sizes), maybe[held], side="right")
    np.add.at(matrix, (rows, place[held]), counts[maybe[held]])
    return matrix


class CountsCache:
    """Least-recently-used packed counts by chunk id, bounded in bytes; a chunk never changes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, chunk_ids: Sequence[int]) -> list[bytes | None]:
        """Return what is known of each chunk."""
        with self._lock:
            found = [self._entries.get(chunk_id) for chunk_id in chunk_ids]
            for chunk_id, data in zip(chunk_ids, found, strict=True):
                if data is not None:
                    self._entries.move_to_end(chunk_id)
            return found

    def put(self, chunk_id: int, data: bytes) -> None:
        """Remember one chunk's counts."""
        with self._lock:
            if chunk_id in self._entries:
                return
            self._entries[chunk_id] = data
            self._bytes += len(data) + _ENTRY_BYTES
            while self._bytes > self._limit:
                _, old = self._entries.popitem(last=False)
                self._bytes -= len(old) + _ENTRY_BYTES
