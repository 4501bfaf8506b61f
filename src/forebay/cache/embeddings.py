"""L1: vectors of queries. A vector is the embedder's and the text's alone: it is never stale."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from forebay.cache.flight import Flights
from forebay.cache.keys import digest, embedding_key
from forebay.cache.memory import MemoryTier
from forebay.cache.settings import EmbeddingTierSettings
from forebay.cache.values import VectorCodec
from forebay.kernel.caching import SharedValues
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import Embedder, EmbedderSpec, at_work_s, in_line

TEXT_MAX_CHARACTERS = 4096
"""Nobody asks a longer question twice, and to spell it canonically takes its time."""
MAKE_S = 10.0
"""Nobody waits longer for an embedder; who asks has a time-out of their own."""
LINGER = 4
"""So many vectors that come too late for who asked are made all the same, for who asks next: an
embedder slower than the time-out would otherwise never be of use."""


class CachedEmbedder:
    """``Embedder`` in front of another: single queries are remembered, all else passes by."""

    def __init__(
        self,
        inner: Embedder,
        memory: MemoryTier[bytes],
        settings: EmbeddingTierSettings,
        clock: Clock,
        shared: SharedValues | None = None,
    ) -> None:
        self._inner = inner
        self._memory = memory
        self._settings = settings
        self._clock = clock
        self._shared = shared
        self._codec = VectorCodec(inner.spec.dimensions)
        self._flights: Flights[bytes, tuple[Vectors, bool]] = Flights(linger=LINGER)

    @property
    def spec(self) -> EmbedderSpec:
        """See ``Embedder``."""
        return self._inner.spec

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """See ``Embedder``; ``cached`` of what it returns says whether it was remembered."""
        if kind != "query" or len(texts) != 1 or len(texts[0]) > TEXT_MAX_CHARACTERS:
            return await self._inner.embed(texts, kind=kind)
        key = digest(embedding_key(self.spec, kind, texts[0]))
        value = self._memory.get(key)
        found = None if value is None else self._codec.decode(key, value)
        known = found is not None
        if found is None:
            (found, known), _ = await self._flights.run(
                key, Deadline.after(MAKE_S, self._clock), partial(self._make, key, texts[0])
            )
        return msgspec.structs.replace(found, cached=known)

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        """See ``InLine``; what is made is remembered."""
        if self._shared is not None or len(text) > TEXT_MAX_CHARACTERS:
            return None
        key = digest(embedding_key(self.spec, "query", text))
        make = None if key in self._flights else in_line(self._inner, text)
        if make is None:
            return None
        value, loop = self._memory.peek(key), asyncio.get_running_loop()
        known = None if value is None else self._codec.decode(key, value)

        def made() -> Vectors:
            # It counts as asked for when it was, and as a hit or a miss.
            if known is not None:
                loop.call_soon_threadsafe(self._memory.get, key)
                return msgspec.structs.replace(known, cached=True)
            found = make()
            loop.call_soon_threadsafe(self._missed, key, found)
            return msgspec.structs.replace(found, cached=False)

        return made

    def _missed(self, key: bytes, found: Vectors) -> None:
        self._memory.get(key)
        self._keep(key, found)

    def _keep(self, key: bytes, found: Vectors) -> bytes:
        value = self._codec.encode(key, found)
        self._memory.put(key, value, self._settings.life_s)
        return value

    def seen(self, text: str) -> Vectors | None:
        """The vector of a query if memory has it; nothing is counted."""
        key = digest(embedding_key(self.spec, "query", text))
        value = self._memory.peek(key)
        return None if value is None else self._codec.decode(key, value)

    def holds(self, text: str) -> bool:
        """Whether memory has the vector of a query."""
        return self._memory.peek(digest(embedding_key(self.spec, "query", text))) is not None

    async def holds_shared(self, text: str) -> bool:
        """Whether the store that processes share has the vector of a query."""
        key = digest(embedding_key(self.spec, "query", text))
        value = None if self._shared is None else await self._shared.get(key)
        return value is not None and self._codec.decode(key, value) is not None

    def at_work_s(self) -> float:
        """See ``Working``."""
        return at_work_s(self._inner)

    def statistics(self) -> dict[str, int]:
        """Queries being embedded, embedded, and joined."""
        return self._flights.statistics()

    async def close(self) -> None:
        """End what is under way; the embedder belongs to others."""
        await self._flights.close()

    async def _make(self, key: bytes, text: str) -> tuple[Vectors, bool]:
        """The vector, and whether another process had made it."""
        value = None if self._shared is None else await self._shared.get(key)
        found = None if value is None else self._codec.decode(key, value)
        if value is not None and found is not None:
            self._memory.put(key, value, self._settings.life_s)
            return found, True
        async with asyncio.timeout(MAKE_S):
            found = await self._inner.embed([text], kind="query")
        value = self._keep(key, found)
        if self._shared is not None:
            await self._shared.put(key, value, self._settings.life_s)
        return found, False
