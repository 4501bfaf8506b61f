"""Who asked which text: a hit of its vector is told to those alone who asked for it before.

The vector of a text is kept once for all tenants. Told plainly, a hit would say that somebody else
had asked the same. So each tenant is told what a tier of its own would have said.
"""

from __future__ import annotations

from collections import OrderedDict

from forebay.cache.embeddings import TEXT_MAX_CHARACTERS
from forebay.cache.keys import asker_key, digest
from forebay.kernel.clock import Clock
from forebay.kernel.context import SHARED_HIT, Principal, RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult

MOST = 50_000
"""Texts of all tenants together, some 8 MB; beyond, what was asked for the longest ago goes."""
TIER = "embedding"


class Askers:
    """Texts by tenant for ``life_s`` from when they were asked for, as their vectors live."""

    def __init__(self, life_s: float, clock: Clock, most: int = MOST) -> None:
        self._life_s = life_s
        self._clock = clock
        self._most = most
        self._ends_at: OrderedDict[bytes, float] = OrderedDict()

    def note(self, ctx: RequestContext, text: str) -> None:
        """The request asked for the vector of ``text``: see to what it is told of that."""
        if len(text) > TEXT_MAX_CHARACTERS:
            return  # nobody remembers its vector
        told = ctx.cache[TIER]
        if told in ("hit", "miss") and not self._again(ctx.principal, text):
            ctx.cache[TIER] = SHARED_HIT if told == "hit" else told

    def _again(self, principal: Principal, text: str) -> bool:
        key, now = digest(asker_key(principal, text)), self._clock.now()
        if self._ends_at.get(key, now) > now:
            return True
        self._ends_at[key] = now + self._life_s
        self._ends_at.move_to_end(key)
        if len(self._ends_at) > self._most:
            self._ends_at.popitem(last=False)
        return False


class DiscreetRetriever:
    """``Retriever`` around one whose embedder remembers."""

    def __init__(self, inner: Retriever, askers: Askers) -> None:
        self._inner = inner
        self._askers = askers

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``."""
        try:
            return await self._inner.retrieve(ctx, request)
        finally:
            self._askers.note(ctx, request.query)
