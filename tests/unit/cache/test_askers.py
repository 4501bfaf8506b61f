"""A tenant is told of its own questions' vectors, and of nobody else's."""

from __future__ import annotations

import pytest

from forebay.cache.askers import Askers, DiscreetRetriever
from forebay.cache.embeddings import TEXT_MAX_CHARACTERS
from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import SearchRequest, SearchResult
from tests.unit.cache.tier_parts import context_of

DAY_S = 24 * 3600.0
QUESTION = "How long is the notice period?"


class World:
    """Tenants before one process's shared vectors, of which each is ``found`` (hit, miss, off)."""

    def __init__(self, most: int = 100) -> None:
        self.clock = VirtualClock()
        self.askers = Askers(DAY_S, self.clock, most)
        self.found = "miss"
        self.error: Exception | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        del request
        ctx.cache["embedding"] = self.found
        if self.error is not None:
            raise self.error
        return SearchResult((), "vector+bm25", 1, None)

    async def told(self, tenant: str, found: str, query: str = QUESTION) -> tuple[str, str]:
        """What is counted, and what the client reads."""
        self.found = found
        ctx = context_of(self.clock, Principal(tenant))
        await DiscreetRetriever(self, self.askers).retrieve(ctx, SearchRequest("k", query))
        return ctx.cache["embedding"], ctx.told_cache()["embedding"]


async def test_a_hit_that_another_tenant_made_reads_as_a_miss_and_counts_as_shared() -> None:
    world = World()
    assert await world.told("a", "miss") == ("miss", "miss")
    assert await world.told("b", "hit") == ("shared", "miss")
    assert await world.told("b", "hit") == ("hit", "hit")
    assert await world.told("a", "hit") == ("hit", "hit")


@pytest.mark.parametrize(
    "query", ["how long is the notice period", "HOW  LONG is the notice period？"]
)
async def test_other_spellings_are_the_same_text(query: str) -> None:
    world = World()
    await world.told("a", "miss")
    assert await world.told("a", "hit", query) == ("hit", "hit")


async def test_another_text_of_the_same_tenant_is_another() -> None:
    world = World()
    await world.told("a", "miss", "可以退")
    assert await world.told("a", "hit", "不可以退") == ("shared", "miss")


async def test_a_tenant_is_told_what_a_tier_of_its_own_would_say() -> None:
    """Its first question made the vector, whose life asking again does not prolong."""
    world = World()
    await world.told("a", "miss")
    world.clock.advance(DAY_S - 1)
    assert (await world.told("a", "hit"))[1] == "hit"
    world.clock.advance(2)
    assert (await world.told("a", "hit"))[1] == "miss", "somebody else must have asked since"


async def test_nobody_has_asked_where_no_vector_was_needed() -> None:
    world = World()
    assert await world.told("a", "off") == ("off", "off")
    assert await world.told("a", "hit") == ("shared", "miss")


async def test_a_search_that_failed_has_asked() -> None:
    world = World()
    world.error = EngineError("no")
    with pytest.raises(EngineError):
        await world.told("a", "miss")
    world.error = None
    assert await world.told("a", "hit") == ("hit", "hit")


async def test_what_is_remembered_is_bounded() -> None:
    world = World(most=2)
    for number in range(4):
        await world.told("a", "miss", f"question {number}")
    assert (await world.told("a", "hit", "question 3"))[1] == "hit"
    assert (await world.told("a", "hit", "question 0"))[1] == "miss"
    await world.told("a", "miss", "x" * (TEXT_MAX_CHARACTERS + 1))
    assert (await world.told("a", "hit", "question 3"))[1] == "hit"
