"""What changes touched is searched again: only what is asked often, in nobody else's time."""

from __future__ import annotations

import asyncio

import pytest

from forebay.cache.rewarming import LATE_S, LOOK_S, Rewarmer, RewarmingParts, RewarmingSettings
from forebay.cache.versioned import Found, Verdict
from forebay.kernel.caching import Served
from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import Principal
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import SearchRequest


class World:
    """A virtual clock whose sleeps pass at once, one knowledge base, entries by key."""

    def __init__(self, **settings: float) -> None:
        self.clock = VirtualClock()
        self.version: int | None = 1
        self.verdicts: dict[bytes, Verdict] = {}
        self.searched: list[tuple[float, str]] = []
        self.takes_s = 0.001
        self.idle = True
        self.late_s = 0.0
        self.fails = False
        parts = RewarmingParts(
            self.current, self.seen, self.search, lambda: self.idle, self.clock, self.sleep
        )
        self.warmer = Rewarmer(parts, RewarmingSettings(enabled=True, **settings))  # type: ignore[arg-type]

    def current(self, kb: str) -> Served | None:
        return None if self.version is None or kb != "kb" else Served(self.version)

    def seen(self, key: bytes, served: Served) -> Found[object]:
        return Found(self.verdicts.get(key, "hit"))

    async def search(self, principal: Principal, request: SearchRequest) -> object:
        self.searched.append((self.clock.now(), request.query))
        self.clock.advance(self.takes_s)
        if self.fails:
            raise EngineError("no")
        self.verdicts[request.query.encode()] = "hit"
        return None

    async def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds + (self.late_s if seconds == LOOK_S else 0.0))
        await asyncio.sleep(0)

    def hit(self, name: str, times: int = 2) -> None:
        for _ in range(times):
            self.warmer.hit(name.encode(), Principal(), SearchRequest("kb", name))

    def change(self, *touched: str) -> None:
        assert self.version is not None
        self.version += 1
        self.verdicts.update({name.encode(): "touched" for name in touched})

    async def goes_on(self, seconds: float) -> None:
        running = asyncio.ensure_future(self.warmer.run())
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    @property
    def queries(self) -> list[str]:
        return [query for _, query in self.searched]


async def test_what_is_asked_often_and_was_touched_is_searched_again() -> None:
    world = World()
    world.hit("hot", 5)
    world.hit("warm")
    world.hit("once", 1)
    world.hit("untouched")
    await world.goes_on(2.0)
    assert world.searched == []
    world.change("hot", "warm", "once")
    await world.goes_on(5.0)
    assert world.queries == ["hot", "warm"]
    assert world.warmer.statistics() == {"rewarmed": 2, "rewarming_failed": 0}


async def test_so_many_a_second_at_most() -> None:
    world = World(per_s=4.0)
    names = [f"q{number}" for number in range(40)]
    for name in names:
        world.hit(name)
    world.change(*names)
    await world.goes_on(5.0)
    assert 2 <= len(world.searched) <= 21


async def test_never_more_than_its_share_of_the_time() -> None:
    world = World(per_s=1000.0, share=0.1)
    world.takes_s = 0.2
    names = [f"q{number}" for number in range(40)]
    for name in names:
        world.hit(name)
    world.change(*names)
    await world.goes_on(20.0)
    assert len(world.searched) * world.takes_s <= 0.1 * 20.0 + world.takes_s


async def test_nothing_is_done_while_others_search_or_the_loop_is_late() -> None:
    world = World()
    world.hit("hot")
    world.change("hot")
    world.idle = False
    await world.goes_on(5.0)
    world.idle, world.late_s = True, 2 * LATE_S
    await world.goes_on(5.0)
    assert world.searched == []
    world.late_s = 0.0
    await world.goes_on(2.0)
    assert world.queries == ["hot"]


async def test_what_somebody_asked_meanwhile_is_left_alone() -> None:
    world = World()
    world.hit("first", 3)
    world.hit("second")
    world.change("first", "second")
    search = world.search

    async def asked_meanwhile(principal: Principal, request: SearchRequest) -> object:
        world.verdicts[b"second"] = "hit"
        return await search(principal, request)

    world.warmer._parts = RewarmingParts(
        world.current, world.seen, asked_meanwhile, lambda: True, world.clock, world.sleep
    )
    await world.goes_on(5.0)
    assert world.queries == ["first"]


async def test_a_process_that_is_behind_looks_again() -> None:
    world = World()
    world.hit("hot")
    world.change()
    world.verdicts[b"hot"] = "behind"
    await world.goes_on(2.0)
    world.verdicts[b"hot"] = "touched"
    version, world.version = world.version, None
    await world.goes_on(2.0)
    assert world.searched == []
    world.version = version
    await world.goes_on(2.0)
    assert world.queries == ["hot"]


async def test_a_search_that_fails_is_counted_and_ends_nothing() -> None:
    world = World()
    world.fails = True
    world.hit("a")
    world.hit("b")
    world.change("a", "b")
    await world.goes_on(5.0)
    assert world.warmer.statistics() == {"rewarmed": 0, "rewarming_failed": 2}


def test_only_so_many_are_remembered() -> None:
    world = World(most=3)
    for name in ("a", "b", "c", "a", "d"):
        world.hit(name)
    assert list(world.warmer._asked) == [b"c", b"a", b"d"]
