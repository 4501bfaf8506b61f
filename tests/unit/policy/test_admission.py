"""Reserve, wait, be placed, correct, settle: over real tasks, with the loop's own time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import msgspec
import pytest

from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.errors import (
    ConfigError,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    InvalidRequest,
    Overloaded,
    PermissionDenied,
    RateLimited,
)
from forebay.policy.admission import (
    AccessRule,
    Admission,
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    Permit,
    PoolRule,
)
from forebay.policy.engine_gate import EngineGate
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings
from forebay.policy.quota import Limit

SLOW = Limit(rate_per_s=0.001, burst=300)
WHO = Claimant(key="k", user="u", tenant="shop", ip="10.0.0.1")


def pool(slots: int = 4, queue: int = 8) -> PoolGate:
    return PoolGate(
        GateSettings(
            queue=QueueSettings(max_waiting=queue),
            limit=LimitSettings(initial=slots, most=slots),
        ),
        ["r0"],
    )


def admission(
    settings: AdmissionSettings | None = None, slots: int = 4, queue: int = 8
) -> Admission:
    rules = (
        PoolRule("short", 1000, 200, spill_to=("long",)),
        PoolRule("long", 8000, 2000),
        PoolRule("vip", 8000, 2000, tenants=frozenset({"bank"})),
    )
    gates = {rule.name: pool(slots, queue) for rule in rules}
    desk = Desk(settings or AdmissionSettings(), rules, gates, SystemClock(), WallClock())
    return Admission(desk)


def limited(**limits: Limit) -> AdmissionSettings:
    return AdmissionSettings(limits=DimensionLimits(**limits))


def ask(
    input_tokens: int = 40,
    cap: int | None = 60,
    who: Claimant = WHO,
    within_s: float = 5.0,
    passages: int = 0,
) -> Ask:
    return Ask(
        who=who,
        route="chat",
        priority="normal",
        deadline_at=SystemClock().now() + within_s,
        input_tokens=input_tokens,
        cap=cap,
        passages=passages,
    )


def level(made: Admission, dimension: str) -> float:
    claims = made.desk._book.claims(WHO, 0.0)
    claim = next(one for one in claims if one.dimension == dimension)
    left = made.desk.ledger.remaining([claim], made.desk.clock.now())
    assert left is not None
    return left[1]


async def test_three_of_five_enter_a_bucket_of_three_hundred_and_refunds_come_back() -> None:
    made = admission(limited(tenant=SLOW))
    refused: list[RateLimited] = []
    async with AsyncExitStack() as stack:
        for _ in range(5):
            try:
                permit = await stack.enter_async_context(made.admit(ask()))
            except RateLimited as error:
                refused.append(error)
            else:
                permit.began(40)
                permit.produced(40, 30, whole=True)
        assert len(refused) == 2
        assert refused[0].retry_after_s > 60
        assert "tenant" in refused[0].message
    assert level(made, "tenant") == pytest.approx(90, abs=0.1)


async def test_no_cap_is_clamped_and_a_prompt_over_the_burst_is_told_so_for_good() -> None:
    made = admission(limited(tenant=Limit(0.001, 100)))
    async with made.admit(ask(10, None)) as permit:
        assert permit.max_output_tokens == 90
        assert level(made, "tenant") == pytest.approx(0, abs=0.1)
    async with made.admit(ask(10, 5000)) as permit:
        assert permit.max_output_tokens == 90
        assert permit.clamped
    with pytest.raises(InvalidRequest, match="more than the 100") as caught:
        async with made.admit(ask(150, 10)):
            pass
    assert caught.value.code == "quota_too_small"
    assert level(made, "tenant") == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(
    ("tokens", "passages", "said"),
    [
        (8, 5, "about 8 of them, the planned passages and the prompt around them the others: ask"),
        (450, 5, "fewer passages (forebay.top_k), or have burst_tokens"),
        (1400, 1, "others: shorten them, or have burst_tokens of the quota raised."),
        (1600, 0, "about 1600 of them, the answer the others: shorten them, or"),
        (1450, 5, "others: have burst_tokens of the quota raised."),
    ],
)
async def test_what_a_quota_can_never_pay_for_is_told_with_what_would_help(
    tokens: int, passages: int, said: str
) -> None:
    made = admission(limited(tenant=Limit(0.001, 1500)))
    with pytest.raises(InvalidRequest) as caught:
        async with made.admit(ask(tokens, 10, passages=passages)):
            pass
    assert said in caught.value.message
    assert caught.value.code == "quota_too_small"


async def test_a_refusal_by_one_dimension_leaves_the_others_untouched() -> None:
    made = admission(limited(tenant=SLOW, user=Limit(0.001, 100), ip=SLOW, all=SLOW))
    async with made.admit(ask()):
        with pytest.raises(RateLimited, match="this user"):
            async with made.admit(ask()):
                pass
        assert [round(level(made, name)) for name in ("tenant", "user", "ip", "all")] == [
            200,
            0,
            200,
            200,
        ]
    assert level(made, "user") == pytest.approx(100, abs=0.1)


async def test_the_prompt_that_was_built_corrects_and_debt_is_paid_later() -> None:
    made = admission(limited(tenant=SLOW))
    async with made.admit(ask(passages=0)) as permit:
        await permit.built(240)
        assert level(made, "tenant") == pytest.approx(0, abs=0.1)
        permit.began(240)
        permit.produced(240, 100, whole=True)
    assert level(made, "tenant") == pytest.approx(-40, abs=0.1)
    with pytest.raises(RateLimited):
        async with made.admit(ask(1, 1)):
            pass


async def test_planned_passages_are_reserved() -> None:
    made = admission(limited(tenant=Limit(0.001, 5000)))
    async with made.admit(ask(passages=2)):
        assert level(made, "tenant") == pytest.approx(5000 - (40 + 200 + 800 + 60), abs=0.1)


async def test_denied_allowed_and_factor() -> None:
    settings = AdmissionSettings(
        limits=DimensionLimits(tenant=SLOW),
        rules=(
            AccessRule("ip", "6.6.6.6", deny=True),
            AccessRule("tenant", "friend"),
            AccessRule("tenant", "small", limit=Limit(0.001, 50)),
        ),
        load_factor=0.5,
    )
    made = admission(settings)
    with pytest.raises(PermissionDenied):
        async with made.admit(ask(who=Claimant(ip="6.6.6.6"))):
            pass
    # Where an answer is told again this is all that is asked: the long way says why it is not.
    assert not made.charge_at_once(Claimant(ip="6.6.6.6"), "chat", 10)
    assert made.charge_at_once(Claimant(ip="6.6.6.7"), "chat", 10)
    async with made.admit(ask(900, 100, Claimant(tenant="friend"))):
        pass
    with pytest.raises(InvalidRequest):
        async with made.admit(ask(40, 60, Claimant(tenant="small"))):
            pass
    async with made.admit(ask()) as permit:
        assert permit.rate is not None
        assert permit.rate.limit_tokens == 150
        assert permit.rate.remaining_tokens in (49, 50)
        assert permit.rate.reset_s == pytest.approx(100 / 0.0005, rel=0.01)
    made.replace(AdmissionSettings(limits=DimensionLimits(tenant=SLOW)))
    async with made.admit(ask(40, 160)):
        pass
    with pytest.raises(ConfigError, match="both denies"):
        AccessRule("ip", "1.2.3.4", deny=True, limit=SLOW)
    for network in ("10.0.0.0/8", "10.0.0.", "gateway"):
        with pytest.raises(ConfigError, match="an ip is one address"):
            AccessRule("ip", network, deny=True)
    with pytest.raises(ConfigError, match="named all"):
        AccessRule("all", "everybody", deny=True)
    with pytest.raises(ConfigError, match="no cost profile"):
        AdmissionSettings(profile="tokenz")


@pytest.mark.parametrize("written", ["2001:DB8::1", "2001:db8:0:0::1", "2001:db8::0001"])
async def test_an_address_is_denied_however_it_is_written(written: str) -> None:
    made = admission(AdmissionSettings(rules=(AccessRule("ip", written, deny=True),)))
    with pytest.raises(PermissionDenied):
        async with made.admit(ask(who=Claimant(ip="2001:db8::1"))):
            pass


async def test_pools_by_size_and_tenant_and_spill() -> None:
    made = admission(slots=1)
    async with made.admit(ask()) as first:
        assert first.pool == "short"
        async with made.admit(ask()) as second:
            assert second.pool == "long"
    async with made.admit(ask(2000)) as permit:
        assert permit.pool == "long"
    async with made.admit(ask(cap=1500)) as permit:
        assert (permit.pool, permit.max_output_tokens) == ("long", 1500)
    async with made.admit(ask(cap=None)) as permit:
        assert (permit.pool, permit.max_output_tokens) == ("short", 200)
    async with made.admit(ask(who=Claimant(tenant="bank"))) as permit:
        assert permit.pool == "vip"
    with pytest.raises(ContextTooLong, match="8000"):
        async with made.admit(ask(9000)):
            pass


async def test_waiting_ends_by_room_refusal_or_deadline() -> None:
    made = admission(slots=1, queue=1)
    async with AsyncExitStack() as stack:
        for _ in range(2):  # both pools a short request may use
            await stack.enter_async_context(made.admit(ask()))
        waiter = asyncio.get_running_loop().create_task(_enter(made, ask()))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="waiting") as caught:
            async with made.admit(ask()):
                pass
        assert caught.value.code == "overloaded_queue_full"
        assert caught.value.retry_after_s >= 1
    assert (await waiter).pool == "short"
    async with made.admit(ask()), made.admit(ask()):
        with pytest.raises(Overloaded, match="deadline"):
            await _enter(made, ask(within_s=0.02))
    _nothing_is_held(made)


async def test_a_tenants_requests_in_work_are_bounded() -> None:
    made = admission()
    who = Claimant(tenant="t", max_in_flight=1)
    async with made.admit(ask(who=who)):
        with pytest.raises(RateLimited, match="in work"):
            async with made.admit(ask(who=who)):
                pass
    async with made.admit(ask(who=who)):
        pass
    with made.desk.attended(who), pytest.raises(RateLimited, match="in work"):
        async with made.admit(ask(who=who)):
            pass
    async with made.admit(ask(who=who)):
        with pytest.raises(RateLimited, match="in work"), made.desk.attended(who):
            pass
    _nothing_is_held(made)


@pytest.mark.parametrize("produced", [None, 0, 5])
async def test_who_is_cut_pays_for_what_was_used(produced: int | None) -> None:
    made = admission(limited(tenant=SLOW), slots=1)
    started = asyncio.Event()

    async def work() -> None:
        async with made.admit(ask()) as permit:
            if produced is not None:
                permit.began(40)
                permit.produced(40, produced, whole=False)
            started.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await started.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    used = 0 if produced is None else 40 + produced
    assert level(made, "tenant") == pytest.approx(300 - used, abs=0.1)
    assert made.desk.estimates.statistics()["kinds"] == 0
    _nothing_is_held(made)


async def test_a_thousand_cuts_at_every_stage_leave_nothing_behind() -> None:
    made = admission(limited(tenant=Limit(1e6, 1e6)), slots=2, queue=16)
    entered = 0

    async def work(number: int) -> None:
        nonlocal entered
        async with made.admit(ask()) as permit:
            entered += 1
            for step in range(number % 5):
                await asyncio.sleep(0)
                if step == 1:
                    permit.began(40)
                permit.token()
            if number % 7 == 0:
                raise ValueError("a stage failed")

    async def cut(number: int) -> None:
        task = asyncio.get_running_loop().create_task(work(number))
        for _ in range(number % 6):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError, Overloaded, ValueError):
            await task

    for begin in range(0, 1000, 20):
        await asyncio.gather(*(cut(number) for number in range(begin, begin + 20)))
    assert entered > 100
    _nothing_is_held(made)


async def test_lengths_are_learned_from_whole_answers() -> None:
    made = admission(limited(tenant=Limit(1e6, 10_000)))
    for _ in range(50):
        async with made.admit(ask(cap=200)) as permit:
            permit.began(40)
            permit.produced(40, 20, whole=True)
    async with made.admit(ask(cap=200)) as permit:
        assert permit.max_output_tokens == 200
        assert permit.entry.ticket.output_tokens <= 22


async def test_a_tick_lets_go_on_who_waits_for_a_rest_to_end() -> None:
    made = admission(slots=1)
    for gate in made.desk.gates.values():
        gate.hold = 0.0
        for request in range(3):
            began_at = made.desk.clock.now() - 0.99
            gate.health[0].began(request, began_at)
            gate.health[0].ended(request, began_at, ok=False)
    waiter = asyncio.get_running_loop().create_task(_enter(made, ask()))
    await asyncio.sleep(0.03)
    made.tick()
    assert (await waiter).replica == 0


async def _enter(made: Admission, wanted: Ask) -> Permit:
    async with made.admit(wanted) as permit:
        return permit


def _nothing_is_held(made: Admission) -> None:
    statistics = made.statistics()
    for name in made.desk.gates:
        figures = statistics[name]
        assert figures["in_flight"] == figures["in_flight_cost"] == 0
        assert figures["queue_waiting"] == 0
    assert len(made._waiters) == 0
    assert not made.desk._in_work


async def test_parts_of_a_text_have_the_size_of_the_whole() -> None:
    gates = {"engines": EngineGate(GateSettings(), ["one"])}
    rules = (PoolRule("engines", 16_000, 2000),)
    desk = Desk(AdmissionSettings(), rules, gates, SystemClock(), WallClock())
    made = Admission(desk)
    part = ask(1000, 200)
    async with made.admit(ask(4000, 800)) as whole_text:
        expected = whole_text.entry.ticket.band
    async with made.admit(part) as alone:
        assert alone.entry.ticket.band < expected
    async with made.hold([part] * 4) as whole:
        ask_of_part = msgspec.structs.replace(part, whole=whole)
        async with made.admit(ask_of_part) as permit:
            assert permit.entry.ticket.band == expected


@pytest.mark.parametrize(
    ("error", "ejected"),
    [
        (EngineRefused("its prompt", status=400), False),
        (EngineRefused("its wrong key", status=401), True),
        (DeadlineExceeded("in a hurry"), False),
        (EngineError("broken"), True),
    ],
)
async def test_only_its_own_failures_take_an_engine_from_everybody(
    error: Exception, ejected: bool
) -> None:
    made = admission()
    for _ in range(3):
        with pytest.raises(type(error)):
            await _fail(made, error)
    assert (made.desk.gates["short"].health[0].state == "ejected") is ejected
    _nothing_is_held(made)


async def _fail(made: Admission, error: Exception) -> None:
    async with made.admit(ask()) as permit:
        permit.began(40)
        raise error


async def test_a_slow_search_does_not_speak_against_the_engine() -> None:
    made = admission()
    health = made.desk.gates["short"].health[0]
    async with made.admit(ask(within_s=600.0)) as permit:
        later = made.desk.clock.now() + 60.0
        assert health.admits(later)
        permit.began(40)
        assert not health.admits(later)


async def test_passages_that_no_pool_has_room_for_are_not_planned() -> None:
    made = admission()
    async with made.admit(ask(input_tokens=7000, passages=5)) as permit:
        assert permit.entry.ticket.input_tokens == 8000
    with pytest.raises(ContextTooLong):
        async with made.admit(ask(input_tokens=7900, passages=5)):
            pass
    assert made.desk.room("shop", "normal") == 7800


async def test_parts_are_charged_together_placed_one_by_one_and_settled_by_their_sum() -> None:
    made = admission(limited(tenant=Limit(rate_per_s=0.001, burst=1000)))
    who = Claimant(tenant="shop", max_in_flight=1)
    parts = [ask(input_tokens=200, cap=50, who=who) for _ in range(3)]
    async with made.hold(parts) as whole:
        assert level(made, "tenant") == pytest.approx(250, abs=0.1)
        with pytest.raises(RateLimited, match="1 requests in work"):
            async with made.admit(ask(who=who)):
                pass
        for one in parts:
            under = msgspec.structs.replace(one, whole=whole)
            async with made.admit(under) as permit:
                assert permit.rate == whole.rate
                await permit.built(190)
                permit.began(190)
                permit.produced(190, 10, whole=True)
        assert level(made, "tenant") == pytest.approx(250, abs=0.1)
    assert level(made, "tenant") == pytest.approx(400, abs=0.1)
    with pytest.raises(RateLimited):
        async with made.hold(parts):
            pass
    _nothing_is_held(made)


async def test_parts_that_are_cut_pay_for_what_was_used_and_no_more() -> None:
    made = admission(limited(tenant=Limit(rate_per_s=0.001, burst=1000)))
    part = ask(input_tokens=200, cap=50)
    with suppress(EngineError):
        async with AsyncExitStack() as stack:
            whole = await stack.enter_async_context(made.hold([part, part]))
            under = msgspec.structs.replace(part, whole=whole)
            permit = await stack.enter_async_context(made.admit(under))
            permit.began(200)
            permit.produced(200, 5, whole=False)
            raise EngineError("broken")
    assert level(made, "tenant") == pytest.approx(795, abs=0.1)
    _nothing_is_held(made)
