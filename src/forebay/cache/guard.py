"""Keeps questions about what does not exist away from the record.

A Bloom filter over the names of a knowledge base: "yes" is a guess that is wrong for a small share
of bogus names; "no" is certain, because it is said only by a filter that has everything up to the
version announced last, and what is acknowledged was announced before. One that is behind reads
first what came since. Confined to one event loop but for what fills a filter.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from weakref import WeakValueDictionary

import msgspec

from forebay.kernel.clock import Deadline
from forebay.kernel.errors import ForebayError, NotFound

log = logging.getLogger("forebay.guard")
FALSE_POSITIVES = 0.001
"""Share of bogus names let through at capacity; F2.9 stops 99.2 %."""
LEAST_CAPACITY = 1024
GROWTH = 2


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


def filter_of(names: Iterable[str], count: int) -> BloomFilter:
    """A filter over ``count`` names with room to grow; it touches nothing else, so threads may."""
    built = BloomFilter(max(LEAST_CAPACITY, GROWTH * count))
    for name in names:
        built.add(name)
    return built


class Names(msgspec.Struct, frozen=True):
    """Names that came after some version, up to ``version``."""

    version: int
    names: tuple[str, ...]


class _Known:
    __slots__ = ("filter", "version")

    def __init__(self, built: BloomFilter, version: int) -> None:
        self.filter = built
        self.version = version

    def learn(self, read: Callable[[], Names]) -> None:
        """Take up what came; in a thread: bits are only ever set, and the version comes last."""
        found = read()
        for name in found.names:
            self.filter.add(name)
        self.version = found.version


Record = Callable[[str, int], Names]
"""What came to a kb after a version, 0: all; blocking."""
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


class NameGuard:
    """Says of names that they certainly do not exist.

    ``announced`` is the kb's version that was announced last, None: no such kb is known. ``run``
    has to be running to build filters; until a kb has one, everything may exist.
    """

    def __init__(
        self, announced: Callable[[str], int | None], record: Record, run_blocking: RunBlocking
    ) -> None:
        self._announced = announced
        self._record = record
        self._run_blocking = run_blocking
        self._known: dict[str, _Known] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wanted: dict[str, None] = {}
        self._asked = asyncio.Event()
        self._counts = dict.fromkeys(("stopped", "passed", "unready", "read"), 0)

    async def may_exist(self, kb: str, name: str, deadline: Deadline) -> bool:
        """False: there is certainly no such name, of all that was acknowledged when this began."""
        known = self._known.get(kb)
        if known is None:
            self._want(kb)
            return self._counted("unready")
        if name not in known.filter:
            announced = self._announced(kb)
            if announced is None or not await self._caught_up(kb, known, announced, deadline):
                return self._counted("unready")
            if name not in known.filter:
                self._counted("stopped")
                return False
        return self._counted("passed")

    async def run(self) -> None:
        """Build filters for kbs that were asked for until cancelled, one at a time."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._wanted:
                kb = next(iter(self._wanted))
                try:
                    await self._run_blocking(lambda kb=kb: self._build(kb))  # type: ignore[misc]
                except ForebayError:  # dropped meanwhile, or the store is busy: asked for again
                    self._known.pop(kb, None)
                except Exception:  # without a filter everything goes on, only slower
                    self._known.pop(kb, None)
                    log.exception("the names of %s could not be read", kb)
                finally:
                    self._wanted.pop(kb, None)

    def statistics(self) -> dict[str, float]:
        """What was stopped and let through, reads of what came since, and what it takes."""
        return {
            **self._counts,
            "names": sum(known.filter.count for known in self._known.values()),
            "bytes": sum(known.filter.size_bytes for known in self._known.values()),
        }

    def _counted(self, result: str) -> bool:
        self._counts[result] += 1
        return True

    def _want(self, kb: str) -> None:
        if self._announced(kb) is not None:
            self._wanted[kb] = None
            self._asked.set()

    def _build(self, kb: str) -> None:
        found = self._record(kb, 0)
        self._known[kb] = _Known(filter_of(found.names, len(found.names)), found.version)

    async def _caught_up(self, kb: str, known: _Known, announced: int, deadline: Deadline) -> bool:
        """Whether the filter has everything up to ``announced``; one reads for all who ask."""
        if known.version >= announced:
            return True
        turn = self._turns.get(kb)
        if turn is None:
            turn = self._turns[kb] = asyncio.Lock()
        try:
            async with asyncio.timeout(deadline.remaining()), turn:
                if known.version < announced:
                    self._counts["read"] += 1
                    since = known.version
                    await self._run_blocking(lambda: known.learn(lambda: self._record(kb, since)))
        except NotFound:
            self._known.pop(kb, None)
            return False
        except (ForebayError, TimeoutError):  # the record says itself what is wrong
            return False
        if known.filter.count > known.filter.capacity:
            self._want(kb)
        return known.version >= announced
