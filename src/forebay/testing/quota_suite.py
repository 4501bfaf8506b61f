"""What every authority over shared quotas keeps to; a test class inherits it, fixtures fill it.

The buckets of these tests refill so slowly that time does not matter, but where it is the point.
"""

from __future__ import annotations

import asyncio
import math
import secrets

from forebay.kernel.quotas import QuotaAuthority, QuotaCall, QuotaReply, SharedBucket, WorkPlaces

SLOW_PER_S = 1e-6


def near(value: float, expected: float, within: float = 0.01) -> bool:
    """Whether two numbers differ by no more than ``within``."""
    return abs(value - expected) <= within


def new_name() -> str:
    """A key nobody used before, with everything in it that a key may hold."""
    return f"租户/{secrets.token_hex(6)} {{x}}:*\n"


def told(process: str, number: int, *places: WorkPlaces) -> QuotaCall:
    """A call that only tells of places at work."""
    return QuotaCall(process=process, places=places, number=number)


class AuthorityConformance:
    """Give it a fixture ``authority``; every test takes buckets of its own."""

    async def test_a_bucket_is_full_and_pays_each_reservation_in_order(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        bucket = SharedBucket("tenant", name, SLOW_PER_S, 300.0)
        reply = await authority.exchange(QuotaCall((bucket,), (((0, 100.0),),) * 5))
        assert reply.refusals[:3] == (None, None, None)
        assert near(reply.levels[0], 0)
        for refusal in reply.refusals[3:]:
            assert refusal is not None
            assert refusal[0] == 0
            assert near(refusal[1], 100 / SLOW_PER_S, within=1 / SLOW_PER_S)

    async def test_all_buckets_of_a_reservation_pay_or_none(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        buckets = (
            SharedBucket("user", name, SLOW_PER_S, 1000.0),
            SharedBucket("tenant", name, 1.0, 150.0),
            SharedBucket("ip", name, 0.5, 100.0),
        )
        wanted = (
            ((0, 60.0), (1, 60.0), (2, 60.0)),
            ((0, 60.0), (1, 60.0), (2, 60.0)),
            ((0, 60.0), (1, 60.0)),
        )
        reply = await authority.exchange(QuotaCall(buckets, wanted))
        assert reply.refusals[0] is None and reply.refusals[2] is None
        refusal = reply.refusals[1]
        assert refusal is not None
        assert refusal[0] == 2
        assert near(refusal[1], 40, within=1)
        assert near(reply.levels[0], 880)
        assert near(reply.levels[1], 30, within=1)
        assert near(reply.levels[2], 40, within=1)

    async def test_an_amount_over_the_burst_can_never_be_paid(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        bucket = SharedBucket("tenant", name, 1000.0, 100.0)
        reply = await authority.exchange(QuotaCall((bucket,), (((0, 150.0),),)))
        assert reply.refusals == ((0, math.inf),)
        assert near(reply.levels[0], 100)

    async def test_charges_go_into_debt_of_one_burst_and_refunds_to_the_brim(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()

        for charge, level, untaken in (
            (250.0, -50, 0),
            (1000.0, -200, 850),
            (-230.0, 30, 0),
            (-1000.0, 200, 0),
            (50.0, 150, 0),
        ):
            bucket = SharedBucket("tenant", name, SLOW_PER_S, 200.0, charge)
            reply = await authority.exchange(QuotaCall((bucket,)))
            assert near(reply.levels[0], level)
            assert near(reply.untaken[0], untaken)

    async def test_refunds_of_a_call_pay_its_reservations(self, authority: QuotaAuthority) -> None:
        name = new_name()
        empty = SharedBucket("tenant", name, SLOW_PER_S, 100.0, 100.0)
        await authority.exchange(QuotaCall((empty,)))
        back = SharedBucket("tenant", name, SLOW_PER_S, 100.0, -40.0)
        reply = await authority.exchange(QuotaCall((back,), (((0, 40.0),),)))
        assert reply.refusals == (None,)
        assert near(reply.levels[0], 0)

    async def test_a_lease_is_a_tenth_of_what_is_left_and_never_less_than_a_request(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()

        async def lent(extra: float, unit: float) -> QuotaReply:
            bucket = SharedBucket("tenant", name, SLOW_PER_S, 1000.0, 0.0, extra, unit)
            return await authority.exchange(QuotaCall((bucket,)))

        assert near((await lent(60.0, 10.0)).extras[0], 60)
        reply = await lent(500.0, 10.0)
        assert near(reply.extras[0], 94)
        assert near(reply.levels[0], 846)
        assert (await lent(500.0, 90.0)).extras[0] == 0

    async def test_time_refills(self, authority: QuotaAuthority) -> None:
        name = new_name()
        bucket = SharedBucket("tenant", name, 1000.0, 200.0, 200.0)
        first = (await authority.exchange(QuotaCall((bucket,)))).levels[0]
        await asyncio.sleep(0.05)
        bucket = SharedBucket("tenant", name, 1000.0, 200.0)
        later = (await authority.exchange(QuotaCall((bucket,)))).levels[0]
        assert near(first, 0)
        assert 45 <= later <= 200

    async def test_under_another_limit_what_was_used_stays_used(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        used = SharedBucket("tenant", name, SLOW_PER_S, 300.0, 100.0)
        await authority.exchange(QuotaCall((used,)))
        for burst, level in ((500.0, 400.0), (150.0, 50.0), (300.0, 200.0)):
            bucket = SharedBucket("tenant", name, SLOW_PER_S, burst)
            reply = await authority.exchange(QuotaCall((bucket,)))
            assert near(reply.levels[0], level)

    async def test_buckets_of_other_dimensions_and_keys_are_others(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        buckets = (
            SharedBucket("tenant", name, SLOW_PER_S, 100.0, 60.0),
            SharedBucket("user", name, SLOW_PER_S, 100.0, 30.0),
            SharedBucket("tenant", name + "2", SLOW_PER_S, 100.0),
        )
        reply = await authority.exchange(QuotaCall(buckets))
        assert all(map(near, reply.levels, (40, 70, 100)))

    async def test_processes_that_name_themselves_are_counted(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        before = (await authority.exchange(QuotaCall(process=name))).processes
        assert (await authority.exchange(QuotaCall(process=name))).processes == before
        assert (await authority.exchange(QuotaCall(process=name + "2"))).processes == before + 1
        assert (await authority.exchange(QuotaCall())) == QuotaReply()

    async def test_calls_at_once_are_carried_out_one_by_one(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        bucket = SharedBucket("tenant", name, SLOW_PER_S, 1000.0)
        call = QuotaCall((bucket,), (((0, 100.0),),))
        replies = await asyncio.gather(*(authority.exchange(call) for _ in range(16)))
        assert sum(reply.refusals == (None,) for reply in replies) == 10

    async def test_places_are_given_while_there_are_any_and_come_back_when_told(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()

        async def say(process: str, number: int, held: int, wanted: int) -> tuple[int, int]:
            reply = await authority.exchange(
                told(process, number, WorkPlaces(name, 4, held, wanted))
            )
            return reply.places[0]

        assert await say("a", 1, 0, 3) == (3, 1)
        assert await say("b", 1, 0, 2) == (1, 0)
        assert await say("b", 2, 1, 1) == (0, 0)
        assert await say("a", 2, 1, 0) == (0, 2)
        assert await say("b", 3, 1, 5) == (2, 0)
        assert await say("a", 3, 0, 0) == (0, 1)

    async def test_what_a_process_holds_is_so_even_where_it_is_too_much(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        for number, process in enumerate("ab"):
            held = WorkPlaces(name, 4, 3, 1)
            reply = await authority.exchange(told(process, 1, held))
            assert reply.places == ((1, 0) if number == 0 else (0, 0),)
        smaller = await authority.exchange(told("b", 2, WorkPlaces(name, 2, 1, 1)))
        assert smaller.places == ((0, 0),)

    async def test_a_call_about_places_that_comes_late_changes_none(
        self, authority: QuotaAuthority
    ) -> None:
        name = new_name()
        assert (await authority.exchange(told("a", 7, WorkPlaces(name, 4, 3)))).places == ((0, 1),)
        late = await authority.exchange(told("a", 6, WorkPlaces(name, 4, 0, 2)))
        assert late.places == ((0, 0),)
        other = await authority.exchange(told("b", 1, WorkPlaces(name, 4, 0, 4)))
        assert other.places == ((1, 0),)

    async def test_places_on_top_are_a_tenth_of_what_is_left(
        self, authority: QuotaAuthority
    ) -> None:
        names = new_name(), new_name()
        wide, narrow = (
            WorkPlaces(name, most, 0, 1, 40) for name, most in zip(names, (101, 10), strict=True)
        )
        reply = await authority.exchange(told("a", 1, wide, narrow))
        assert reply.places == ((11, 90), (1, 9))
        assert reply.processes >= 1
