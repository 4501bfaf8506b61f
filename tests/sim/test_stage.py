"""The line in front of retrieval: healthy loads are not shed, an overload waits some 20 ms."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from random import Random
from statistics import median

import pytest

from forebay.app.bounding import within_cores
from forebay.policy.bulkhead import RETRIEVAL_LINE
from forebay.policy.line import LineTicket, WaitingLine

CORES, SEARCH_S = 4, 0.004
CAPACITY = CORES / SEARCH_S
LASTS_S, FOUND_S = 12.0, 4.0


class Stage:
    """Searches on some cores behind the gate, in virtual time."""

    def __init__(self, most: int = RETRIEVAL_LINE.limit.most) -> None:
        self.line = WaitingLine(within_cores(RETRIEVAL_LINE, most))
        self.done: list[tuple[float, float]] = []  # when, after how long in line
        self.refused = 0
        self._chance = Random(3)
        self._free_at = [0.0] * CORES
        self._ends: list[tuple[float, int, LineTicket, float]] = []
        self._number = count()

    def ask(self, now: float) -> None:
        self.until(now)
        ticket = LineTicket(deadline_at=now + 10.0)
        self.line.arrive(ticket, now)
        self._carry_out(now)

    def until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, _, ticket, waited_s = heapq.heappop(self._ends)
            self.line.finish(ticket, at, ok=True)
            self.done.append((at, waited_s))
            self._carry_out(at)

    def _carry_out(self, now: float) -> None:
        for ticket in self.line.let_in():
            began_at = max(heapq.heappop(self._free_at), now)
            end_at = began_at + self._chance.expovariate(1 / SEARCH_S)
            heapq.heappush(self._free_at, end_at)
            waited_s = 0.0 if ticket.place is None else now - ticket.place.queued_at
            heapq.heappush(self._ends, (end_at, next(self._number), ticket, waited_s))
        self.refused += len(self.line.refused())


def poisson(rate: float) -> Iterator[float]:
    chance, now = Random(5), 0.0
    while (now := now + chance.expovariate(rate)) < LASTS_S:
        yield now


@pytest.mark.parametrize("most", [8, 64])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_healthy_load_is_not_shed(share: float, most: int) -> None:
    stage = Stage(most)
    for now in poisson(share * CAPACITY):
        stage.ask(now)
    assert stage.refused == 0


@pytest.mark.parametrize("most", [8, 64])
def test_bursts_of_a_fifth_of_a_second_are_absorbed(most: int) -> None:
    stage = Stage(most)
    bursts = [float(second) for second in range(1, 12) for _ in range(int(CAPACITY / 5))]
    for now in sorted([*poisson(0.4 * CAPACITY), *bursts]):
        stage.ask(now)
    assert stage.refused == 0


@pytest.mark.parametrize("most", [8, 64])
@pytest.mark.parametrize("times", [1.5, 3.0, 10.0])
def test_an_overload_waits_shortly_and_wastes_nothing(times: float, most: int) -> None:
    stage = Stage(most)
    for now in poisson(times * CAPACITY):
        stage.ask(now)
    late = [waited_s for at, waited_s in stage.done if at > FOUND_S]
    assert len(late) >= 0.95 * CAPACITY * (LASTS_S - FOUND_S)
    # Half a second before there was a target of this scale. While a limit is looked for anew, a
    # line says nothing, and is let be: some wait longer then.
    assert median(late) <= 0.08
