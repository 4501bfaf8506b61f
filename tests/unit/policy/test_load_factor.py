"""The factor by which quotas follow the pools' pressure: bounds, pace, whom it spares."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.clock import VirtualClock, WallClock
from forebay.kernel.errors import ConfigError
from forebay.kernel.quotas import QuotaCall, SharedBucket
from forebay.policy.admission import AdmissionSettings, Claimant, Desk, DimensionLimits
from forebay.policy.admission.claims import ClaimBook
from forebay.policy.admission.load_factor import LoadFactor, LoadSettings, Pacing
from forebay.policy.quota import Limit, QuotaLedger
from forebay.policy.quota.authority import LedgerAuthority

ON = LoadSettings(enabled=True)


class Gate:
    """One replica with a limit of ten."""

    loads = (object(),)

    def __init__(self) -> None:
        self.waiting = self.in_flight = 0

    def statistics(self) -> Mapping[str, float]:
        return {"queue_waiting": self.waiting, "in_flight": self.in_flight, "limit": 10.0}


class Seconds:
    """A factor and seconds of one kind or another."""

    def __init__(self, settings: LoadSettings = ON) -> None:
        self.gate, self.now = Gate(), 0.0
        self.load = LoadFactor(settings)
        self.told: list[float] = []
        self.load.told = lambda factor, _: self.told.append(factor)
        self.load.look(0.0, {"p": self.gate})

    def second(
        self, *, came: int = 100, refused: int = 0, in_flight: int = 9, wait: int = 0
    ) -> None:
        for number in range(came):
            self.load.came(f"t{number % 10}")
            self.load.left(16.0, refused=number < refused)
        self.gate.in_flight, self.gate.waiting = in_flight, wait
        for _ in range(20):
            self.now += 0.05
            self.load.look(self.now, {"p": self.gate})


def test_it_shrinks_under_refusals_to_its_bound_and_comes_back_slowly() -> None:
    world = Seconds()
    for _ in range(30):
        world.second(refused=20)
    assert world.load.factor == 0.5 and world.load.load == "peak"
    assert world.told == sorted(world.told, reverse=True)
    for _ in range(10):
        world.second()
    assert 0.7 <= world.load.factor <= 0.85
    for _ in range(20):
        world.second()
    assert world.load.factor == 1.0


def test_it_grows_after_quiet_seconds_only_and_stops_at_its_bound() -> None:
    world = Seconds()
    for _ in range(9):
        world.second(in_flight=2)
    assert world.load.exact == 1.0
    for _ in range(60):
        world.second(in_flight=2)
    assert world.load.factor == 1.25
    for _ in range(10):
        world.second(in_flight=8)  # in use, though nobody waits
    assert world.load.factor == 1.0


def test_few_refusals_are_no_peak_and_a_line_that_stands_is_one() -> None:
    world = Seconds()
    world.second(refused=2)
    world.second(came=1000, refused=19)
    assert world.load.exact == 1.0
    world.second(wait=5)
    world.second(wait=5)
    assert world.load.exact < 1.0


def test_a_line_before_a_small_part_of_the_work_is_no_peak() -> None:
    load, small, big = LoadFactor(ON), Gate(), Gate()
    small.in_flight, small.waiting, big.in_flight = 2, 3, 9
    for step in range(100):
        load.look(step * 0.05, {"small": small, "big": big})
    assert load.exact == 1.0


def test_switched_off_it_never_moves_and_goes_back_when_it_is_switched_off() -> None:
    world = Seconds(LoadSettings())
    for _ in range(20):
        world.second(refused=50)
    assert world.load.factor == 1.0
    world.load.replace(ON)
    for _ in range(20):
        world.second(refused=50)
    assert world.load.factor < 1.0
    world.load.replace(LoadSettings())
    assert world.load.factor == 1.0
    with pytest.raises(ConfigError, match="leave quotas as they are"):
        LoadSettings(enabled=True, min_factor=1.0, max_factor=1.0)


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 1), st.integers(0, 12)), max_size=60))
def test_it_stays_within_its_bounds_whatever_comes(
    seconds: list[tuple[int, float, int]],
) -> None:
    world = Seconds()
    for came, share, in_flight in seconds:
        before = world.load.exact
        world.second(came=came, refused=int(came * share), in_flight=in_flight, wait=in_flight // 4)
        assert 0.5 <= world.load.factor <= 1.25
        assert before * 0.79 <= world.load.exact <= before + 0.031


def test_only_what_is_above_the_fair_share_shrinks_and_never_below_it() -> None:
    pacing = Pacing(0.5, 160.0)
    assert [pacing.of(rate) for rate in (10.0, 160.0, 200.0, 1000.0)] == [10.0, 160.0, 160.0, 500.0]
    assert Pacing(1.25, 160.0).of(100.0) == 125.0
    assert Pacing(0.5).of(1000.0) == 1000.0  # a fair share that is not known spares everybody


def test_the_fair_share_is_what_is_served_by_those_who_came_in_all_processes() -> None:
    world = Seconds()
    world.second()  # 1,600 tokens to ten tenants
    assert world.load.pacing.fair_per_s == pytest.approx(160.0)
    world.load.processes = 4
    world.second()
    assert world.load.pacing.fair_per_s == pytest.approx(640.0)
    assert math.isinf(LoadFactor(ON).pacing.fair_per_s)


def test_bursts_stay_and_so_does_the_limit_of_the_whole_service() -> None:
    limits = DimensionLimits(tenant=Limit(1000.0, 300.0), all=Limit(9000.0, 900.0))
    book = ClaimBook(AdmissionSettings(limits=limits, load_factor=0.8))
    claims = book.claims(Claimant(tenant="t"), 0.0, Pacing(0.5, 100.0))
    found = {claim.dimension: (claim.limit.rate_per_s, claim.limit.burst) for claim in claims}
    assert found == {"tenant": (400.0, 240.0), "all": (7200.0, 720.0)}


def test_its_parts_are_told() -> None:
    desk = Desk(AdmissionSettings(load_factor=0.8, load=ON), (), {}, VirtualClock(), WallClock())
    desk.load.pacing = Pacing(0.5, 160.0)
    found = desk.factors()
    assert (found.operator, found.window, found.load, found.refill) == (0.8, 1.0, 0.5, 0.4)
    assert found.fair_per_s == 160.0


def test_processes_that_differ_share_a_quota_between_their_two() -> None:
    """A bucket asked under two refills fills at one of them at a time, and jumps nowhere."""
    clock, granted = VirtualClock(), 0.0
    authority = LedgerAuthority(QuotaLedger(100), clock)
    for step in range(2000):
        clock.advance(0.01)
        bucket = SharedBucket("tenant", "t", (100.0, 50.0)[step % 2], 20.0)
        reply = authority.carry_out(QuotaCall((bucket,), (((0, 1.0),),)))
        granted += reply.refusals[0] is None
    assert 50.0 * 20 <= granted <= 100.0 * 20 + 20.0
    assert granted == pytest.approx(75.0 * 20 + 20.0, rel=0.02)
