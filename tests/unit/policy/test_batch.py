"""How much goes into engines: F2.13's rule, and what it does to a limit, a bound and a gate."""

from __future__ import annotations

import math

import pytest

from forebay.policy.batch import BatchRule, BatchSettings, TokenBound, concurrency_for
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import AdaptiveLimit, LimitSettings


@pytest.mark.parametrize(
    ("rate", "memory", "factor"),
    [
        (84, 0.83, 0.75),
        (86, 0.83, 1.0),
        (84, 0.81, 1.0),  # memory is not the reason
        (113, 0.64, 1.2),
        (111, 0.64, 1.0),
        (113, 0.66, 1.0),
    ],
)
def test_the_factor_follows_slope_and_memory(rate: float, memory: float, factor: float) -> None:
    rule = BatchRule(BatchSettings())
    assert rule.look(0, memory, 0.0) is None
    assert rule.look(500, memory, 5.0) is None  # nothing to compare yet
    assert rule.look(10_000, memory, 9.9) is None  # too soon
    assert rule.look(500 + 5 * rate, memory, 10.0) == factor


def test_after_a_gap_or_a_standstill_no_slope_is_known() -> None:
    rule = BatchRule(BatchSettings())
    for at, worked in ((0, 0), (5, 500), (60, 600), (65, 1100), (70, 1100), (75, 1600)):
        factor = rule.look(worked, 0.9, float(at))
        assert factor == (0.75 if at == 70 else None)


def test_littles_law() -> None:
    assert concurrency_for(120, 0.043) == 6
    assert concurrency_for(100, 0.05) == 5
    assert concurrency_for(0, 1) == 1


def test_a_bound_on_tokens_comes_with_need_and_goes_with_it() -> None:
    bound = TokenBound(0.0)
    bound.grow(1.2)
    assert math.isinf(bound.bound)
    bound.shrink(0.75, 8000)
    assert bound.bound == 6000
    bound.grow(1.2)
    assert bound.bound == 7200
    bound.grow(1.2)
    assert math.isinf(bound.bound)


def test_a_configured_bound_is_never_passed() -> None:
    bound = TokenBound(10_000)
    bound.shrink(0.75, 20_000)
    assert bound.bound == 7500
    for _ in range(5):
        bound.grow(1.2)
    assert bound.bound == 10_000


def _windows(limit: AdaptiveLimit, latency: float, in_flight: int, count: int = 1) -> None:
    for _ in range(16 * count):
        limit.observe(latency, in_flight)


def test_a_limit_shrinks_at_once_and_grows_only_where_latency_allows_and_it_is_used() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=8, most=16))
    limit.scale(1.2)
    assert limit.limit == 8  # nothing is known yet
    _windows(limit, 0.01, in_flight=2)
    limit.scale(1.2)
    assert limit.limit == 8  # it was not used
    limit.scale(0.75)
    assert limit.limit == 6
    _windows(limit, 0.012, in_flight=6)
    was = limit.limit
    limit.scale(1.2)
    assert limit.limit > was
    _windows(limit, 0.05, in_flight=limit.limit)
    was = limit.limit
    limit.scale(1.2)
    assert limit.limit == was  # latency forbids it


class Engine:
    """A gate whose one engine writes so many tokens a second for each request in it."""

    def __init__(self, gate: PoolGate) -> None:
        self.gate = gate
        self.now = 0.0
        self.tickets: list[Ticket] = []
        self.written = 0

    def ask(self, count: int) -> int:
        """How many of so many arrivals were let in."""
        came = [Ticket(cost=100.0, deadline_at=1e9) for _ in range(count)]
        for ticket in came:
            self.gate.arrive(ticket, self.now)
        self.tickets += [ticket for ticket in came if ticket.state == "sent"]
        self.gate.sent()
        return sum(ticket.state == "sent" for ticket in came)

    def runs(self, tokens: int, kv_use: float, seconds: int = 5) -> None:
        """Write with so much memory in use, looked at each second."""
        for _ in range(seconds):
            self.now += 1.0
            self.written += tokens
            for ticket in self.tickets:
                self.gate.progress(ticket, self.written, self.now)
            self.gate.signals(0, waiting=0, kv_use=kv_use)
            self.gate.tick(self.now)


def test_requests_and_tokens_let_into_an_engine_follow_its_memory() -> None:
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=10, most=10)), ["a"])
    engine = Engine(gate)
    assert engine.ask(8) == 8
    engine.runs(10, kv_use=0.85, seconds=11)
    assert gate.limit.limit == 10
    engine.runs(8, kv_use=0.85)  # memory is full and it writes a fifth less
    assert gate.limit.limit == 7
    assert gate.batch.tokens.bound == 600
    assert engine.ask(3) == 0
    for ticket in engine.tickets[:3]:
        gate.finish(ticket, engine.now, ok=True)
    assert len(gate.sent()) == 1  # 500 are held: one of 100 goes in, as long as there is room
    engine.runs(8, kv_use=0.5, seconds=10)
    assert math.isinf(gate.batch.tokens.bound)


def test_an_engine_that_shows_no_memory_is_judged_by_latency_alone() -> None:
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=10, most=10)), ["a"])
    for at in range(30):
        gate.batch.written += 100 // (at + 1)
        gate.signals(0, waiting=0, kv_use=None)
        gate.tick(float(at))
    assert gate.limit.limit == 10
    assert math.isinf(gate.batch.tokens.bound)


def test_what_gathers_in_front_of_an_engine_follows_its_room() -> None:
    """F1.7's window: none while there is room; what waits goes in together as room comes."""
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=4, most=4)), ["a"])
    engine = Engine(gate)
    assert engine.ask(4) == 4  # at once, nobody is held back to make a batch
    assert engine.ask(3) == 0
    engine.now += 0.25
    for ticket in engine.tickets[:2]:
        gate.finish(ticket, engine.now, ok=True)
    assert len(gate.sent()) == 2
    assert len(gate.queue) == 1
