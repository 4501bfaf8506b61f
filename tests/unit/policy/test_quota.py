"""Buckets, the ledger's all-or-none rule, and windows of the day."""

from __future__ import annotations

import math
from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.kernel.quotas import PRESENCE_S, QuotaCall
from forebay.policy.quota import (
    Claim,
    LedgerAuthority,
    Limit,
    QuotaLedger,
    QuotaWindow,
    Refusal,
    Reservation,
    TokenBucket,
    factor_at,
)
from forebay.policy.quota.bucket import LEAST_RATE

NOW = 1000.0


def claims(*bursts: float, rate: float = 10.0) -> list[Claim]:
    return [Claim(f"d{at}", "k", Limit(rate, burst)) for at, burst in enumerate(bursts)]


def test_five_calls_of_a_hundred_meet_a_bucket_of_three_hundred() -> None:
    ledger = QuotaLedger()
    wanted = claims(300.0)
    got = [ledger.reserve(wanted, 40 + 60, NOW) for _ in range(5)]
    held = [one for one in got if isinstance(one, Reservation)]
    assert len(held) == 3
    for one in held:
        one.settle(70, NOW)
    left = ledger.remaining(wanted, NOW)
    assert left is not None
    assert left[1] == 90
    later = ledger.remaining(wanted, NOW + 2)
    assert later is not None
    assert later[1] == 110


def test_a_refusal_by_one_dimension_leaves_the_others_untouched() -> None:
    ledger = QuotaLedger()
    wanted = claims(500.0, 100.0, 400.0)
    assert isinstance(ledger.reserve(wanted, 90, NOW), Reservation)
    refused = ledger.reserve(wanted, 90, NOW)
    assert refused == Refusal("d1", "k", 8.0)
    assert not refused.never
    for claim, level in zip(wanted, (410, 10, 310), strict=True):
        assert ledger.remaining([claim], NOW) == (claim, level)


def test_what_is_over_the_burst_can_never_be_paid() -> None:
    refused = QuotaLedger().reserve(claims(100.0), 150, NOW)
    assert isinstance(refused, Refusal)
    assert refused.never


def test_running_over_is_paid_later_down_to_minus_one_burst() -> None:
    ledger = QuotaLedger()
    wanted = claims(100.0)
    one = ledger.reserve(wanted, 60, NOW)
    assert isinstance(one, Reservation)
    one.correct(90, NOW)
    one.settle(5000, NOW)
    one.settle(0, NOW)
    assert ledger.remaining(wanted, NOW) == (wanted[0], -100)
    again = ledger.reserve(wanted, 10, NOW)
    assert again == Refusal("d0", "k", 11.0)


def test_what_debt_cannot_hold_does_not_come_back() -> None:
    ledger = QuotaLedger()
    wanted = claims(100.0, 1000.0)
    one = ledger.reserve(wanted, 20, NOW)
    assert isinstance(one, Reservation)
    one.correct(600, NOW)
    assert ledger.remaining([wanted[0]], NOW) == (wanted[0], -100)
    assert ledger.remaining([wanted[1]], NOW) == (wanted[1], 400)
    one.correct(500, NOW)
    one.settle(30, NOW)
    assert ledger.remaining([wanted[0]], NOW) == (wanted[0], 70)
    assert ledger.remaining([wanted[1]], NOW) == (wanted[1], 970)


@given(
    st.lists(
        st.tuples(st.floats(1, 100), st.floats(0, 400), st.floats(0, 100)), min_size=1, max_size=8
    )
)
def test_prompts_however_long_change_nothing_in_the_end(
    calls: list[tuple[float, float, float]],
) -> None:
    ledger = QuotaLedger()
    [wanted] = claims(800.0, rate=1e-9)
    open_, used = [], 0.0
    for amount, corrected, paid in calls:
        got = ledger.reserve([wanted], amount, NOW)
        assert isinstance(got, (Reservation, Refusal))
        if isinstance(got, Reservation):
            got.correct(amount + corrected * 5, NOW)
            open_.append((got, min(paid, amount)))
    for one, paid in open_:
        one.settle(paid, NOW)
        used += paid
    assert ledger.bucket(wanted, NOW).level(NOW) == pytest.approx(800 - used, abs=1e-6)


def test_a_bound_on_buckets_cannot_be_evaded_with_new_keys() -> None:
    ledger = QuotaLedger(max_buckets=4)
    limit = Limit(1.0, 10.0)
    taken = 0
    for number in range(100):
        got = ledger.reserve([Claim("ip", str(number), limit)], 10, NOW)
        taken += isinstance(got, Reservation)
    assert taken == 5
    assert ledger.statistics()["buckets"] == 5
    # Later the old ones are full again and make room.
    got = ledger.reserve([Claim("ip", "new", limit)], 10, NOW + 20)
    assert isinstance(got, Reservation)
    assert ledger.statistics()["buckets"] <= 5


def test_a_new_limit_keeps_what_was_used() -> None:
    bucket = TokenBucket(Limit(10.0, 100.0), NOW)
    bucket.take(40, NOW)
    bucket.resize(Limit(10.0, 50.0), NOW)
    assert bucket.level(NOW) == 10
    bucket.resize(Limit(10.0, 200.0), NOW)
    assert bucket.level(NOW) == 160
    assert bucket.level(NOW - 5) == 160


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, 300), st.floats(0, 3)), max_size=30))
def test_no_more_is_ever_used_than_burst_refill_and_one_burst_of_debt(
    calls: list[tuple[float, float, float]],
) -> None:
    ledger = QuotaLedger()
    wanted = claims(100.0, 80.0)
    now, reserved = NOW, 0.0
    for amount, used, pause in calls:
        got = ledger.reserve(wanted, amount, now)
        if isinstance(got, Reservation):
            reserved += amount
            got.settle(min(used, amount), now)
            reserved -= amount - min(used, amount)
        for claim in wanted:
            left = ledger.remaining([claim], now)
            assert left is not None
            assert -claim.limit.burst <= left[1] <= claim.limit.burst
        now += pause
    assert reserved <= 80 + (now - NOW) * 10 + 1e-6


def test_windows() -> None:
    peak = QuotaWindow("09:00", "18:00", 0.5, ("mon", "tue"))
    night = QuotaWindow("22:00", "06:00", 2.0, ("fri",))
    at = datetime.fromisoformat
    windows = (peak, night)
    assert factor_at(windows, at("2026-11-30T09:00")) == 0.5  # a Monday
    assert factor_at(windows, at("2026-11-30T18:00")) == 1.0
    assert factor_at(windows, at("2026-12-02T12:00")) == 1.0
    assert factor_at(windows, at("2026-12-04T23:00")) == 2.0
    assert factor_at(windows, at("2026-12-05T05:59")) == 2.0  # begun on Friday
    assert factor_at(windows, at("2026-12-05T22:30")) == 1.0
    assert Limit(3.0, 4.0).scaled(0.5) == Limit(1.5, 2.0)


@pytest.mark.parametrize("start", ["25:00", "09:60", "24:01"])
def test_a_window_needs_real_times(start: str) -> None:
    with pytest.raises(ConfigError, match="HH:MM"):
        QuotaWindow(start, "10:00", 1.0)


def test_a_window_needs_real_days() -> None:
    with pytest.raises(ConfigError, match="mon, tue"):
        QuotaWindow("09:00", "10:00", 1.0, ("Monday",))


@pytest.mark.parametrize("rate", [LEAST_RATE, 1e12])
@pytest.mark.parametrize("factor", [1e-300, 100.0])
def test_no_factor_makes_a_rate_or_wait_that_cannot_be_told(rate: float, factor: float) -> None:
    limit = Limit(rate, 1e12).scaled(factor)
    bucket = TokenBucket(limit, 0.0)
    bucket.take(limit.burst, 0.0)
    assert math.ceil(limit.burst / limit.rate_per_s) > 0
    assert math.ceil(bucket.wait_s(limit.burst / 2, 0.0)) > 0
    assert int(limit.burst) >= 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"rate_per_s": 1e308, "burst": 1}',
        b'{"rate_per_s": 1e-308, "burst": 1}',
        b'{"rate_per_s": 1, "burst": 1e300}',
    ],
)
def test_limits_beyond_all_bounds_are_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Limit)


def test_a_ledger_counts_the_processes_that_charge_it() -> None:
    clock = VirtualClock()
    ledger = QuotaLedger()
    authority = LedgerAuthority(ledger, clock, itself=1)
    assert ledger.present(clock.now()) == 1
    assert authority.carry_out(QuotaCall(process="a")).processes == 2
    assert authority.carry_out(QuotaCall(process="b")).processes == 3
    assert ledger.present(clock.now()) == 3
    clock.advance(PRESENCE_S)
    assert ledger.present(clock.now()) == 1, "those that died are no longer counted"
