"""The tier in memory: bounded in bytes, with a life for each entry, safe against scans.

W-TinyLFU (Einziger, Friedman, Manes: TinyLFU, 2017) with victims summed up over their sizes: new
entries live in a small window by recency; what falls out of it enters the main part only if it was
asked for more often lately than all together whose place it would take. The main part is a
segmented LRU: who was asked for again there is protected. All steps are O(1) amortised.

Everything is counted: keys, values, entries, tables, the sketch. One event loop uses it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from forebay.cache.sketch import FrequencySketch
from forebay.kernel.clock import Clock
from forebay.kernel.errors import ConfigError

V = TypeVar("V")

WINDOW_SHARE = 0.01
PROTECTED_SHARE = 0.8
"""Of the bound, and of what the window leaves; both as in the paper and in Caffeine."""
LARGEST_SHARE = 0.25
"""An entry over this share of the bound would push out too much at once."""
SAMPLES = 10
"""Requests an entry between two halvings of the sketch."""
SKETCH_SHARE = 1 / 128
"""Of the bytes, one a counter: good for entries from half a kilobyte upwards."""

_SMALL_BYTES = 512
_ENTRY_BYTES = sys.getsizeof((None, 0, 0.0)) + sys.getsizeof(1 << 20) + sys.getsizeof(0.0)


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bound of one tier in memory."""

    max_bytes: Annotated[
        int, Meta(description="Memory of the tier, everything counted.", ge=1 << 16)
    ] = 64 << 20


def deep_bytes(value: object) -> int:
    """Memory of a value made of structs, tuples, mappings and plain values that it shares with none
    but what the interpreter itself shares.
    """
    total, left = 0, [value]
    while left:
        value = left.pop()
        kind = type(value)
        if kind is str or kind is bytes or kind is float:
            if value or kind is float:
                total += sys.getsizeof(value)
        elif value is None or kind is bool or (isinstance(value, int) and -5 <= value <= 256):
            continue
        elif isinstance(value, msgspec.Struct):
            total += sys.getsizeof(value)
            left += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, tuple | list | frozenset | set):
            # The interpreter has one empty tuple.
            total += sys.getsizeof(value) if value or kind is not tuple else 0
            left += value
        elif isinstance(value, dict):
            total += sys.getsizeof(value)
            left += value.keys()
            left += value.values()
        else:
            total += sys.getsizeof(value)
    return total


def allocated(size: int) -> int:
    """Bytes that an object of ``size`` bytes takes from the process.

    CPython packs small objects into pages of its own; a larger one comes from the C library, which
    puts eight bytes before it and rounds to sixteen.
    """
    return size if size <= _SMALL_BYTES else (size + 23) & ~15


class MemoryTier(Generic[V]):
    """Values under ``bytes`` keys; ``size_of`` says what a value weighs in bytes.

    ``dropped`` hears of every entry that leaves other than by being replaced or cleared, so that an
    index beside the tier can follow; it must not call back.
    """

    def __init__(
        self,
        settings: MemorySettings,
        clock: Clock,
        size_of: Callable[[V], int] = deep_bytes,
        dropped: Callable[[bytes, V], None] = lambda key, value: None,
    ) -> None:
        self._clock = clock
        self._size_of = size_of
        self._dropped = dropped
        self._sketch = FrequencySketch(int(settings.max_bytes * SKETCH_SHARE))
        self._bound = settings.max_bytes - self._sketch.size_bytes
        if self._bound <= 0:
            raise ConfigError("a tier needs more bytes than its own sketch.", param="max_bytes")
        self._window: _Segment[V] = _Segment()
        self._probation: _Segment[V] = _Segment()
        self._protected: _Segment[V] = _Segment()
        self._segments = (self._window, self._protected, self._probation)
        self._window_bytes = int(self._bound * WINDOW_SHARE)
        self._protected_bytes = int((self._bound - self._window_bytes) * PROTECTED_SHARE)
        self._hits = self._misses = self._expired = self._evictions = self._rejected = 0

    def get(self, key: bytes) -> V | None:
        """The value, unless its life is over."""
        self._sketch.add(key)
        for segment in self._segments:
            entry = segment.entries.get(key)
            if entry is not None:
                break
        else:
            self._misses += 1
            return None
        if entry[2] <= self._clock.now():
            self._drop(segment, key)
            self._expired += 1
            self._misses += 1
            return None
        self._hits += 1
        if segment is self._probation:
            segment.remove(key)
            self._protected.add(key, entry)
            self._demote()
        else:
            segment.entries.move_to_end(key)
        return entry[0]

    def peek(self, key: bytes) -> V | None:
        """The value, unless its life is over; it does not count as asked for."""
        for segment in self._segments:
            entry = segment.entries.get(key)
            if entry is not None:
                return entry[0] if entry[2] > self._clock.now() else None
        return None

    def left_s(self, key: bytes) -> float:
        """How long an entry will be kept at most; 0 when there is none."""
        for segment in self._segments:
            entry = segment.entries.get(key)
            if entry is not None:
                return max(0.0, entry[2] - self._clock.now())
        return 0.0

    def put(self, key: bytes, value: V, life_s: float) -> bool:
        """Keep a value for so long at most; whether it was taken in. An older one is gone."""
        size = sys.getsizeof(key) + allocated(self._size_of(value)) + _ENTRY_BYTES
        if size > self._bound * LARGEST_SHARE or life_s <= 0:
            self.remove(key)
            self._rejected += 1
            return False
        home = self._window
        for segment in self._segments:
            if key in segment.entries:
                segment.remove(key)
                home = segment
                break
        home.add(key, (value, size, self._clock.now() + life_s))
        self._demote()
        while self._window.bytes > self._window_bytes:
            self._leave_window()
        self._fit()
        self._sketch.age_every(SAMPLES * self._entries())
        return any(key in segment.entries for segment in self._segments)

    def remove(self, key: bytes) -> V | None:
        """Forget an entry; what it was."""
        for segment in self._segments:
            if key in segment.entries:
                return self._drop(segment, key)
        return None

    def remove_if(self, judge: Callable[[bytes, V], bool]) -> int:
        """Forget all that ``judge`` condemns; how many. Takes time with the number of entries."""
        condemned = [
            (segment, key)
            for segment in self._segments
            for key, entry in segment.entries.items()
            if judge(key, entry[0])
        ]
        for segment, key in condemned:
            self._drop(segment, key)
        return len(condemned)

    def clear(self) -> None:
        """Forget everything, also how often things were asked for."""
        for segment in self._segments:
            segment.clear()
        self._sketch.clear()

    def items(self) -> Iterator[tuple[bytes, V]]:
        """Keys and values that live; the tier must not change meanwhile."""
        now = self._clock.now()
        for segment in self._segments:
            for key, entry in segment.entries.items():
                if entry[2] > now:
                    yield key, entry[0]

    def statistics(self) -> dict[str, float]:
        """Counters since the start, and what is held now."""
        return {
            "hits": self._hits,
            "misses": self._misses,
            "evictions": self._evictions,
            "expired": self._expired,
            "rejected": self._rejected,
            "bytes": self._held() + self._sketch.size_bytes,
            "entries": self._entries(),
        }

    def _entries(self) -> int:
        return sum(len(segment.entries) for segment in self._segments)

    def _held(self) -> int:
        return sum(segment.bytes + sys.getsizeof(segment.entries) for segment in self._segments)

    def _drop(self, segment: _Segment[V], key: bytes) -> V:
        value = segment.remove(key)[0]
        self._dropped(key, value)
        return value

    def _demote(self) -> None:
        """Who was not asked for again for the longest time is protected no more."""
        while self._protected.bytes > self._protected_bytes:
            key, entry = self._protected.oldest()
            self._protected.remove(key)
            self._probation.add(key, entry)

    def _leave_window(self) -> None:
        """The oldest of the window goes on to the main part, or goes."""
        key, entry = self._window.oldest()
        missing = self._held() - self._bound
        if missing > 0 and not self._beats(key, entry, missing):
            self._drop(self._window, key)
            self._rejected += 1
            return
        self._window.remove(key)
        self._probation.add(key, entry)
        # Its own place is the newest, so these are the ones it was weighed against.
        while self._held() > self._bound and self._probation.oldest()[0] != key:
            self._evict(self._probation)

    def _beats(self, key: bytes, entry: tuple[V, int, float], missing: int) -> bool:
        """Whether an entry was asked for more often than all that must go for it to stay."""
        now = self._clock.now()
        if entry[2] <= now:
            return False
        worth = self._sketch.estimate(key)
        for victim, (_, size, ends_at) in self._probation.entries.items():
            if ends_at > now:
                worth -= self._sketch.estimate(victim)
                if worth <= 0:
                    return False
            missing -= size
            if missing <= 0:
                return True
        return False

    def _fit(self) -> None:
        while self._held() > self._bound:
            self._evict(self._probation or self._protected or self._window)

    def _evict(self, segment: _Segment[V]) -> None:
        self._drop(segment, segment.oldest()[0])
        self._evictions += 1


class _Segment(Generic[V]):
    """Entries (value, bytes, end of life) from the longest unused to the latest used."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.bytes = 0
        self.entries: OrderedDict[bytes, tuple[V, int, float]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def add(self, key: bytes, entry: tuple[V, int, float]) -> None:
        self.entries[key] = entry
        self.bytes += entry[1]

    def remove(self, key: bytes) -> tuple[V, int, float]:
        entry = self.entries.pop(key)
        self.bytes -= entry[1]
        return entry

    def oldest(self) -> tuple[bytes, tuple[V, int, float]]:
        return next(iter(self.entries.items()))

    def clear(self) -> None:
        self.entries.clear()
        self.bytes = 0
