"""L2: what was found for a query, for as long as a fresh search would find the same.

Equal searches that come while one is under way wait for it. A search that was degraded is given
to those who waited, with its degradations, and kept for nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from forebay.cache.claims import Claims
from forebay.cache.flight import Flights
from forebay.cache.settings import RetrievalTierSettings
from forebay.cache.versioned import Entry, Found, VersionedTier
from forebay.kernel.caching import Served, ServedVersions
from forebay.kernel.clock import Clock
from forebay.kernel.context import Coverage, Degradation, Principal, Priority, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult

KeyOf = Callable[[Principal, SearchRequest], bytes]
Asked = Callable[[bytes, Principal, SearchRequest], None]
"""Hears of every hit."""
TIER = "retrieval"
QUERY_MAX_CHARACTERS = 4096
"""Nobody asks a longer question twice, and to spell it canonically takes its time."""


class KeptHits(msgspec.Struct, frozen=True, array_like=True):
    """What an entry of this tier says."""

    hits: tuple[Hit, ...]
    rung: str
    coverage: Coverage | None = None


class _Searched(msgspec.Struct, frozen=True):
    """A search as all who waited for it get it; ``fetched``: another process had made it."""

    result: SearchResult
    degradations: tuple[Degradation, ...] = ()
    fetched: bool = False


class RetrievalTierParts(msgspec.Struct, frozen=True):
    """What the tier works with; ``clock`` is the wall's, ``claims`` None: no other process."""

    tier: VersionedTier[KeptHits]
    serving: ServedVersions
    key_of: KeyOf
    clock: Clock
    claims: Claims | None = None


class CachedRetriever:
    """``Retriever`` in front of another; says in ``ctx.cache`` what the tier did."""

    def __init__(
        self, inner: Retriever, parts: RetrievalTierParts, settings: RetrievalTierSettings
    ) -> None:
        self._inner = inner
        self._parts = parts
        self._settings = settings
        self._flights: Flights[tuple[bytes, int, Priority], _Searched] = Flights()
        self.asked: Asked | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``."""
        if ctx.no_cache or len(request.query) > QUERY_MAX_CHARACTERS:
            ctx.cache[TIER] = "bypass"
            return await self._inner.retrieve(ctx, request)
        served = self._parts.serving.current(request.kb)
        if served is None:
            served = await self._parts.serving.renew(request.kb, ctx.deadline)
        key = self._parts.key_of(ctx.principal, request)
        entry = self._parts.tier.held(key, served).entry
        if entry is not None:
            ctx.cache[TIER] = "hit"
            if self.asked is not None:
                self.asked(key, ctx.principal, request)
            return self._told(ctx, _result(entry))
        # What began before a change was acknowledged is nothing to wait for after it, and nobody is
        # refused in the place of a lower class; who holds a place of an engine is of the highest.
        place: Priority = "high" if ctx.placement is not None else ctx.principal.priority
        searched, made = await self._flights.run(
            (key, served.version, place),
            ctx.deadline,
            partial(self._search, ctx, request, key, served),
        )
        ctx.cache[TIER] = "miss" if made and not searched.fetched else "hit"
        if not made:
            ctx.degradations.extend(searched.degradations)
        return self._told(ctx, searched.result)

    def explain(
        self, principal: Principal, request: SearchRequest, served: Served
    ) -> Found[KeptHits]:
        """What memory would do for a search, without doing it."""
        return self._parts.tier.seen(self._parts.key_of(principal, request), served)

    async def explain_shared(
        self, principal: Principal, request: SearchRequest, served: Served
    ) -> Found[KeptHits]:
        """What the store that processes share would do, without doing it."""
        return await self._parts.tier.seen_shared(self._parts.key_of(principal, request), served)

    def seen(self, key: bytes, served: Served) -> Found[KeptHits]:
        """What memory would do for a key, without doing it."""
        return self._parts.tier.seen(key, served)

    def statistics(self) -> dict[str, int]:
        """Searches under way, made, and joined."""
        return self._flights.statistics()

    async def close(self) -> None:
        """End searches under way."""
        await self._flights.close()

    def _told(self, ctx: RequestContext, result: SearchResult) -> SearchResult:
        ctx.rung, ctx.coverage = result.rung, result.coverage
        if ctx.kb_version is None:
            ctx.kb_version = result.kb_version
        return result

    async def _search(
        self, ctx: RequestContext, request: SearchRequest, key: bytes, served: Served
    ) -> _Searched:
        if self._parts.claims is None or not served.leased:
            return await self._fresh(ctx, request, key, served)
        fetched = partial(self._parts.tier.fetched, key, served)
        entry = await self._parts.claims.entry(key, served.version, fetched, ctx.deadline)
        if entry is not None:
            return _Searched(_result(entry), fetched=True)
        try:
            return await self._fresh(ctx, request, key, served)
        finally:
            await self._parts.claims.release(key, served.version)

    async def _fresh(
        self, ctx: RequestContext, request: SearchRequest, key: bytes, served: Served
    ) -> _Searched:
        before = len(ctx.degradations)
        result = await self._inner.retrieve(ctx, request)
        degradations = tuple(ctx.degradations[before:])
        if result.evidence is not None and not degradations:
            life_s = self._settings.life_s
            if not result.hits:
                life_s = min(life_s, self._settings.empty_life_s)
            entry = Entry(
                kb=request.kb,
                kb_version=result.kb_version,
                top_k=request.top_k,
                made_at=self._parts.clock.now(),
                life_s=life_s,
                evidence=result.evidence,
                value=KeptHits(result.hits, result.rung, result.coverage),
            )
            self._parts.tier.keep(key, entry)
            if served.leased:
                await self._parts.tier.share(key, entry)
        elif served.leased and self._parts.claims is not None:
            await self._parts.claims.give_up(key, served.version)
        return _Searched(result, degradations)


def _result(entry: Entry[KeptHits]) -> SearchResult:
    kept = entry.value
    return SearchResult(
        kept.hits, kept.rung, entry.kb_version, entry.evidence, coverage=kept.coverage
    )
