"""How often chunks were hits lately, and how long what is kept of them outside should live (F2.12).

Hits are counted in windows; a chunk's heat is what it got in the current one and the one before.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult

MOST_CHUNKS = 50_000
"""Chunks counted in a window at most; the window ends early then."""


class HeatSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a chunk's key says about how long it is worth keeping what belongs to it."""

    window_s: Annotated[
        float,
        Meta(
            description="Hits of a chunk count for so long at least, and for twice that at most.",
            gt=0.0,
        ),
    ] = 600.0
    least_ttl_s: Annotated[
        float, Meta(description="Life suggested for what is kept of a chunk nobody finds.", gt=0.0)
    ] = 600.0
    most_ttl_s: Annotated[
        float, Meta(description="The longest life suggested: each hit adds the least.", gt=0.0)
    ] = 86_400.0


class ChunkHeat:
    """Hits of chunks as this process served them; confined to one event loop."""

    def __init__(self, settings: HeatSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._now: Counter[int] = Counter()
        self._before: Counter[int] = Counter()
        self._began_at = clock.now()

    def note(self, result: SearchResult) -> None:
        """Something was found."""
        self._turn()
        for hit in result.hits:
            self._now[hit.chunk.chunk_id] += 1

    def of(self, chunk_id: int) -> int:
        """Hits lately."""
        self._turn()
        return self._now[chunk_id] + self._before[chunk_id]

    def ttl_s(self, chunk_id: int) -> float:
        """Seconds that what is kept of a chunk should live."""
        settings = self._settings
        least_s = min(settings.least_ttl_s, settings.most_ttl_s)
        return min(settings.most_ttl_s, least_s * (1 + self.of(chunk_id)))

    def _turn(self) -> None:
        passed_s, window_s = self._clock.now() - self._began_at, self._settings.window_s
        if passed_s < window_s and len(self._now) < MOST_CHUNKS:
            return
        self._before = self._now if passed_s < 2 * window_s else Counter()
        self._now = Counter()
        self._began_at = self._clock.now()


class HeatedRetriever:
    """``Retriever`` that counts what another finds, from its caches too."""

    def __init__(self, inner: Retriever, heat: ChunkHeat) -> None:
        self._inner = inner
        self._heat = heat

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``."""
        found = await self._inner.retrieve(ctx, request)
        self._heat.note(found)
        return found
