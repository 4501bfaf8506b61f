"""Background searches for what changes touched, over one process's own tiers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from forebay.app.caching import Tiers
from forebay.app.runtime import Reading
from forebay.cache.rewarming import Rewarmer, RewarmingParts
from forebay.kernel.caching import Served
from forebay.kernel.clock import Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import NotFound, first_error
from forebay.kernel.stages import SearchRequest
from forebay.policy.bulkhead import BoundedRetriever

SEARCH_S = 5.0


@asynccontextmanager
async def open_rewarming(
    reading: Reading, tiers: Tiers, bounded: BoundedRetriever, *, serves: bool
) -> AsyncIterator[None]:
    """Search again what was touched while the block runs, where that is switched on."""
    settings, cached = reading.settings.cache.warming, tiers.retriever
    if not serves or not settings.enabled or cached is None:
        yield
        return

    def current(kb: str) -> Served | None:
        try:
            return reading.versions.current(kb)
        except NotFound:
            return None

    async def search(principal: Principal, request: SearchRequest) -> object:
        ctx = RequestContext(
            request_id="rewarming",
            principal=msgspec.structs.replace(principal, priority="low"),
            deadline=Deadline.after(SEARCH_S, reading.clock),
            clock=reading.clock,
        )
        return await cached.retrieve(ctx, request)

    def idle() -> bool:
        return not bounded.line.at_work and not len(bounded.line.queue)

    rewarmer = Rewarmer(RewarmingParts(current, cached.seen, search, idle, reading.clock), settings)
    cached.asked = rewarmer.hit
    tiers.rewarming = rewarmer.statistics
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(rewarmer.run())
            try:
                yield
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
