"""How many requests of a tenant are in work at once, in all processes that share its quotas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.errors import RateLimited
from forebay.policy.admission import (
    Admission,
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    PoolRule,
)
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.limit import LimitSettings
from forebay.policy.quota import (
    KeptPlaces,
    LeasedLedger,
    Limit,
    QuotaLedger,
    SharedQuotas,
    SharingSettings,
)
from tests.unit.policy.test_shared import Keeper

MOST, PROCESSES = 4, 3
CLOCK = SystemClock()
WHO = Claimant(tenant="t", max_in_flight=MOST)
SETTINGS = AdmissionSettings(limits=DimensionLimits(tenant=Limit(0.001, 1000.0)))
GATE = GateSettings(limit=LimitSettings(initial=64, most=64))


def desk(ledger: QuotaLedger | LeasedLedger) -> Desk:
    gates = {"p": PoolGate(GATE, ["r"])}
    return Desk(SETTINGS, [PoolRule("p", 10_000, 100)], gates, CLOCK, WallClock(), ledger)


def ask(tokens: int = 1) -> Ask:
    return Ask(WHO, "chat", "normal", CLOCK.now() + 5.0, tokens, cap=1)


@asynccontextmanager
async def processes(keeper: Keeper) -> AsyncIterator[list[Admission]]:
    """Several, and the one that keeps the quotas itself."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        made, tasks = [], []
        for number in range(PROCESSES - 1):
            ledger = LeasedLedger(1.0)
            shared = SharedQuotas(ledger, keeper, CLOCK, SharingSettings(2.0), f"p{number}")
            await shared.start()
            ledger.count(PROCESSES, CLOCK.now())
            tasks.append(group.create_task(shared.run()))
            stack.push_async_callback(shared.leave)
            made.append(Admission(desk(ledger), None, shared, None, shared.places))
        own = keeper.ledger
        made.append(Admission(desk(own), None, None, None, KeptPlaces(own.places, CLOCK)))
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def in_work(made: list[Admission], each: int) -> AsyncIterator[int]:
    """How many get in of ``each`` at every process, while they are in."""
    async with AsyncExitStack() as stack:
        let_in, refused = 0, []
        for _ in range(each):
            for one in made:
                try:
                    await stack.enter_async_context(one.admit(ask()))
                    let_in += 1
                except RateLimited as error:
                    refused.append(error)
        assert all("all its plan allows" in error.message for error in refused)
        assert {error.retry_after_s for error in refused} <= {1.0}
        yield let_in


async def test_all_processes_together_let_in_what_the_plan_allows() -> None:
    async with processes(Keeper()) as made:
        for _ in range(3):  # what has ended leaves its place
            async with in_work(made, 4) as let_in:
                assert let_in == MOST
        await made[0].charge(WHO, "chat", 900)
        for _ in range(MOST):
            with pytest.raises(RateLimited, match="token quota"):
                await _enter(made[0], 200)
        async with in_work(made, 4) as let_in:  # and who is refused for another reason
            assert let_in == MOST


async def test_one_process_may_have_them_all() -> None:
    async with processes(Keeper()) as made, in_work(made[:1], 6) as let_in:
        assert let_in == MOST
        assert made[-1].desk.statistics()["p"]["in_flight"] == 0


async def test_who_leaves_while_it_is_asked_leaves_nothing_behind() -> None:
    keeper = Keeper()
    async with processes(keeper) as made:
        keeper.delay_s = 0.02
        tasks = [asyncio.ensure_future(_enter(made[0])) for _ in range(MOST)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        keeper.delay_s = 0.0
        await asyncio.sleep(0.1)
        async with in_work(made, 4) as let_in:
            assert let_in == MOST


async def test_without_their_keeper_each_process_has_its_part() -> None:
    keeper = Keeper()
    async with processes(keeper) as made:
        keeper.broken = True
        async with asyncio.timeout(5):
            while not all(
                isinstance(one._shared, SharedQuotas) and one._shared.alone for one in made[:2]
            ):
                await asyncio.sleep(0.01)
                async with in_work(made[:2], 1):
                    pass
        async with in_work(made[:2], 4) as let_in:
            assert let_in == 2 * (MOST // PROCESSES)


async def _enter(made: Admission, tokens: int = 1) -> None:
    async with made.admit(ask(tokens)):
        await asyncio.sleep(5)
