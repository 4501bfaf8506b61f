"""Places of a tenant at work in several processes, in virtual time and over a keeper that ails."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.quotas import PRESENCE_S, QuotaCall, QuotaReply, WorkPlaces
from forebay.policy.quota import KeptPlaces, LedgerAuthority, QuotaLedger, SharedPlaces
from forebay.policy.quota import places as module


class Carrying:
    """Carries to a ledger; can be frozen, and can carry out what nobody hears of."""

    def __init__(self, ledger: QuotaLedger, clock: VirtualClock) -> None:
        self._authority = LedgerAuthority(ledger, clock, itself=1)
        self.alone = self.deaf = False
        self.processes = 2
        self.running = asyncio.Event()
        self.running.set()
        self.calls: list[QuotaCall] = []

    async def carry(self, call: QuotaCall) -> QuotaReply | None:
        self.calls.append(call)
        await self.running.wait()
        if self.alone:
            return None
        reply = self._authority.carry_out(call)
        return None if self.deaf else reply

    def present(self) -> int:
        return self.processes


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ledger = QuotaLedger()
        self.kept = KeptPlaces(self.ledger.places, self.clock)
        self.carrying = Carrying(self.ledger, self.clock)

    @asynccontextmanager
    async def process(self, name: str, timeout_s: float = 5.0) -> AsyncIterator[SharedPlaces]:
        places = SharedPlaces(self.carrying, name, timeout_s)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(places.run())
            try:
                yield places
            finally:
                task.cancel()

    def left(self, most: int) -> int:
        """How many nobody holds."""
        asked = WorkPlaces("t", most, 0)
        return self.ledger.places.exchange("look", 1, asked, self.clock.now(), -math.inf)[1]


async def entered(places: SharedPlaces | KeptPlaces, times: int, most: int = 4) -> int:
    return sum([await places.enter("t", most) for _ in range(times)])


async def settled(world: World, most: int, left: int) -> None:
    async with asyncio.timeout(5):
        while world.left(most) != left:
            await asyncio.sleep(0.005)


async def test_processes_and_their_keeper_have_what_there_is_between_them() -> None:
    world = World()
    async with world.process("a") as a, world.process("b") as b:
        assert [await entered(one, 2) for one in (a, world.kept, b)] == [2, 2, 0]
        world.kept.leave("t")
        assert await entered(b, 2) == 1
        a.leave("t")
        a.leave("t")
        await settled(world, 4, 2)
        assert await entered(world.kept, 3) == 2


async def test_places_of_a_process_that_died_are_back_in_seconds() -> None:
    world = World()
    async with world.process("lives") as lives:
        async with world.process("dies") as dies:
            assert await entered(dies, 4) == 4
        assert await entered(lives, 1) == 0
        world.clock.advance(PRESENCE_S - 0.1)
        assert await entered(lives, 1) == 0
        world.clock.advance(0.2)
        assert await entered(lives, 5) == 4
        for _ in range(20):  # those of one that goes on saying so stay its own
            world.clock.advance(1.0)
            lives.beat()
            await asyncio.sleep(0)
            assert await entered(world.kept, 1) == 0
        await lives.farewell()


async def test_without_the_keeper_each_has_its_part_and_it_learns_of_them_later() -> None:
    world = World()
    async with world.process("a") as a:
        world.carrying.alone = True
        assert await entered(a, 4) == 2
        assert world.left(4) == 4
        world.carrying.alone = False
        a.beat()
        await settled(world, 4, 2)
        assert await entered(world.kept, 4) == 2


async def test_a_keeper_that_does_not_answer_costs_one_wait_and_never_lets_all_in() -> None:
    world = World()
    async with world.process("a", timeout_s=0.02) as a:
        world.carrying.running.clear()
        assert sum(await asyncio.gather(*(a.enter("t", 4) for _ in range(10)))) == 2
        world.carrying.running.set()
        await settled(world, 4, 2)
        assert await entered(a, 5) == 2


async def test_a_call_that_was_carried_out_unheard_takes_no_place_for_long() -> None:
    world = World()
    async with world.process("a") as a:
        world.carrying.deaf = True
        assert await entered(a, 1) == 1  # alone: its part is two
        world.carrying.deaf = False
        a.beat()
        await settled(world, 4, 3)


@pytest.mark.parametrize("turns", range(8))
async def test_who_leaves_while_it_is_asked_leaves_nothing_behind(turns: int) -> None:
    world = World()
    async with world.process("a") as a:
        task = asyncio.ensure_future(a.enter("t", 4))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        [got] = await asyncio.gather(task, return_exceptions=True)
        if got is True:
            a.leave("t")
        await settled(world, 4, 4)


async def test_where_there_is_plenty_most_ask_nobody_and_what_rests_goes_back() -> None:
    world = World()
    async with world.process("a") as a:
        assert await entered(a, 20, most=1000) == 20
        for _ in range(500):
            a.leave("t")
            assert await a.enter("t", 1000)
        assert len(world.carrying.calls) < 25
        for _ in range(20):
            a.leave("t")
        assert world.left(1000) < 980 + 1
        for _ in range(2):
            a.beat()
            await asyncio.sleep(0.01)
        await settled(world, 1000, 1000)


async def test_more_tenants_than_a_call_holds_go_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TENANTS_A_CALL", 8)
    world = World()
    async with world.process("a") as a:
        got = await asyncio.gather(*(a.enter(f"t{number}", 1) for number in range(30)))
        assert all(got)
        assert max(len(call.places) for call in world.carrying.calls) == 8
        for number in range(30):
            a.leave(f"t{number}")
    await a.farewell()
    kept = await asyncio.gather(*(world.kept.enter(f"t{number}", 1) for number in range(30)))
    assert all(kept)
