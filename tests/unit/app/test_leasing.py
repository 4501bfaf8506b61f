"""Acknowledged means seen, in one process: an authority that does what a test says."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
import pytest

from forebay.app.leasing import History, LeaseParts, VersionLeases
from forebay.coordination.leases import LeaseTable
from forebay.kernel.errors import Unavailable
from forebay.kernel.leases import Claim, LeaseCall, Pending
from forebay.testing.leases import FakeVersionAuthority
from tests.unit.policy.virtual_loop import LoopClock, virtually

CLOCK = LoopClock()


class Leased(NamedTuple):
    leases: VersionLeases
    authority: FakeVersionAuthority
    shown: dict[str, int]
    marks: dict[int, int]

    async def change(self) -> float:
        """Commit one version; how long its acknowledgement took."""
        began = CLOCK.now()
        async with self.leases.changing("kb") as change:
            self.shown["kb"] += 1
        assert change is not None
        await change.settled()
        return CLOCK.now() - began


LEASE_S = 0.2


@pytest.fixture
def leased() -> Leased:
    shown, marks = {"kb": 5}, {number: number for number in range(200)}
    table = LeaseTable()
    done = (Pending("kb", 5, "", f"{5:016x}"),)
    table.carry_out(LeaseCall("before", LEASE_S, (Claim("kb", "", held=True),), done=done), -1.0)
    authority = FakeVersionAuthority(table.carry_out, CLOCK)
    return Leased(VersionLeases(writing(authority, shown, marks)), authority, shown, marks)


def parts(authority: FakeVersionAuthority, shown: dict[str, int]) -> LeaseParts:
    """Of a process that reads."""
    return LeaseParts(authority, frozenset({"kb"}), LEASE_S, shown.get, CLOCK, None)


def writing(
    authority: FakeVersionAuthority, shown: dict[str, int], marks: dict[int, int]
) -> LeaseParts:
    """Of a process that writes."""

    async def mark(kb: str, version: int) -> int | None:
        return marks.get(version)

    history = History("store", mark, lambda kb: f"key of {kb}")
    return msgspec.structs.replace(parts(authority, shown), history=history)


@virtually
async def test_alone_a_change_is_acknowledged_at_once(leased: Leased) -> None:
    await leased.leases.renew()
    assert leased.leases.leased("kb", 5) and leased.leases.leased("other", 1)
    assert await leased.change() < LEASE_S / 2
    assert leased.leases.leased("kb", 6) and not leased.leases.leased("kb", 5)
    assert len(leased.authority.calls) == 4, "what is in force, renewal, announcement, done"


@virtually
async def test_a_process_that_left_or_ran_out_is_not_waited_for(leased: Leased) -> None:
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    took = await leased.change()
    assert LEASE_S * 0.9 < took < LEASE_S * 2
    other = VersionLeases(parts(leased.authority, {"kb": 6}))
    await other.renew()
    await other.leave()
    assert not other.leased("kb", 6)
    assert await leased.change() < LEASE_S / 2


@virtually
async def test_who_confirms_is_not_waited_for(leased: Leased) -> None:
    shown = {"kb": 5}
    other = VersionLeases(parts(leased.authority, shown))
    await other.renew()
    behind = asyncio.Event()
    other.behind = behind.set
    changing = asyncio.ensure_future(leased.change())
    await asyncio.sleep(LEASE_S / 10)
    await other.renew()
    assert behind.is_set() and not changing.done()
    shown["kb"] = 6
    await other.renew()
    assert await changing < LEASE_S / 2


@virtually
async def test_lost_before_the_commit_it_is_refused_after_it_acknowledged_when_leases_are_over(
    leased: Leased,
) -> None:
    leased.authority.lost = True
    with pytest.raises(Unavailable):
        await leased.change()
    assert leased.shown == {"kb": 5}
    calls = len(leased.authority.calls)
    with pytest.raises(Unavailable):
        await leased.change()
    assert len(leased.authority.calls) == calls, "known to be away: refused without a wait"
    assert leased.leases.shortcomings()
    leased.authority.lost = False
    await leased.leases.renew()
    assert not leased.leases.shortcomings()
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    began = CLOCK.now()
    async with leased.leases.changing("kb") as change:
        leased.shown["kb"] = 6
        leased.authority.lost = True
    assert change is not None
    await change.settled()
    assert LEASE_S < CLOCK.now() - began < LEASE_S * 2
    assert not other.leased("kb", 5)
    leased.authority.lost = False
    await leased.leases.renew()
    await other.renew()
    assert not other.leased("kb", 5)


@virtually
async def test_what_a_dead_writer_left_is_repaired(leased: Leased) -> None:
    claims, begun = (Claim("kb", "", 5, f"{5:016x}"),), (Pending("kb", 5, "dead.1"),)
    await leased.authority.exchange(LeaseCall("dead", LEASE_S / 10, claims, begun))
    await asyncio.sleep(LEASE_S / 5)
    await leased.leases.renew()
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert grant.change == "" and grant.lasts_s > LEASE_S * 0.99
    leased.authority.carry_out = LeaseTable().carry_out
    await leased.leases.renew()
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert grant.version == 5


@virtually
async def test_a_dropped_kb_is_confirmed_by_who_has_it_no_more(leased: Leased) -> None:
    shown = {"kb": 5}
    other = VersionLeases(parts(leased.authority, shown))
    await other.renew()

    async def drop() -> None:
        async with leased.leases.changing("kb") as change:
            del leased.shown["kb"]
        assert change is not None
        await change.settled()

    began = CLOCK.now()
    dropping = asyncio.ensure_future(drop())
    await asyncio.sleep(LEASE_S / 10)
    del shown["kb"]
    await other.renew()
    await other.renew()
    await dropping
    assert CLOCK.now() - began < LEASE_S / 2
    for each in (shown, leased.shown):
        each["kb"] = 9  # made anew
    await leased.leases.renew()
    await other.renew()
    assert other.leased("kb", 9)


@virtually
async def test_failed_changes_leave_nothing_pending(leased: Leased) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with leased.leases.changing("kb"):
                raise ZeroDivisionError
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert (grant.version, grant.change) == (5, "")


@virtually
async def test_many_changes_settle_with_few_questions(leased: Leased) -> None:
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    began = CLOCK.now()
    await asyncio.gather(*(leased.change() for _ in range(50)))
    assert CLOCK.now() - began < LEASE_S * 2
    assert len(leased.authority.calls) < 50 * 2 + 40


@virtually
async def test_a_newcomer_is_refused_and_hears_why_once(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    await leased.leases.renew()
    newcomer = VersionLeases(writing(leased.authority, {"kb": 5}, {5: 5}))
    renewing = asyncio.ensure_future(leased.leases.run())
    with pytest.raises(Unavailable, match=r"another server .* nothing was changed"):
        async with newcomer.changing("kb"):
            pass
    renewing.cancel()
    assert caplog.text.count("changes of kb are refused") == 1
    assert newcomer.shortcomings() and not leased.leases.shortcomings()
    await leased.change()
    await leased.leases.leave()
    for _ in range(3):
        with pytest.raises(Unavailable, match="delete the key key of kb"):
            async with newcomer.changing("kb"):
                pass
    assert caplog.text.count("changes of kb are refused") == 2
    again = VersionLeases(writing(leased.authority, {"kb": 6}, leased.marks))
    async with again.changing("kb"):
        pass


@virtually
async def test_a_restart_waits_for_what_its_predecessor_left(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    await leased.leases.renew()
    began = CLOCK.now()
    again = VersionLeases(writing(leased.authority, {"kb": 5}, leased.marks))
    async with again.changing("kb"):
        pass
    assert CLOCK.now() - began < LEASE_S * 1.3
    assert not caplog.records and not again.shortcomings()


@virtually
async def test_who_lost_its_place_within_a_change_does_not_acknowledge_it(leased: Leased) -> None:
    await leased.leases.renew()
    async with leased.leases.changing("kb") as change:
        leased.shown["kb"] = 6
        await asyncio.sleep(LEASE_S * 1.1)
        other = VersionLeases(writing(leased.authority, {"kb": 5}, {5: 5, 6: 66}))
        await other.renew()
    assert change is not None
    with pytest.raises(Unavailable, match="not in force"):
        await change.settled()


@virtually
async def test_a_kb_that_was_dropped_and_made_anew_is_known_by_its_new_mark(leased: Leased) -> None:
    async with leased.leases.changing("kb") as change:
        del leased.shown["kb"], leased.marks[6]
    assert change is not None
    await change.settled()
    leased.shown["kb"], leased.marks[6] = 6, 66
    await leased.leases.renew()
    await leased.leases.leave()
    again = VersionLeases(writing(leased.authority, leased.shown, leased.marks))
    await again.renew()
    async with again.changing("kb"):
        pass
