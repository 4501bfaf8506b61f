"""An engine that is slow, but not for the crowd: nobody is refused for what does not help."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest

from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import AdaptiveLimit, LimitSettings

RATE, OWN_S, DEADLINE_S, LASTS_S = 120.0, 0.064, 2.0, 50.0
SLOW_FROM, SLOW_TO = 10.0, 40.0


class Asked:
    """Requests at a steady rate in front of one engine; ``took`` is its time at a moment."""

    def __init__(self, took: Callable[[float, int], float], seed: int) -> None:
        self.gate = PoolGate(GateSettings(), ["engine"])
        self.asked = self.refused = self.in_work = 0
        self._took = took
        self._chance = Random(seed)
        self._ends: list[tuple[float, int, Ticket]] = []

    def run(self, rate: float = RATE) -> Asked:
        now, look_at, next_at = 0.0, 0.0, self._chance.expovariate(rate)
        while now < LASTS_S:
            now = min(next_at, look_at, self._ends[0][0] if self._ends else next_at)
            if now == look_at:
                self.gate.tick(now)
                look_at += 0.1
            elif self._ends and now == self._ends[0][0]:
                _, _, ticket = heapq.heappop(self._ends)
                self.in_work -= 1
                ticket.output_tokens = 32
                self.gate.finish(ticket, now, ok=True)
            else:
                self.asked += 1
                ticket = Ticket(cost=800.0, deadline_at=now + DEADLINE_S)
                ticket.input_tokens, ticket.expected_tokens = 700, 32
                self.gate.arrive(ticket, now)
                next_at = now + self._chance.expovariate(rate)
            self._carry_out(now)
        return self

    def _carry_out(self, now: float) -> None:
        for ticket in self.gate.sent():
            self.in_work += 1
            ends_at = now + self._took(now, self.in_work) * self._chance.uniform(1.0, 1.2)
            heapq.heappush(self._ends, (ends_at, self.asked, ticket))
        self.refused += len(self.gate.refused())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("times", "most"), [(1.0, 0.0), (2.0, 0.01), (3.0, 0.03)])
def test_a_machine_that_is_slower_for_half_a_minute(times: float, most: float, seed: int) -> None:
    def took(now: float, in_work: int) -> float:
        return OWN_S * (times if SLOW_FROM <= now < SLOW_TO else 1.0)

    found = Asked(took, seed).run()
    assert found.refused <= most * found.asked


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("times", [3.0, 5.0])
def test_half_of_each_second_is_slow_as_where_documents_are_put(times: float, seed: int) -> None:
    def took(now: float, in_work: int) -> float:
        return OWN_S * (times if now >= SLOW_FROM and now % 1.0 < 0.5 else 1.0)

    found = Asked(took, seed).run()
    assert found.refused <= 0.07 * found.asked


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("room", [5, 20])
def test_a_crowd_still_sets_the_limit(room: int, seed: int) -> None:
    def took(now: float, in_work: int) -> float:
        return OWN_S * max(1.0, in_work / room)

    found = Asked(took, seed).run(rate=2 * room / OWN_S)
    assert found.gate.limit.limit <= 5 * room
    assert found.refused >= 0.4 * found.asked


def _windows(limit: AdaptiveLimit, latency: Callable[[int], float], count: int) -> list[int]:
    seen = []
    for _ in range(count):
        for _ in range(max(16, limit.limit)):
            limit.observe(latency(limit.limit), limit.limit)
        seen.append(limit.limit)
    return seen


def _known() -> AdaptiveLimit:
    limit = AdaptiveLimit(LimitSettings(initial=8, most=64))
    _windows(limit, lambda held: 1.0 if held < 40 else 2.5, 20)
    return limit


def test_a_limit_that_shrinks_in_vain_goes_back() -> None:
    limit = _known()
    before = limit.limit
    seen = _windows(limit, lambda held: 3.0, 12)
    assert min(seen[-4:]) >= 0.8 * before


def test_a_limit_that_shrinks_with_effect_shrinks_on() -> None:
    limit = _known()
    before = limit.limit
    seen = _windows(limit, lambda held: 12.0 * held / before, 40)
    assert max(seen[-4:]) <= before / 2
