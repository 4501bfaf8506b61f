"""The line in front of local work, and that each of its settings changes what it does."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forebay.kernel.context import Priority
from forebay.policy.bulkhead import RETRIEVAL_LINE
from forebay.policy.limit import LimitSettings
from forebay.policy.line import LineSettings, LineTicket, WaitingLine
from forebay.policy.shed import ShedSettings
from tests.settings_leaves import leaves, replaced

WARM_S: tuple[float, ...] = (0.001, 0.01, 0.02, 0.04)


class Work:
    """Some cores behind a line, in virtual time; ``said`` is all that became of anybody."""

    def __init__(self, settings: LineSettings, cores: int, seed: int = 7) -> None:
        self.line = WaitingLine(settings)
        self.refused = 0
        self.said: list[tuple[float, str, float]] = []
        self.times_s = WARM_S
        self._free_at = [0.0] * cores
        self._ends: list[tuple[float, int, LineTicket]] = []
        self._number = 0
        self._chance = random.Random(seed)

    def ask(self, now: float, ticket: LineTicket) -> None:
        self.until(now)
        self.line.arrive(ticket, now)
        self._carry_out(now)

    def until(self, now: float) -> Iterator[LineTicket]:
        """Let what ends until then end."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            at, _, ticket = heapq.heappop(self._ends)
            self.line.finish(ticket, at, ok=True)
            self._carry_out(at)
            ended.append(ticket)
        return iter(ended)

    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else float("inf")

    def _carry_out(self, now: float) -> None:
        for ticket in self.line.let_in():
            self._number += 1
            begins_at = max(heapq.heappop(self._free_at), now)
            ends_at = begins_at + self._chance.choice(self.times_s)
            heapq.heappush(self._free_at, ends_at)
            heapq.heappush(self._ends, (ends_at, self._number, ticket))
            self.said.append((now, "let in", float(self.line.limit.limit)))
        for ticket in self.line.refused():
            self.refused += 1
            self.said.append((now, ticket.reason, ticket.retry_after_s))


def people(count: int, *, cold: tuple[int, float] = (0, 0.0), lasts_s: float = 60.0) -> Work:
    """So many who each ask again when they are answered; one core, slow for the first ``cold``."""
    work = Work(RETRIEVAL_LINE, 1)
    asks = [(number / 100, number) for number in range(count)]
    now, answered = 0.0, 0
    while now < lasts_s:
        work.times_s = WARM_S if answered >= cold[0] else (cold[1],)
        if work.next_end() <= (asks[0][0] if asks else float("inf")):
            now = work.next_end()
            for _ in work.until(now):
                answered += 1
                heapq.heappush(asks, (now + 0.001, answered))
        else:
            now, _ = heapq.heappop(asks)
            work.ask(now, LineTicket(deadline_at=now + 60.0))
    return work


@pytest.mark.parametrize("count", [1, 8, 24])
def test_ordinary_use_of_one_machine_is_never_refused(count: int) -> None:
    assert people(count).refused == 0


@pytest.mark.parametrize("cold", [(8, 0.5), (24, 0.3), (200, 0.2), (2000, 0.15)])
def test_two_dozen_at_a_cold_start_are_all_answered(cold: tuple[int, float]) -> None:
    assert people(24, cold=cold).refused == 0


def test_what_is_refused_says_why_and_when_to_come_back() -> None:
    line = WaitingLine(msgspec.structs.replace(ONE, max_waiting=1))
    late = LineTicket(deadline_at=0.0005)
    line.arrive(late, 0.0)
    assert (late.state, late.reason) == ("refused", "deadline")
    first, second, third = (LineTicket(deadline_at=5.0) for _ in range(3))
    for ticket in (first, second, third):
        line.arrive(ticket, 0.0)
    assert [one.state for one in (first, second, third)] == ["at_work", "waiting", "refused"]
    assert (third.reason, third.retry_after_s) == ("queue_full", 1.0)
    assert line.refused() == [late, third]
    line.finish(first, 0.1, ok=True)
    assert second.state == "at_work"
    assert line.let_in() == [first, second]
    line.finish(second, 0.2, ok=None)
    assert line.statistics()["in_flight"] == line.statistics()["queue_waiting"] == 0


def test_who_could_not_be_answered_in_time_any_more_is_not_let_in() -> None:
    line = WaitingLine(ONE)
    first, second, third = (LineTicket(deadline_at=at) for at in (5.0, 0.3, 5.0))
    for ticket in (first, second, third):
        line.arrive(ticket, 0.0)
    line.finish(first, 0.4, ok=True)
    assert (second.state, second.reason, third.state) == ("refused", "deadline", "at_work")


def test_answers_go_before_searches_and_one_who_left_takes_no_place() -> None:
    line = WaitingLine(ONE)
    names: tuple[Priority, ...] = ("normal", "normal", "high", "low")
    tickets = [LineTicket(deadline_at=9.0, priority=name) for name in names]
    for ticket in tickets:
        line.arrive(ticket, 0.0)
    line.finish(tickets[1], 0.1, ok=None)  # it leaves
    line.finish(tickets[0], 0.2, ok=True)
    assert tickets[2].state == "at_work"
    line.finish(tickets[2], 0.3, ok=False)
    assert tickets[3].state == "at_work"


ONE = LineSettings(limit=LimitSettings(initial=1, least=1, most=1))
TRIED = LineSettings(
    max_waiting=60,
    limit=LimitSettings(initial=4, least=2, most=12, tolerance=2.0, window=16, probe_every=6),
    shed=ShedSettings(target_s=0.05, interval_s=0.3, max_wait_s=0.6, few_waiting=6, few_wait_s=0.9),
)
OTHERS: dict[str, Any] = {
    "max_waiting": 30,
    "limit.initial": 6,
    "limit.least": 3,
    "limit.most": 9,
    "limit.tolerance": 3.0,
    "limit.window": 24,
    "limit.probe_every": 9,
    "shed.target_s": 0.1,
    "shed.interval_s": 0.6,
    "shed.max_wait_s": 0.8,
    "shed.few_waiting": 10,
    "shed.few_wait_s": 1.2,
}


def a_day(settings: LineSettings) -> list[tuple[float, str, float]]:
    """A few people in front of a slow machine, a calm with bursts, overloads."""
    work, chance, now = Work(settings, 2), random.Random(5), 0.0
    for rate, slower in ((4, 40), (4, 40), (60, 1), (60, 1), (200, 1), (400, 1), (60, 1), (300, 3)):
        ends_at = now + 8.0
        work.times_s = tuple(slower * took_s for took_s in WARM_S)
        while now < ends_at:
            now += chance.expovariate(rate)
            for _ in range(40 if rate > 9 and chance.random() < 0.005 else 1):
                work.ask(now, LineTicket(deadline_at=now + 3.0))
    return work.said


def test_every_setting_is_tried() -> None:
    assert set(leaves(RETRIEVAL_LINE)) == set(OTHERS)


@pytest.mark.parametrize("key", OTHERS)
def test_each_setting_changes_what_the_line_does(key: str) -> None:
    assert a_day(replaced(TRIED, key, OTHERS[key])) != a_day(TRIED)
