"""Keeps questions about what does not exist away from store and index.

``KnownDocuments`` holds a Bloom filter over the document ids of each knowledge base: "no" is
certain as long as every id is added between its commit and the acknowledgement; "yes" is a guess
that is wrong for a small share of bogus ids. ``Empties`` remembers for a while what found nothing,
until an insert that could fill it. Both are confined to one event loop.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

from forebay.kernel.clock import Clock

W = TypeVar("W")

FALSE_POSITIVES = 0.001
"""Share of bogus ids let through at capacity; F2.9 stops 99.2 %."""
LEAST_CAPACITY = 1024
GROWTH = 2
EMPTY_LIFE_S = 300.0
MOST_EMPTIES = 10_000


class BloomFilter:
    """A set of texts that may answer yes wrongly, never no (Bloom, 1970).

    ``bits = -n ln p / ln(2)^2`` and ``bits / n ln 2`` probes, from two hashes (Kirsch and
    Mitzenmacher, 2006).
    """

    __slots__ = ("_bits", "_probes", "_size", "capacity", "count")

    def __init__(self, capacity: int, false_positives: float = FALSE_POSITIVES) -> None:
        if capacity < 1 or not 0.0 < false_positives < 1.0:
            raise ValueError("a filter needs room for one and a rate between 0 and 1")
        self.capacity = capacity
        self.count = 0
        self._size = math.ceil(-capacity * math.log(false_positives) / math.log(2) ** 2)
        self._probes = max(1, round(self._size / capacity * math.log(2)))
        self._bits = bytearray((self._size + 7) // 8)

    @property
    def size_bytes(self) -> int:
        """Memory of the bits."""
        return len(self._bits)

    def add(self, text: str) -> None:
        """From now on the answer to ``text`` is yes."""
        bits, size = self._bits, self._size
        at, step = _hashes(text)
        fresh = False
        for _ in range(self._probes):
            byte, bit = (at % size) >> 3, 1 << ((at % size) & 7)
            if not bits[byte] & bit:
                bits[byte] |= bit
                fresh = True
            at += step
        self.count += fresh

    def __contains__(self, text: str) -> bool:
        bits, size = self._bits, self._size
        at, step = _hashes(text)
        for _ in range(self._probes):
            place = at % size
            if not bits[place >> 3] & (1 << (place & 7)):
                return False
            at += step
        return True


def _hashes(text: str) -> tuple[int, int]:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1


def filter_of(documents: Iterable[str], count: int) -> BloomFilter:
    """A filter over ``count`` ids with room to grow; it touches nothing else, so threads may."""
    built = BloomFilter(max(LEAST_CAPACITY, GROWTH * count))
    for document in documents:
        built.add(document)
    return built


class KnownDocuments:
    """Which documents may exist, by knowledge base; of one it does not know, any may.

    A filter grows stale as documents go and crowded as they come; then it is built anew:
    ``begin``, list the ids of the record, ``filter_of`` them, ``finish``. What is added meanwhile
    is not lost.
    """

    def __init__(self) -> None:
        self._filters: dict[str, BloomFilter] = {}
        self._building: dict[str, list[list[str]]] = {}
        self._stopped = self._passed = 0

    def may_exist(self, kb: str, document_id: str) -> bool:
        """False: there is certainly no such document."""
        known = self._filters.get(kb)
        if known is None or document_id in known:
            self._passed += 1
            return True
        self._stopped += 1
        return False

    def add(self, kb: str, documents: Iterable[str]) -> None:
        """These were committed, and nobody was told so yet.

        Added before the commit, one could miss a list of ids that is read between the two.
        """
        new = tuple(documents)
        for added in self._building.get(kb, ()):
            added.extend(new)
        known = self._filters.get(kb)
        if known is not None:
            for document in new:
                known.add(document)

    def crowded(self, kb: str) -> bool:
        """Whether it is time to build a filter: there is none, or it holds more than it should."""
        known = self._filters.get(kb)
        return known is None or known.count > known.capacity

    def begin(self, kb: str) -> list[str]:
        """Before the ids are listed; hand what it returns to ``finish`` or to ``give_up``."""
        added: list[str] = []
        self._building.setdefault(kb, []).append(added)
        return added

    def finish(self, kb: str, added: list[str], built: BloomFilter) -> None:
        """Take a filter into use."""
        for document in added:
            built.add(document)
        self.give_up(kb, added)
        self._filters[kb] = built

    def give_up(self, kb: str, added: list[str]) -> None:
        """The ids could not be listed; the old filter, if any, stays."""
        building = [one for one in self._building.get(kb, ()) if one is not added]
        if building:
            self._building[kb] = building
        else:
            self._building.pop(kb, None)

    def drop(self, kb: str) -> None:
        """Know nothing of a knowledge base any more."""
        self._filters.pop(kb, None)

    def statistics(self) -> dict[str, float]:
        """What was stopped and let through, and what it takes."""
        return {
            "stopped": self._stopped,
            "passed": self._passed,
            "documents": sum(known.count for known in self._filters.values()),
            "bytes": sum(known.size_bytes for known in self._filters.values()),
        }


class Empties(Generic[W]):
    """What found nothing lately, by knowledge base; ``W`` says what was wanted.

    At most ``most`` a knowledge base, each for ``life_s``.
    """

    def __init__(
        self, clock: Clock, life_s: float = EMPTY_LIFE_S, most: int = MOST_EMPTIES
    ) -> None:
        self._clock = clock
        self._life_s = life_s
        self._most = most
        self._held: dict[str, OrderedDict[bytes, tuple[W, float]]] = {}
        self._versions: dict[str, int] = {}
        self._hits = self._filled = 0

    def hold(self, kb: str, key: bytes, version: int, wanted: W) -> bool:
        """Note that at ``version`` nothing was found; refused if an insert came after it."""
        if version < self._versions.get(kb, 0):
            return False
        held = self._held.setdefault(kb, OrderedDict())
        held.pop(key, None)  # the order is that of their ends
        self._prune(held)
        if len(held) >= self._most:
            held.popitem(last=False)
        held[key] = (wanted, self._clock.now() + self._life_s)
        return True

    def found(self, kb: str, key: bytes) -> bool:
        """Whether nothing is known to be there."""
        held = self._held.get(kb)
        if held is None:
            return False
        self._prune(held)
        known = key in held
        self._hits += known
        return known

    def inserted(
        self, kb: str, version: int, fills: Callable[[W], bool] = lambda wanted: True
    ) -> int:
        """An insert made ``version``: forget what it could fill; how many were forgotten."""
        self._versions[kb] = max(version, self._versions.get(kb, 0))
        held = self._held.get(kb, OrderedDict())
        filled = [key for key, (wanted, _) in held.items() if fills(wanted)]
        for key in filled:
            del held[key]
        self._filled += len(filled)
        return len(filled)

    def drop(self, kb: str) -> None:
        """Forget a knowledge base; versions of one with its name begin anew."""
        self._held.pop(kb, None)
        self._versions.pop(kb, None)

    def statistics(self) -> dict[str, float]:
        """What is held, how often it answered, and what inserts took away."""
        return {
            "entries": sum(map(len, self._held.values())),
            "hits": self._hits,
            "filled": self._filled,
        }

    def _prune(self, held: OrderedDict[bytes, tuple[W, float]]) -> None:
        now = self._clock.now()
        while held and next(iter(held.values()))[1] <= now:
            held.popitem(last=False)
