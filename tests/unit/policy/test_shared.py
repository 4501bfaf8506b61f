"""Calls between a process and the keeper of quotas: gathered, bounded, and done without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.kernel.errors import AllInUse, Unavailable
from forebay.kernel.quotas import QuotaCall, QuotaReply
from forebay.policy.quota import (
    Claim,
    LeasedLedger,
    LedgerAuthority,
    Limit,
    QuotaLedger,
    Refusal,
    Reservation,
    SharedQuotas,
    SharingSettings,
)
from tests.unit.policy.virtual_loop import LoopClock, virtual_clock, virtually

CLOCK = LoopClock()

CLAIM = Claim("tenant", "t", Limit(0.001, 300.0))
WIDE = Claim("tenant", "wide", Limit(1e5, 1e6))
PATIENT = SharingSettings(timeout_s=2.0)


class Keeper:
    """An authority that can be frozen, slowed and broken."""

    def __init__(self) -> None:
        self.ledger = QuotaLedger()
        self._authority = LedgerAuthority(self.ledger, CLOCK)
        self.running = asyncio.Event()
        self.running.set()
        self.broken = False
        self.delay_s = 0.0
        self.calls: list[QuotaCall] = []
        self.at_once = self.most_at_once = 0

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        self.calls.append(call)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(self.delay_s)
            await self.running.wait()
        finally:
            self.at_once -= 1
        if self.broken:
            raise Unavailable("gone")
        return self._authority.carry_out(call)

    async def close(self) -> None:
        pass

    def level(self, claim: Claim) -> float:
        now = CLOCK.now()
        return self.ledger.bucket(claim, now).level(now)

    def reservations(self) -> int:
        return sum(len(call.reservations) for call in self.calls)


@asynccontextmanager
async def sharing(
    keeper: Keeper, settings: SharingSettings = PATIENT, lease_s: float = 0.5
) -> AsyncIterator[SharedQuotas]:
    ledger = LeasedLedger(lease_s)
    shared = SharedQuotas(ledger, keeper, CLOCK, settings, f"p{id(ledger)}")
    await shared.start()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(shared.run())
        try:
            yield shared
        finally:
            task.cancel()


def admitted(got: list[Reservation | Refusal]) -> list[Reservation]:
    return [one for one in got if isinstance(one, Reservation)]


async def until_level(keeper: Keeper, claim: Claim, level: float) -> None:
    async with asyncio.timeout(5):
        while abs(keeper.level(claim) - level) > 0.1:
            await asyncio.sleep(0.005)


@virtually
async def test_five_at_once_over_four_processes_are_three_and_refunds_come_at_once() -> None:
    keeper = Keeper()
    async with (
        sharing(keeper, lease_s=60) as one,
        sharing(keeper, lease_s=60) as two,
        sharing(keeper, lease_s=60) as three,
        sharing(keeper, lease_s=60) as four,
    ):
        each = [one, two, three, four, one]
        got = await asyncio.gather(*(process.obtain([CLAIM], 40 + 60) for process in each))
        assert len(admitted(got)) == 3
        for reservation in admitted(got):
            reservation.settle(70, CLOCK.now())
        await until_level(keeper, CLAIM, 90)


@virtually
async def test_what_comes_together_leaves_together() -> None:
    keeper = Keeper()
    async with sharing(keeper, SharingSettings(timeout_s=2.0, max_calls=1)) as shared:
        before = len(keeper.calls)
        got = await asyncio.gather(*(shared.obtain([CLAIM], 10) for _ in range(40)))
        assert len(admitted(got)) == 30
        assert len(keeper.calls) - before == 2
        assert keeper.most_at_once == 1


@virtually
async def test_steady_requests_need_few_calls() -> None:
    keeper = Keeper()
    async with sharing(keeper) as shared:
        before = len(keeper.calls)
        for _ in range(1000):
            got = await shared.obtain([WIDE], 100)
            assert isinstance(got, Reservation)
            got.settle(60, CLOCK.now())
        assert len(keeper.calls) - before < 300


@virtually
async def test_a_frozen_keeper_costs_one_wait_and_a_share_is_all_there_is() -> None:
    keeper = Keeper()
    told: list[Exception | None] = []
    async with sharing(keeper, SharingSettings(timeout_s=0.02)) as shared:
        shared.told = told.append
        shared.ledger.processes = 2
        keeper.running.clear()
        loop = asyncio.get_running_loop()
        spent = 0
        for _ in range(100):
            began = loop.time()
            if isinstance(await shared.obtain([CLAIM], 10), Reservation):
                spent += 10
            assert loop.time() - began < 1.0
        assert len(told) == 1 and isinstance(told[0], TimeoutError)
        assert spent == 150
        began = loop.time()
        for _ in range(100):
            await shared.obtain([CLAIM], 10)
        assert loop.time() - began < 0.5, "it waits although it knows"
        keeper.running.set()
        async with asyncio.timeout(5):
            while shared.alone:
                await asyncio.sleep(0.01)
        assert told[1:] == [None]
        await until_level(keeper, CLAIM, 150)
        assert isinstance(await shared.obtain([CLAIM], 200), Refusal)


@virtually
async def test_what_costs_more_than_was_reserved_is_on_the_share_of_a_process_alone() -> None:
    keeper, claim = Keeper(), Claim("tenant", "t", Limit(0.001, 3000.0))
    hasty = SharingSettings(timeout_s=0.02)
    async with sharing(keeper, hasty, lease_s=60) as shared:
        for _ in range(20):  # so that something is leased
            [one] = admitted([await shared.obtain([claim], 5)])
            one.settle(5, CLOCK.now())
        shared.ledger.processes = 2
        keeper.running.clear()
        while not shared.alone:
            await shared.obtain([claim], 2000)
        used = 0.0
        for _ in range(1000):
            for one in admitted([await shared.obtain([claim], 5)]):
                # The prompt is longer than was planned, the answer shorter.
                one.correct(25, CLOCK.now())
                one.settle(15, CLOCK.now())
                used += 15
        assert 1000 < used <= 1500 + 25


@virtually
async def test_what_a_share_cannot_owe_does_not_come_back_to_it() -> None:
    keeper, claim = Keeper(), Claim("tenant", "t", Limit(0.001, 3000.0))
    async with sharing(keeper, SharingSettings(timeout_s=0.02), lease_s=60) as shared:
        shared.ledger.processes = 2
        keeper.running.clear()
        while not shared.alone:
            await shared.obtain([claim], 2000)
        used = 0.0
        for _ in range(20):
            held = admitted(await asyncio.gather(*(shared.obtain([claim], 50) for _ in range(10))))
            for one in held:
                one.correct(1000, CLOCK.now())
            for one in held:
                one.settle(50, CLOCK.now())
                used += 50
        assert 1000 < used <= 1500


@virtually
async def test_a_slow_keeper_is_done_without_and_a_broken_one_too() -> None:
    for how in ("slow", "broken"):
        keeper = Keeper()
        async with sharing(keeper, SharingSettings(timeout_s=0.02)) as shared:
            keeper.delay_s, keeper.broken = (0.2, False) if how == "slow" else (0.0, True)
            for _ in range(5):
                await shared.obtain([CLAIM], 1)
            assert shared.alone


@virtually
async def test_calls_that_time_out_late_are_this_process_being_slow() -> None:
    keeper = Keeper()
    async with sharing(keeper, SharingSettings(timeout_s=0.02, max_calls=1)) as shared:
        keeper.running.clear()
        for _ in range(3):
            asked = asyncio.ensure_future(shared.obtain([CLAIM], 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            virtual_clock().advance(0.05)
            await asked
        assert not shared.alone
        async with asyncio.timeout(5):
            while not shared.statistics()["alone"]:
                await shared.obtain([CLAIM], 1)


@virtually
async def test_a_keeper_lost_again_and_again_is_looked_for_less_often() -> None:
    keeper = Keeper()
    async with sharing(keeper, SharingSettings(timeout_s=0.02)) as shared:
        for seconds in (0.25, 0.5, 1.0):
            keeper.broken = True
            while not shared.alone:
                await shared.obtain([CLAIM], 1)
            assert shared._probe_s == seconds
            keeper.broken = False
            await shared._probe()


@virtually
async def test_a_keeper_that_is_gone_at_the_start_is_found_later() -> None:
    keeper = Keeper()
    keeper.broken = True
    async with sharing(keeper) as shared:
        assert shared.statistics()["alone"]
        got = [await shared.obtain([CLAIM], 25) for _ in range(4)]
        assert len(admitted(got)) == 3  # a quarter of 300 for a process that knows no other
        keeper.broken = False
        async with asyncio.timeout(5):
            while shared.alone:
                await asyncio.sleep(0.01)
        await until_level(keeper, CLAIM, 225)


@virtually
async def test_waiting_for_a_place_in_a_call_is_no_outage() -> None:
    keeper = Keeper()
    settings = SharingSettings(timeout_s=0.2, max_calls=1)
    async with sharing(keeper, settings, lease_s=0.05) as shared:
        keeper.delay_s = 0.15
        first = asyncio.ensure_future(shared.obtain([CLAIM], 10))
        await asyncio.sleep(0.01)
        late = await asyncio.gather(*(shared.obtain([CLAIM], 1) for _ in range(3)))
        assert len(admitted(late)) == 3
        assert isinstance(await first, Reservation)
        assert not shared.alone
        assert shared.ledger.statistics()["decided_alone"] == 3
        keeper.delay_s = 0.0
        await until_level(keeper, CLAIM, 287)


@virtually
async def test_a_cold_start_with_shared_quotas_loses_little() -> None:
    """Nothing is leased yet, so every request is asked; what is leased meanwhile serves them, too.

    It were 337 of 400 where only those that came later were served from leases.
    """
    keeper = Keeper()
    keeper.delay_s = 0.003
    claim = Claim("tenant", "cold", Limit(1e-6, 40_000.0))
    async with sharing(keeper) as one, sharing(keeper) as two:
        got = await asyncio.gather(*((one, two)[at % 2].obtain([claim], 100) for at in range(400)))
        assert len(admitted(got)) >= 380  # 388; the rest is leased and comes back
        assert [each.ledger.statistics()["decided_alone"] for each in (one, two)] == [0, 0]


@virtually
async def test_connections_that_are_all_in_use_are_no_outage_and_lose_nothing() -> None:
    keeper = Keeper()
    async with sharing(keeper, lease_s=0.05) as shared:
        exchange, refused = keeper.exchange, 0

        async def full(call: QuotaCall) -> QuotaReply:
            nonlocal refused
            refused += 1
            raise AllInUse("All connections are in use.")

        keeper.exchange = full  # type: ignore[method-assign]
        got = [await shared.obtain([CLAIM], 10) for _ in range(5)]
        assert len(admitted(got)) == 5
        assert refused >= 5
        assert not shared.alone
        assert shared.ledger.statistics()["decided_alone"] == 5
        admitted(got)[0].settle(4, CLOCK.now())
        keeper.exchange = exchange  # type: ignore[method-assign]
        await until_level(keeper, CLAIM, 300 - 44)
        assert shared.ledger.statistics()["lost"] == 0


@pytest.mark.parametrize("sent", [False, True])
@virtually
async def test_who_leaves_while_waiting_holds_nothing(sent: bool) -> None:
    keeper = Keeper()
    async with sharing(keeper, SharingSettings(timeout_s=5.0, max_calls=1)) as shared:
        keeper.running.clear()
        tasks = [
            asyncio.ensure_future(shared.obtain([CLAIM], 100)) for _ in range(1 if sent else 2)
        ]
        await asyncio.sleep(0.01)
        if not sent:
            # The second waits for the call of the first to end.
            tasks.append(asyncio.ensure_future(shared.obtain([CLAIM], 100)))
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        keeper.running.set()
        await until_level(keeper, CLAIM, 300)
        assert shared.statistics()["waiting"] == 0


@virtually
async def test_cut_at_every_step_nothing_is_lost() -> None:
    keeper = Keeper()
    async with sharing(keeper) as shared:
        for steps in range(12):
            task = asyncio.ensure_future(shared.obtain([CLAIM], 100))
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                got = task.result()
                assert isinstance(got, Reservation)
                got.settle(0, CLOCK.now())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until_level(keeper, CLAIM, 300)


@virtually
async def test_unused_leases_go_back_by_themselves_and_at_the_end() -> None:
    keeper = Keeper()
    async with sharing(keeper, lease_s=0.05) as shared:
        for _ in range(50):
            got = await shared.obtain([WIDE], 100)
            assert isinstance(got, Reservation)
            got.settle(0, CLOCK.now())
        await until_level(keeper, WIDE, 1e6)
    keeper = Keeper()
    async with sharing(keeper, lease_s=60) as shared:
        for _ in range(50):
            got = await shared.obtain([WIDE], 100)
            assert isinstance(got, Reservation)
            got.settle(0, CLOCK.now())
    await shared.leave()
    assert keeper.level(WIDE) == pytest.approx(1e6)
    assert shared.ledger.statistics()["lost"] == 0


@virtually
async def test_reservations_of_a_bucket_that_refuses_go_together() -> None:
    keeper, limit = Keeper(), Limit(2000.0, 200.0)
    claim = Claim("tenant", "crowded", limit)
    async with sharing(keeper, lease_s=60) as shared:
        assert isinstance(await shared.obtain([claim], 200), Reservation)
        assert isinstance(await shared.obtain([claim], 100), Refusal)
        while isinstance(await shared.obtain([claim], 100), Refusal):
            await asyncio.sleep(0.002)
        before = keeper.reservations(), len(keeper.calls)
        one = asyncio.ensure_future(shared.obtain([claim], 1))
        await asyncio.sleep(0.001)
        two = asyncio.ensure_future(shared.obtain([claim], 1))
        assert isinstance(await one, Reservation)
        assert isinstance(await two, Reservation)
        assert keeper.reservations() - before[0] == 2
        assert len(keeper.calls) - before[1] == 1


@virtually
async def test_nobody_waits_for_company_where_nothing_was_refused() -> None:
    keeper = Keeper()
    async with sharing(keeper, SharingSettings(timeout_s=60.0), lease_s=60) as shared:
        assert isinstance(await shared.obtain([CLAIM], 1), Reservation)
        assert shared.ledger.statistics()["asked"] == 1
        assert keeper.reservations() == 1
