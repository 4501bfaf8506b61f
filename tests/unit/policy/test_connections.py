"""Connections by Little's law: the published example, pulses, idleness."""

from __future__ import annotations

import heapq
import random

import pytest

from forebay.policy.connections import ConnectionSettings, ConnectionSizer, sensible


def load(
    sizer: ConnectionSizer, *, rate_per_s: float, time_s: float, until: float, start: float = 0.0
) -> None:
    """Poisson arrivals, each holding a connection for an exponential time."""
    chance = random.Random(5)
    now = start + chance.expovariate(rate_per_s)
    ends: list[float] = []
    while now < until:
        while ends and ends[0] <= now:
            sizer.ended(heapq.heappop(ends))
        sizer.began(now)
        heapq.heappush(ends, now + chance.expovariate(1 / time_s))
        now += chance.expovariate(rate_per_s)
    for end in sorted(ends):
        sizer.ended(min(end, until))


def test_the_published_example() -> None:
    sizer = ConnectionSizer(ConnectionSettings(least=4, most=12, memory_s=20.0))
    load(sizer, rate_per_s=120, time_s=0.043, until=120)
    assert sizer.rate_per_s(120) == pytest.approx(120, rel=0.08)
    assert sizer.time_s(120) == pytest.approx(0.043, rel=0.08)
    assert sizer.kept(120) == 8


def test_it_knows_from_the_first_seconds() -> None:
    sizer = ConnectionSizer(ConnectionSettings())
    load(sizer, rate_per_s=100, time_s=0.1, until=2)
    assert sizer.kept(2) in (12, 16)


def test_it_follows_a_pulse_and_forgets_it() -> None:
    sizer = ConnectionSizer(ConnectionSettings())
    load(sizer, rate_per_s=20, time_s=1.0, until=30)
    assert sizer.kept(30) in (24, 32)
    load(sizer, rate_per_s=200, time_s=1.0, start=30, until=45)
    assert sizer.kept(45) in (192, 256)
    load(sizer, rate_per_s=20, time_s=1.0, start=46, until=75)
    assert sizer.kept(75) in (24, 32, 48)


def test_streams_that_do_not_end_count_while_they_run() -> None:
    sizer = ConnectionSizer(ConnectionSettings())
    for _ in range(40):
        sizer.began(0.0)
    assert sizer.busy == 40
    assert sizer.kept(30.0) == 48
    for _ in range(40):
        sizer.ended(30.0)
    assert sizer.kept(30.0) == 48
    assert sizer.kept(90.0) == 4


def test_bounds_and_a_clock_that_stands_still() -> None:
    sizer = ConnectionSizer(ConnectionSettings(least=2, most=6))
    assert sizer.kept(0.0) == 2
    for _ in range(500):
        sizer.began(1.0)
    assert sizer.kept(1.0) == 2
    assert sizer.kept(9.0) == 6


def test_sensible_sizes() -> None:
    assert [sensible(count) for count in range(1, 18)] == [
        1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 24,
    ]  # fmt: skip
    assert sensible(0) == 1
