"""Leased balances: exact where little is left, few calls where much is, never over the limit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.kernel.clock import VirtualClock
from forebay.policy.quota import (
    Claim,
    LeasedLedger,
    LedgerAuthority,
    Limit,
    QuotaLedger,
    Refusal,
    Reservation,
)
from forebay.policy.quota.leased import Sent

LEASE_S = 0.5
SMALL = Limit(rate_per_s=1.0, burst=300.0)


class Fleet:
    """Processes around one authority, on a clock of their own."""

    def __init__(self, processes: int) -> None:
        self.clock = VirtualClock()
        self.ledger = QuotaLedger()
        self.authority = LedgerAuthority(self.ledger, self.clock)
        self.leased = [LeasedLedger(LEASE_S) for _ in range(processes)]
        self.calls = 0

    def carry(self, process: int, sent: Sent) -> None:
        self.calls += 1
        reply = self.authority.carry_out(sent.call)
        self.leased[process].done(sent, reply, self.clock.now())

    def reserve(
        self, process: int, claims: Sequence[Claim], amount: float
    ) -> Reservation | Refusal:
        leased, now = self.leased[process], self.clock.now()
        got = leased.held(claims, amount, now) or leased.refused(claims, amount, now)
        if got is None:
            asked = leased.ask(claims, amount, now)
            self.carry(process, leased.call([asked], now))
            got = asked.result
        assert got is not None
        return got

    def beat(self) -> None:
        for process, leased in enumerate(self.leased):
            self.carry(process, leased.call((), self.clock.now(), f"p{process}"))

    def level(self, claim: Claim) -> float:
        return self.ledger.bucket(claim, self.clock.now()).level(self.clock.now())


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_three_of_five_enter_a_bucket_of_three_hundred(processes: int) -> None:
    fleet, claim = Fleet(processes), Claim("tenant", "t", Limit(0.001, 300.0))
    got = [fleet.reserve(number % processes, [claim], 40 + 60) for number in range(5)]
    admitted = [one for one in got if isinstance(one, Reservation)]
    assert len(admitted) == 3
    for one in admitted:
        one.settle(70, fleet.clock.now())
    fleet.beat()
    assert fleet.level(claim) == pytest.approx(90)


def test_a_refusal_by_one_dimension_gives_back_what_was_held_of_the_others() -> None:
    fleet = Fleet(1)
    wide, narrow = Claim("all", "all", Limit(1e5, 1e6)), Claim("user", "u", SMALL)
    for _ in range(12):
        assert isinstance(fleet.reserve(0, [wide], 100), Reservation)
    assert fleet.leased[0].held([wide], 1, fleet.clock.now())
    before = fleet.leased[0].remaining([wide], fleet.clock.now())
    refused = fleet.reserve(0, [wide, Claim("user", "u", Limit(1.0, 50.0))], 100)
    assert isinstance(refused, Refusal) and refused.never
    refused = fleet.reserve(0, [wide, narrow], 200)
    assert isinstance(refused, Reservation)
    refused = fleet.reserve(0, [wide, narrow], 200)
    assert isinstance(refused, Refusal)
    assert refused.dimension == "user"
    assert refused.retry_after_s == pytest.approx(100)
    after = fleet.leased[0].remaining([wide], fleet.clock.now())
    assert before is not None and after is not None
    assert before[1] - after[1] == pytest.approx(200, abs=1)


def test_a_large_bucket_needs_few_calls_and_gets_its_leases_back() -> None:
    fleet, claim = Fleet(4), Claim("tenant", "t", Limit(1e5, 1e6))
    for number in range(4000):
        fleet.clock.advance(1 / 800)
        got = fleet.reserve(number % 4, [claim], 100)
        assert isinstance(got, Reservation)
        got.settle(60, fleet.clock.now())
    assert fleet.calls < 0.3 * 4000
    fleet.clock.advance(2 * LEASE_S)
    fleet.beat()
    fleet.clock.advance(2 * LEASE_S)
    fleet.beat()
    full = claim.limit.burst
    assert fleet.level(claim) == pytest.approx(full)
    assert all(leased.statistics()["lost"] == 0 for leased in fleet.leased)


def test_a_lease_is_at_most_a_tenth_of_what_is_left_and_what_was_used_lately() -> None:
    fleet, claim = Fleet(1), Claim("tenant", "t", Limit(0.001, 10_000.0))
    for _ in range(60):
        fleet.reserve(0, [claim], 100)
        left = fleet.leased[0].remaining([claim], fleet.clock.now())
        assert left is not None
        held = left[1] - fleet.level(claim)
        assert held <= 0.1 * (fleet.level(claim) + held) + 1e-6


def test_what_was_used_beyond_the_reservation_becomes_debt_everywhere() -> None:
    fleet, claim = Fleet(2), Claim("tenant", "t", SMALL)
    got = fleet.reserve(0, [claim], 200)
    assert isinstance(got, Reservation)
    told: list[bool] = []
    fleet.leased[0].told = lambda: told.append(True)
    got.correct(350, fleet.clock.now())
    got.settle(400, fleet.clock.now())
    assert told
    fleet.carry(0, fleet.leased[0].call((), fleet.clock.now()))
    assert fleet.level(claim) == pytest.approx(-100)
    refused = fleet.reserve(1, [claim], 10)
    assert isinstance(refused, Refusal) and refused.retry_after_s == pytest.approx(110)


def test_a_refusal_is_believed_for_a_moment_only() -> None:
    fleet, claim = Fleet(1), Claim("tenant", "t", SMALL)
    fleet.reserve(0, [claim], 250)
    assert isinstance(fleet.reserve(0, [claim], 100), Refusal)
    calls = fleet.calls
    assert isinstance(fleet.reserve(0, [claim], 100), Refusal)
    assert fleet.calls == calls
    assert isinstance(fleet.reserve(0, [claim], 20), Reservation)
    fleet.clock.advance(0.03)
    assert isinstance(fleet.reserve(0, [claim], 100), Refusal)
    assert fleet.calls == calls + 2


def test_alone_a_process_spends_its_share_of_what_was_known_and_is_charged_later() -> None:
    fleet, claim = Fleet(4), Claim("tenant", "t", Limit(10.0, 1000.0))
    fleet.beat()
    assert isinstance(fleet.reserve(0, [claim], 200), Reservation)
    leased, now = fleet.leased[0], fleet.clock.now()
    leased.processes = 4
    spent = 0.0
    while isinstance(leased.reserve([claim], 50, now), Reservation):
        spent += 50
    assert spent == 200  # a quarter of the 800 that were left
    refused = leased.reserve([claim], 500, now)
    assert isinstance(refused, Refusal) and 1 <= refused.retry_after_s < math.inf
    fleet.clock.advance(20)
    assert isinstance(leased.reserve([claim], 50, fleet.clock.now()), Reservation)
    fleet.carry(0, leased.call((), fleet.clock.now()))
    # The bucket refilled to its brim meanwhile; the process's share of it lacks what it lacks.
    assert fleet.level(claim) == pytest.approx(1000 - 250, abs=1)


def test_alone_for_long_what_the_bucket_would_have_regained_is_not_charged() -> None:
    fleet, claim = Fleet(2), Claim("tenant", "t", Limit(100.0, 1000.0))
    fleet.beat()
    leased = fleet.leased[0]
    leased.processes = 2
    for _ in range(200):
        fleet.clock.advance(1.0)
        assert isinstance(leased.reserve([claim], 50, fleet.clock.now()), Reservation)
    fleet.carry(0, leased.call((), fleet.clock.now()))
    assert 900 <= fleet.level(claim) <= 1000


def test_fewer_processes_are_believed_when_it_stays_so() -> None:
    leased = LeasedLedger(LEASE_S)
    assert leased.share == 0.25
    for now, counted, believed in (
        (0.0, 2, 2),
        (1.0, 4, 4),
        (40.0, 1, 4),  # an outage of half a minute; the first to be counted again
        (40.5, 3, 4),
        (41.0, 4, 4),
        (50.0, 3, 4),
        (56.0, 3, 3),
    ):
        leased.count(counted, now)
        assert leased.processes == believed
    assert leased.share == pytest.approx(1 / 3)
    assert LeasedLedger(LEASE_S, share=0.1).share == 0.1


def test_accounts_are_bounded_and_settled_ones_are_forgotten() -> None:
    fleet = Fleet(0)
    leased = LeasedLedger(LEASE_S, max_buckets=4)
    fleet.leased.append(leased)
    for number in range(40):
        fleet.reserve(0, [Claim("ip", str(number), SMALL)], 100)
    assert leased.statistics()["buckets"] <= 5
    fleet.clock.advance(1000)
    fleet.reserve(0, [Claim("ip", "new", SMALL)], 100)
    assert leased.statistics()["buckets"] <= 5


def test_another_limit_keeps_what_was_used() -> None:
    fleet = Fleet(1)
    fleet.reserve(0, [Claim("tenant", "t", SMALL)], 200)
    smaller = Claim("tenant", "t", Limit(1.0, 250.0))
    left = fleet.leased[0].remaining([smaller], 0.0)
    assert left is not None and left[1] == pytest.approx(50)
    assert isinstance(fleet.reserve(0, [smaller], 100), Refusal)
    assert isinstance(fleet.reserve(0, [smaller], 50), Reservation)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["reserve", "settle", "beat", "wait", "send", "answer", "cut", "lose", "die"]
        ),
        st.integers(0, 3),
        st.floats(0.0, 1.0),
    ),
    max_size=120,
)


class Story:
    """Any order of calls, answers, lost calls, lost answers and deaths."""

    def __init__(self, limit: Limit, overrun: float = 0.0) -> None:
        self.fleet = Fleet(4)
        self.claims = [Claim("tenant", "t", limit), Claim("all", "all", limit.scaled(1.5))]
        self.limit = limit
        self.overrun = overrun
        self.open: list[list[Reservation]] = [[] for _ in range(4)]
        self.waiting: list[list[Sent]] = [[] for _ in range(4)]
        self.paid = 0.0

    def act(self, what: str, process: int, size: float) -> None:
        fleet = self.fleet
        leased, now = fleet.leased[process], fleet.clock.now()
        if what == "wait":
            fleet.clock.advance(size)
        elif what == "reserve":
            self.take(process, fleet.reserve(process, self.claims, 1 + 40 * size))
        elif what == "send":
            asked = leased.ask(self.claims, 1 + 40 * size, now)
            self.waiting[process].append(leased.call([asked], now))
        elif what in ("answer", "cut", "lose") and self.waiting[process]:
            sent = self.waiting[process].pop(int(size * 0.99 * len(self.waiting[process])))
            self.answer(process, sent, what)
        elif what == "settle" and self.open[process]:
            one = self.open[process].pop()
            used = one.amount * size * (1 + self.overrun)
            self.paid += used
            one.settle(used, now)
        elif what == "beat":
            fleet.carry(process, leased.call((), now, str(process)))
        elif what == "die":
            # What it had reserved may have been used: it stays paid.
            self.paid += sum(one.amount for one in self.open[process])
            fleet.leased[process] = LeasedLedger(LEASE_S)
            self.open[process], self.waiting[process] = [], []

    def answer(self, process: int, sent: Sent, what: str) -> None:
        leased, now = self.fleet.leased[process], self.fleet.clock.now()
        if what != "lose":
            reply = self.fleet.authority.carry_out(sent.call)
        if what == "answer":
            leased.done(sent, reply, now)
            got = sent.asked[0].result
            assert got is not None
            self.take(process, got)
        else:
            leased.failed(sent)

    def take(self, process: int, got: Reservation | Refusal) -> None:
        if isinstance(got, Reservation):
            self.open[process].append(got)

    def used(self) -> float:
        return self.paid + sum(one.amount for each in self.open for one in each)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.floats(10.0, 2000.0), st.floats(0.1, 200.0))
def test_together_they_never_use_more_than_burst_and_refill(
    actions: list[tuple[str, int, float]], burst: float, rate_per_s: float
) -> None:
    story = Story(Limit(rate_per_s, burst))
    for action in actions:
        story.act(*action)
        allowed = burst + rate_per_s * story.fleet.clock.now()
        assert story.used() <= allowed * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(ACTIONS, st.floats(200.0, 2000.0))
def test_overruns_are_debt_of_one_burst_at_most(
    actions: list[tuple[str, int, float]], burst: float
) -> None:
    story = Story(Limit(0.001, burst), overrun=1.0)
    for action in actions:
        story.act(*action)
        assert story.fleet.level(story.claims[0]) >= -burst
        # Each may use twice what it reserved; nothing was reserved on credit.
        assert story.used() <= 2 * burst + 1


@settings(max_examples=100, deadline=None)
@given(ACTIONS)
def test_when_no_call_fails_nothing_is_lost(actions: list[tuple[str, int, float]]) -> None:
    limit = Limit(1e-6, 2000.0)
    story = Story(limit)
    for what, process, size in actions:
        if what not in ("cut", "lose", "die"):
            story.act(what, process, size)
    for process in range(4):
        while story.waiting[process]:
            story.act("answer", process, 0.0)
        while story.open[process]:
            story.act("settle", process, 0.5)
        story.fleet.carry(process, story.fleet.leased[process].farewell(story.fleet.clock.now()))
    assert story.fleet.level(story.claims[0]) == pytest.approx(limit.burst - story.paid, abs=0.01)


@settings(max_examples=100, deadline=None)
@given(
    ACTIONS,
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 1.0), st.floats(0.0, 2.0)), max_size=80),
)
def test_alone_they_use_at_most_what_was_left_for_each_and_the_refill(
    before: list[tuple[str, int, float]], alone: list[tuple[int, float, float]]
) -> None:
    limit = Limit(rate_per_s=50.0, burst=400.0)
    story = Story(limit)
    for process in range(4):
        story.act("beat", process, 0.0)
    for action in before:
        story.act(*action)
    for leased in story.fleet.leased:
        leased.processes = 4
    lost_at, used = story.fleet.clock.now(), story.used()
    for process, size, wait_s in alone:
        leased, now = story.fleet.leased[process], story.fleet.clock.now()
        got = leased.reserve(story.claims, 1 + 40 * size, now)
        story.take(process, got)
        story.fleet.clock.advance(wait_s)
    passed_s = story.fleet.clock.now() - lost_at
    # What was leased before is no part of the shares, but of the limit until then.
    allowed = limit.burst + limit.rate_per_s * lost_at
    shares = limit.burst + limit.rate_per_s * passed_s
    assert story.used() - used <= shares + max(0.0, allowed - used) + 1e-6


def test_what_debt_cannot_hold_does_not_come_back() -> None:
    fleet, claim = Fleet(1), Claim("tenant", "t", SMALL)
    got = fleet.reserve(0, [claim], 50)
    assert isinstance(got, Reservation)
    got.correct(1000, fleet.clock.now())
    fleet.beat()
    assert fleet.level(claim) == pytest.approx(-300)
    got.settle(40, fleet.clock.now())
    fleet.beat()
    assert fleet.level(claim) == pytest.approx(300 - 40)


@pytest.mark.parametrize("settled_first", [False, True])
@pytest.mark.parametrize("used", [0.0, 10.0, 500.0])
def test_corrections_of_two_processes_owe_one_burst_together(
    settled_first: bool, used: float
) -> None:
    fleet, claim = Fleet(2), Claim("tenant", "t", Limit(1e-9, 300.0))
    got = [entered(fleet.reserve(process, [claim], 10.0)) for process in (0, 1)]
    now = fleet.clock.now()
    for one in got:
        one.correct(400.0, now)
    sent = [leased.call((), now) for leased in fleet.leased]
    if settled_first:
        for one in got:
            one.settle(used, now)
    for process, call in enumerate(sent):
        fleet.carry(process, call)
    if not settled_first:
        assert fleet.level(claim) == pytest.approx(-300)
        for one in got:
            one.settle(used, now)
    all_back(fleet)
    assert fleet.level(claim) == pytest.approx(max(-300.0, 300 - 2 * used))


@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 2), st.floats(1, 300), st.floats(0, 600), st.floats(0, 1)),
            *(st.booleans(), st.booleans()),
        ),
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_whatever_is_corrected_at_once_no_more_is_left_than_was_not_used(
    calls: list[tuple[int, float, float, float, bool, bool]], chance: random.Random
) -> None:
    """Calls that overtake one another may lose what came back too early: a bucket is full then."""
    fleet, claim = Fleet(3), Claim("tenant", "t", Limit(1e-9, 300.0))
    now, left = fleet.clock.now(), 300.0
    flying: list[tuple[int, Sent]] = []
    later: list[tuple[Reservation, float]] = []
    for process, amount, corrected, part, leaves, ends in calls:
        got = fleet.reserve(process, [claim], amount)
        if isinstance(got, Refusal):
            continue
        got.correct(corrected, now)
        used = part * min(amount, corrected)
        left -= used
        if leaves:
            flying.append((process, fleet.leased[process].call((), now)))
        if ends:
            got.settle(used, now)
        else:
            later.append((got, used))
    chance.shuffle(flying)
    for process, sent in flying:
        fleet.carry(process, sent)
    for got, used in later:
        got.settle(used, now)
    all_back(fleet)
    assert fleet.level(claim) <= left + 1e-3


def entered(got: Reservation | Refusal) -> Reservation:
    assert isinstance(got, Reservation)
    return got


def all_back(fleet: Fleet) -> None:
    """Nothing is leased or owed any more."""
    for _ in range(4):
        for process, leased in enumerate(fleet.leased):
            fleet.carry(process, leased.farewell(fleet.clock.now()))
