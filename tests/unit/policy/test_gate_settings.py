"""Each setting of an engine pool's gate changes what the gate does."""

from __future__ import annotations

import heapq
from functools import cache
from random import Random
from typing import Any

import pytest

from forebay.policy.balance import EjectionSettings
from forebay.policy.batch import BatchSettings
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings
from forebay.policy.retry import RetrySettings
from forebay.policy.shed import ShedSettings
from forebay.policy.tail import TailSettings
from tests.settings_leaves import leaves, replaced

TRIED = GateSettings(
    queue=QueueSettings(max_waiting=80, max_waiting_cost=60_000.0),
    limit=LimitSettings(initial=8, least=2, most=24, window=8, probe_every=8),
    shed=ShedSettings(
        target_s=0.1, interval_s=0.4, max_wait_s=0.9, few_waiting=12, few_wait_s=0.95
    ),
    ejection=EjectionSettings(failures=3, stalled_s=4.0, rest_s=0.5, max_rest_s=2.0),
    retry=RetrySettings(share=0.05, burst=3.0),
    tail=TailSettings(warn_long_share=0.03, calm_s=2.0, window=60, least=20),
    batch=BatchSettings(period_s=1.0),
    max_tokens=30_000.0,
)
OTHERS: dict[str, Any] = {
    "queue.max_waiting": 10,
    "queue.max_waiting_cost": 20_000.0,
    "limit.initial": 12,
    "limit.least": 8,
    "limit.most": 10,
    "limit.tolerance": 1.5,
    "limit.window": 12,
    "limit.probe_every": 16,
    "shed.target_s": 0.2,
    "shed.interval_s": 0.8,
    "shed.max_wait_s": 0.6,
    "shed.few_waiting": 4,
    "shed.few_wait_s": 1.5,
    "ejection.failures": 1,
    "ejection.stalled_s": 0.5,
    "ejection.rest_s": 1.0,
    "ejection.max_rest_s": 1.0,
    "retry.share": 0.5,
    "retry.burst": 30.0,
    "retry.max_attempts": 1,
    "tail.warn_ratio": 3.5,
    "tail.severe_ratio": 2.5,
    "tail.warn_long_share": 0.2,
    "tail.severe_long_share": 0.06,
    "tail.calm_s": 8.0,
    "tail.window": 200,
    "tail.least": 60,
    "batch.enabled": False,
    "batch.shrink_slope": 0.5,
    "batch.shrink_memory": 0.6,
    "batch.shrink_factor": 0.5,
    "batch.grow_slope": -0.5,
    "batch.grow_memory": 0.9,
    "batch.grow_factor": 2.0,
    "batch.period_s": 2.0,
    "least_s": 1.0,
    "severe_hold": 0.6,
    "cold_tokens": 2_000.0,
    "max_tokens": 9_000.0,
}


class Day:
    """Two engines with good and bad hours, in virtual time; ``said`` is all that became of anybody.

    The first engine fails for two seconds and hangs for two; memory fills and empties; a calm, a
    crowd and a slow hour follow one another.
    """

    def __init__(self, settings: GateSettings) -> None:
        self.gate = PoolGate(settings, ["a", "b"])
        self.said: list[tuple[float, str, int]] = []
        self._chance = Random(11)
        self._ends: list[tuple[float, int, Ticket]] = []
        self._count = 0

    def run(self, lasts_s: float = 40.0) -> list[tuple[float, str, int]]:
        now = look_at = next_at = 0.0
        while now < lasts_s:
            now = min(next_at, look_at, self._ends[0][0] if self._ends else next_at)
            if now == look_at:
                self._look(now)
                look_at += 0.25
            elif self._ends and now == self._ends[0][0]:
                self._end(heapq.heappop(self._ends)[2], now)
            else:
                self._ask(now)
                next_at = now + self._chance.expovariate((25, 60, 140)[int(now / 5) % 3])
            self._carry_out(now)
        return self.said

    def _look(self, now: float) -> None:
        for at in range(2):
            self.gate.signals(at, waiting=0, kv_use=0.55 + 0.35 * ((now / 7) % 1.0))
        self.gate.tick(now)
        change = self.gate.judge(now)
        self.said.append((now, change.level if change else "", self.gate.limit.limit))

    def _ask(self, now: float) -> None:
        long = self._chance.random() < 0.12
        ticket = Ticket(
            cost=4_800.0 if long else self._chance.uniform(200, 1_500),
            deadline_at=now + self._chance.choice((0.9, 4.0, 9.0)),
            priority=self._chance.choice(("normal", "low")),
        )
        ticket.input_tokens, ticket.expected_tokens = int(ticket.cost * 0.8), 90 if long else 30
        self.gate.arrive(ticket, now)

    def _end(self, ticket: Ticket, now: float) -> None:
        failed = ticket.replica == 0 and now % 12 < 2.0
        if failed and self.gate.again(ticket, now):
            self._begin(ticket, now)
            return
        ticket.output_tokens = ticket.expected_tokens or 0
        self.gate.finish(ticket, now, ok=not failed)

    def _carry_out(self, now: float) -> None:
        for ticket in self.gate.sent():
            self.said.append((now, "sent", ticket.replica))
            self._begin(ticket, now)
        for ticket in self.gate.refused():
            self.said.append((now, ticket.reason, 0))

    def _begin(self, ticket: Ticket, now: float) -> None:
        self._count += 1
        crowd = max(1.0, self.gate.loads[ticket.replica].requests / 6)
        took_s = (ticket.expected_tokens or 0) * 0.004 * crowd * self._chance.uniform(1.0, 1.5)
        if ticket.replica == 0 and 6.0 < now % 24 < 8.0:
            took_s += 3.0
        heapq.heappush(self._ends, (now + took_s, self._count, ticket))


def test_every_setting_is_tried() -> None:
    assert set(leaves(GateSettings())) == set(OTHERS)


BESIDE: dict[str, dict[str, Any]] = {
    "tail.warn_ratio": {"tail.severe_long_share": 0.95, "tail.warn_long_share": 0.9},
    "shed.few_wait_s": {"shed.few_waiting": 60},
}
"""What must be otherwise in both for a setting to show."""


ENGINES_ONLY = {
    "limit.least", "shed.max_wait_s", "tail.warn_long_share", "tail.severe_long_share",
    "tail.least", "batch.grow_slope",
}  # fmt: skip
"""They show in other conditions than this day's, or before engines, where sizes are told apart."""


@pytest.mark.parametrize("key", sorted(set(OTHERS) - ENGINES_ONLY))
def test_each_setting_changes_what_the_gate_does(key: str) -> None:
    tried = TRIED
    for beside, value in BESIDE.get(key, {}).items():
        tried = replaced(tried, beside, value)
    assert Day(replaced(tried, key, OTHERS[key])).run() != _of(tried)


@cache
def _of(settings: GateSettings) -> list[tuple[float, str, int]]:
    return Day(settings).run()
