"""How warm chunks are, and how long that keeps what belongs to them."""

from __future__ import annotations

from forebay.cache.heat import MOST_CHUNKS, ChunkHeat, HeatedRetriever, HeatSettings
from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from tests.unit.cache.tier_parts import context_of, hit

SETTINGS = HeatSettings(window_s=10.0, least_ttl_s=60.0, most_ttl_s=200.0)


def found(*chunks: int) -> SearchResult:
    return SearchResult(tuple(hit(chunk) for chunk in chunks), "bm25", 1)


def test_hits_count_for_one_window_and_the_next() -> None:
    clock = VirtualClock()
    heat = ChunkHeat(SETTINGS, clock)
    heat.note(found(1, 2))
    heat.note(found(1))
    assert [heat.of(chunk) for chunk in (1, 2, 3)] == [2, 1, 0]
    clock.advance(10.0)
    heat.note(found(1))
    assert heat.of(1) == 3
    clock.advance(10.0)
    assert heat.of(1) == 1
    heat.note(found(2))
    clock.advance(20.0)
    assert (heat.of(1), heat.of(2)) == (0, 0)


def test_the_life_grows_with_the_heat_up_to_a_bound() -> None:
    heat = ChunkHeat(SETTINGS, VirtualClock())
    lives = []
    for _ in range(4):
        lives.append(heat.ttl_s(1))
        heat.note(found(1))
    assert lives == [60.0, 120.0, 180.0, 200.0]


def test_only_so_many_are_counted() -> None:
    heat = ChunkHeat(SETTINGS, VirtualClock())
    for chunk in range(1, 3 * MOST_CHUNKS, 1000):
        heat.note(found(*range(chunk, chunk + 1000)))
    assert len(heat._now) + len(heat._before) <= 2 * (MOST_CHUNKS + 1000)


async def test_what_a_retriever_finds_is_counted() -> None:
    class Finds:
        async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
            return found(7)

    clock = VirtualClock()
    heat = ChunkHeat(SETTINGS, clock)
    retriever = HeatedRetriever(Finds(), heat)
    await retriever.retrieve(context_of(clock), SearchRequest("kb", "q"))
    assert heat.of(7) == 1
