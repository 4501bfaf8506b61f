"""Results that belong to a version of a knowledge base, and are carried to later ones.

An entry that is older than what may be served is used only if what happened since cannot have
altered it; then it is kept again under the newer version. So a change costs the entries it
touches, not the tier, and a result of an older state that arrives late is judged like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from forebay.cache.memory import MemoryTier
from forebay.cache.values import Codec, unproven
from forebay.kernel.caching import ChangeBounds, Changes, Evidence, Served, SharedValues
from forebay.kernel.clock import Clock
from forebay.kernel.errors import ForebayError

V = TypeVar("V")
Verdict = Literal["hit", "absent", "expired", "touched", "behind", "unreadable"]
Judge = Callable[[Evidence, Changes, int], Evidence | None]
"""The evidence as it is after changes; None: they may have altered the result."""


SKEW_S = 60.0
"""How far machines' clocks may differ. An entry from later than that was made before somebody set a
clock back, and its age is not known."""


class Entry(msgspec.Struct, Generic[V], frozen=True, array_like=True):
    """A result and what it rests on. ``made_at`` is wall time, ``life_s`` its whole life.

    ``mark`` tells its version from the same number in another history of the store, where an
    entry is shared.
    """

    kb: str
    kb_version: int
    top_k: int
    made_at: float
    life_s: float
    evidence: Evidence
    value: V
    mark: int = 0


class _Whose(msgspec.Struct, frozen=True, array_like=True):
    """The first field of an ``Entry``, for who looks at many."""

    kb: str


_whose = msgspec.msgpack.Decoder(_Whose).decode


class TierParts(msgspec.Struct, Generic[V], frozen=True):
    """What a tier is made of; ``shared`` None: this process's memory alone.

    ``mark_of`` is a version's mark in this store's history; None: it has none any more.
    """

    memory: MemoryTier[bytes]
    codec: Codec[Entry[V]]
    bounds: ChangeBounds
    judge: Judge
    clock: Clock
    shared: SharedValues | None = None
    mark_of: Callable[[str, int], Awaitable[int | None]] | None = None


class Found(msgspec.Struct, Generic[V], frozen=True):
    """What a look-up came to; ``moved``: the entry was carried to a newer version."""

    verdict: Verdict
    entry: Entry[V] | None = None
    moved: bool = False


_ABSENT: Found[Any] = Found("absent")


class VersionedTier(Generic[V]):
    """One tier; memory first, then what processes share."""

    def __init__(self, parts: TierParts[V]) -> None:
        self._parts = parts
        self.verdicts: dict[Verdict, int] = dict.fromkeys(get_args(Verdict), 0)
        self.carried = 0

    def held(self, key: bytes, served: Served) -> Found[V]:
        """What memory has that may be served; an entry that may not be is forgotten."""
        data = self._parts.memory.get(key)
        if data is None:
            self.verdicts["absent"] += 1
            return _ABSENT
        found = self._judged(key, data, served)
        self.verdicts[found.verdict] += 1
        if found.entry is None and found.verdict != "behind":
            self._parts.memory.remove(key)
        elif found.entry is not None and found.moved:
            self.carried += 1
            data = self._parts.codec.encode(key, found.entry)
            # Not by the wall's clock alone: set back, it would give a new life with each change.
            self._parts.memory.put(
                key, data, min(self._left_s(found.entry), self._parts.memory.left_s(key))
            )
        return found

    def still(self, key: bytes, data: bytes, entry: Entry[V], served: Served) -> bool:
        """Whether memory has these very bytes, read before as ``entry``, and they may be served."""
        return (
            self._parts.memory.peek(key) is data
            and entry.kb_version >= served.version
            and self._left_s(entry) > 0
        )

    def took(self, key: bytes) -> None:
        """Count what is ``still`` there as found by ``held``."""
        self._parts.memory.get(key)
        self.verdicts["hit"] += 1

    def bytes_of(self, key: bytes) -> bytes | None:
        """The entry's bytes in memory, nothing counted."""
        return self._parts.memory.peek(key)

    def seen(self, key: bytes, served: Served) -> Found[V]:
        """What ``held`` would say, with nothing changed and nothing counted."""
        data = self._parts.memory.peek(key)
        return _ABSENT if data is None else self._judged(key, data, served)

    def belongs(self, data: bytes, kb: str) -> bool:
        """Whether bytes in memory are of a knowledge base; takes a microsecond."""
        return _whose(unproven(data)).kb == kb

    async def fetched(self, key: bytes, served: Served) -> Found[V]:
        """What other processes have made that may be served; it is then in memory too."""
        found, data = await self._shared(key, served)
        if found.entry is not None:
            if found.moved:
                data = self._parts.codec.encode(key, found.entry)
            self._remember(key, found.entry, data)
        return found

    async def seen_shared(self, key: bytes, served: Served) -> Found[V]:
        """What ``fetched`` would say, with nothing changed and nothing counted."""
        return (await self._shared(key, served))[0]

    async def _shared(self, key: bytes, served: Served) -> tuple[Found[V], bytes]:
        """What processes share, judged, and its bytes."""
        shared = self._parts.shared
        data = await shared.get(key) if shared is not None and served.leased else None
        if data is None:
            return _ABSENT, b""
        entry = self._parts.codec.decode(key, data)
        if entry is not None and not await self._ours(entry):
            return Found("unreadable"), data
        return self._judged(key, data, served), data

    def keep(self, key: bytes, entry: Entry[V]) -> None:
        """Keep a result under the version it was made from.

        A result of an older version does not replace one of a newer.
        """
        before = self._parts.memory.peek(key)
        other = None if before is None else self._parts.codec.decode(key, before)
        if other is None or other.kb_version <= entry.kb_version:
            self._remember(key, entry, self._parts.codec.encode(key, entry))

    async def share(self, key: bytes, entry: Entry[V]) -> None:
        """Hand a result to other processes."""
        if self._parts.shared is None or self._parts.mark_of is None:
            return
        mark = await self._mark(entry)
        if mark is not None:
            entry = msgspec.structs.replace(entry, mark=mark)
            data = self._parts.codec.encode(key, entry)
            await self._parts.shared.put(key, data, entry.life_s)

    async def _ours(self, entry: Entry[V]) -> bool:
        """Whether an entry from outside is of this store's own history."""
        mark = await self._mark(entry)
        return mark is not None and mark == entry.mark

    async def _mark(self, entry: Entry[V]) -> int | None:
        """The mark of an entry's version; None also while the record cannot be asked."""
        if self._parts.mark_of is None:
            return None
        try:
            return await self._parts.mark_of(entry.kb, entry.kb_version)
        except ForebayError:
            # What processes share may cost nobody an answer.
            return None

    def _judged(self, key: bytes, data: bytes, served: Served) -> Found[V]:
        entry = self._parts.codec.decode(key, data)
        if entry is None:
            return Found("unreadable")
        if self._left_s(entry) <= 0 or self._parts.clock.now() < entry.made_at - SKEW_S:
            return Found("expired")
        if entry.kb_version >= served.version:
            return Found("hit", entry)
        moved = self._moved(entry)
        if moved is None:
            return Found("touched")
        if moved.kb_version < served.version:
            # What is known of changes does not reach that far yet; it will in a moment.
            return Found("behind")
        return Found("hit", moved, moved=True)

    def _moved(self, entry: Entry[V]) -> Entry[V] | None:
        """The entry as of now; None when what happened may have altered it."""
        changes = self._parts.bounds.changes(entry.kb, entry.kb_version, entry.evidence)
        if changes is None:
            return None
        evidence = self._parts.judge(entry.evidence, changes, entry.top_k)
        if evidence is None:
            return None
        return msgspec.structs.replace(entry, kb_version=changes.version, evidence=evidence)

    def _remember(self, key: bytes, entry: Entry[V], data: bytes) -> None:
        left_s = self._left_s(entry)
        if left_s > 0:
            self._parts.memory.put(key, data, left_s)

    def _left_s(self, entry: Entry[V]) -> float:
        return entry.life_s - max(0.0, self._parts.clock.now() - entry.made_at)
