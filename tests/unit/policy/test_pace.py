"""How many retrievals for answers are at work at once."""

from __future__ import annotations

import math

from forebay.kernel.clock import VirtualClock
from forebay.policy.pace import Pace, PaceSettings, Takes


class Generation:
    """What engines take, by hand."""

    def __init__(self, free: int = 0) -> None:
        self.ended = 0
        self.free = free
        self.looks = 0

    def takes(self) -> Takes:
        self.looks += 1
        return Takes(self.ended, self.free)


def run(pace: Pace, engines: Generation, per_s: float, seconds: float, since: float = 0.0) -> float:
    """Answers end at a rate for a while; the time then."""
    steps = round(seconds / 0.05)
    begun = engines.ended
    for step in range(1, steps + 1):
        engines.ended = begun + int(per_s * step * 0.05)
        pace.look(0, since + step * 0.05)
    return since + steps * 0.05


def test_it_is_unbounded_until_a_retrieval_was_timed() -> None:
    pace = Pace(PaceSettings(), Generation().takes)
    pace.look(50, 0.0)
    assert math.isinf(pace.most)
    pace.took(0.04)
    pace.look(0, 0.2)
    assert pace.most == 4


def test_it_is_littles_law_of_what_ends() -> None:
    engines = Generation()
    pace = Pace(PaceSettings(), engines.takes)
    pace.took(0.1)
    run(pace, engines, per_s=120, seconds=20)
    assert 118 <= pace.rate() <= 122
    assert pace.most == 12
    run(pace, engines, per_s=30, seconds=30, since=20.0)
    assert pace.most == 4  # 3, and the least is 4


def test_unfed_places_are_fed_within_one_refresh() -> None:
    engines = Generation(free=20)
    pace = Pace(PaceSettings(), engines.takes)
    pace.took(0.05)
    pace.look(12, 0.0)
    # 32 places in 0.2 s are 160 a second, 50 ms each.
    assert pace.most == 8


def test_it_looks_each_200_ms_and_not_more_often() -> None:
    engines = Generation()
    pace = Pace(PaceSettings(), engines.takes)
    run(pace, engines, per_s=10, seconds=4)
    assert 15 <= engines.looks <= 21


def test_a_slower_retrieval_is_let_in_more_often() -> None:
    engines = Generation()
    pace = Pace(PaceSettings(), engines.takes)
    for _ in range(100):
        pace.took(0.02)
    at = run(pace, engines, per_s=200, seconds=20)
    assert pace.most == 4
    for _ in range(100):
        pace.took(0.2)
    run(pace, engines, per_s=200, seconds=5, since=at)
    assert 39 <= pace.most <= 41


class Loop:
    """Places that are always wanted: each answer is retrieved for, written, and followed at once.

    Retrievals take ``search_s`` however many there are, as those of a remote index do.
    """

    def __init__(self, places: int, search_s: float, write_s: float, *, paced: bool) -> None:
        self.clock = VirtualClock()
        self.search_s, self.write_s, self.paced = search_s, write_s, paced
        self.pace = Pace(PaceSettings(), lambda: Takes(self.ended, 0))
        self.pace.took(search_s)
        self.unfed = places
        self.at_work = self.most = self.ended = 0
        self.fed_at = 0.0
        self.go_on()

    def go_on(self) -> None:
        self.pace.look(self.unfed, self.clock.now())
        while self.at_work < self.unfed and (not self.paced or self.at_work < self.pace.most):
            self.at_work += 1
            self.clock.call_at(self.clock.now() + self.search_s, self.found)
        self.most = max(self.most, self.at_work)

    def found(self) -> None:
        self.at_work -= 1
        self.unfed -= 1
        self.pace.took(self.search_s)
        self.clock.call_at(self.clock.now() + self.write_s, self.written)
        if not self.unfed and not self.fed_at:
            self.fed_at = self.clock.now()
        self.go_on()

    def written(self) -> None:
        self.ended += 1
        self.unfed += 1
        self.go_on()


def test_engines_are_fed_as_if_nothing_were_bounded_by_fewer_retrievals_at_once() -> None:
    for places, search_s, write_s in ((64, 0.05, 1.0), (256, 0.02, 2.0), (16, 0.2, 0.5)):
        paced = Loop(places, search_s, write_s, paced=True)
        free = Loop(places, search_s, write_s, paced=False)
        for loop in (paced, free):
            loop.clock.run_until(60.0)
        assert paced.fed_at <= 0.2 + 2 * search_s
        assert paced.ended >= 0.95 * free.ended
        assert paced.most <= max(4, places * search_s / 0.2 + 1) <= free.most + 1
