"""The breaker: when a part is left, how it is tried again, what every use gives back."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forebay.policy.breaker import Breaker, BreakerSettings, Use

PLAIN = BreakerSettings(rest_s=1.0, max_rest_s=8.0, max_relapse_s=32.0)


def use(breaker: Breaker, now: float) -> Use:
    found = breaker.enter(now)
    assert isinstance(found, Use), found
    return found


def probe(breaker: Breaker, now: float) -> Use:
    found = breaker.probe(now)
    assert found is not None
    return found


def test_a_part_that_hangs_is_left_at_the_first_time_out() -> None:
    breaker = Breaker(PLAIN)
    first, second = use(breaker, 0.0), use(breaker, 0.05)
    first.timed_out(0.08, 0.08)
    assert (breaker.state, breaker.why, breaker.openings) == ("open", "silent", 1)
    assert breaker.enter(0.09) == "silent"
    second.timed_out(0.13, 0.08)
    assert breaker.openings == 1, "what began before tells nothing new"
    assert breaker.in_flight == 0


def test_a_part_that_gives_signs_of_life_is_not_taken_for_hung() -> None:
    breaker = Breaker(PLAIN)
    slow, quick = use(breaker, 0.0), use(breaker, 0.04)
    quick.succeeded(0.05, 0.01)
    slow.timed_out(0.08, 0.08)
    assert breaker.state == "closed"


def test_failures_count_only_together_and_only_for_a_while() -> None:
    breaker = Breaker(PLAIN)
    for at in range(9):
        use(breaker, float(at)).failed(float(at))
    assert breaker.state == "closed", "nine are too few to tell"
    use(breaker, 100.0).failed(100.0)
    assert breaker.state == "closed", "the nine are long past"
    for _ in range(9):
        use(breaker, 100.5).failed(100.5)
    assert (breaker.state, breaker.why) == ("open", "errors")


@pytest.mark.parametrize(("failures", "opens"), [(9, False), (10, True)])
def test_the_share_of_failures_decides(failures: int, opens: bool) -> None:
    breaker = Breaker(PLAIN)
    for _ in range(10):
        use(breaker, 1.0).succeeded(1.0, 0.01)
    for _ in range(failures):
        use(breaker, 1.0).failed(1.0)
    assert (breaker.state == "open") is opens


def test_a_long_tail_leaves_it() -> None:
    breaker = Breaker(BreakerSettings(latency_ms=300, least_latencies=64))
    for _ in range(63):
        use(breaker, 0.0).succeeded(0.0, 0.01)
    use(breaker, 0.0).succeeded(0.0, 0.5)
    assert (breaker.state, breaker.why) == ("open", "slow")
    calm = Breaker(BreakerSettings(latency_ms=300, latency_quantile=0.5))
    for at in range(1000):
        use(calm, 0.0).succeeded(0.0, 0.5 if at % 3 == 0 else 0.01)
    assert calm.state == "closed"


def test_finding_the_wrong_things_leaves_it() -> None:
    breaker = Breaker(BreakerSettings(hit_rate=0.65, least_hits=20))
    for at in range(20):
        assert breaker.state == "closed"
        use(breaker, 0.0).succeeded(0.0, 0.01, found=at < 12)
    assert (breaker.state, breaker.why) == ("open", "misses")
    good = Breaker(BreakerSettings(hit_rate=0.65, least_hits=20))
    for at in range(1000):
        use(good, 0.0).succeeded(0.0, 0.01, found=None if at % 2 else at % 20 < 16)
    assert good.state == "closed"
    assert good.statistics()["hit_rate"] == pytest.approx(0.8, abs=0.05)


def test_what_is_over_its_rate_is_turned_away_one_by_one() -> None:
    breaker = Breaker(BreakerSettings(max_per_s=100))
    served = 0
    for at in range(3000):
        now = at / 1000  # ten times as many
        found = breaker.enter(now)
        if isinstance(found, Use):
            served += 1
            found.succeeded(now, 0.001)
        else:
            assert found == "load"
    assert served == 300
    assert breaker.state == "closed"
    assert breaker.statistics()["turned_away"] == 2700


def test_what_is_over_its_room_is_turned_away() -> None:
    breaker = Breaker(BreakerSettings(max_in_flight=2))
    first = use(breaker, 0.0)
    use(breaker, 0.0)
    assert breaker.enter(0.0) == "load"
    first.ignored(0.0)
    use(breaker, 0.0)


def test_single_probes_rest_longer_and_longer_and_one_success_closes() -> None:
    breaker = Breaker(PLAIN)
    use(breaker, 0.0).timed_out(0.0, 0.08)
    now, rests = 0.0, []
    for _ in range(6):
        rest = breaker.rests_s(now)
        rests.append(rest)
        assert breaker.probe(now + rest - 0.001) is None
        now += rest
        one = probe(breaker, now)
        assert breaker.probe(now + 100) is None, "one at a time"
        assert breaker.enter(now) == "silent", "nobody but the probe"
        one.failed(now)
    assert rests == pytest.approx([1, 2, 4, 8, 8, 8])
    now += breaker.rests_s(now)
    probe(breaker, now).succeeded(now, 0.01)
    assert breaker.state == "closed" and breaker.why is None
    use(breaker, now)


def test_a_part_that_only_probes_like_is_tried_more_and_more_rarely() -> None:
    breaker = Breaker(PLAIN)
    now, away = 0.0, []
    for _ in range(8):
        use(breaker, now).timed_out(now + 0.08, 0.08)
        now += 0.08
        rest = breaker.rests_s(now)
        away.append(rest)
        now += rest
        probe(breaker, now).succeeded(now, 0.01)
        now += 0.1
    assert away == pytest.approx([1, 2, 4, 8, 16, 32, 32, 32])
    now += 10_000
    use(breaker, now).timed_out(now + 1, 1.0)
    assert breaker.rests_s(now + 1) == pytest.approx(1.0), "what is long past is forgiven"


def test_a_probe_that_proves_nothing_is_made_again() -> None:
    breaker = Breaker(PLAIN)
    use(breaker, 0.0).timed_out(0.0, 0.08)
    probe(breaker, 1.0).ignored(1.0)
    assert breaker.state == "open" and breaker.rests_s(1.0) == pytest.approx(1.0)


def test_what_was_known_before_is_forgotten_with_the_closing() -> None:
    breaker = Breaker(BreakerSettings(hit_rate=0.65, least_hits=20, rest_s=1.0))
    for _ in range(20):
        use(breaker, 0.0).succeeded(0.0, 0.01, found=False)
    probe(breaker, 1.5).succeeded(1.5, 0.01)
    for _ in range(19):
        use(breaker, 2.0).succeeded(2.0, 0.01, found=False)
    assert breaker.state == "closed"
    use(breaker, 2.0).succeeded(2.0, 0.01, found=False)
    assert breaker.why == "misses"


def test_processes_do_not_probe_together() -> None:
    chance = random.Random(1)
    rests = set()
    for _ in range(20):
        breaker = Breaker(PLAIN, chance.random)
        use(breaker, 0.0).timed_out(0.0, 0.08)
        rests.add(breaker.rests_s(0.0))
    assert len(rests) == 20
    assert all(0.9 <= rest <= 1.1 for rest in rests)


class BreakerMachine(RuleBasedStateMachine):
    """Any order of uses, outcomes and pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(
            BreakerSettings(
                window_s=5.0,
                least_uses=4,
                latency_ms=200,
                least_latencies=16,
                hit_rate=0.5,
                least_hits=4,
                max_in_flight=5,
                max_per_s=50,
                rest_s=0.5,
                max_rest_s=4.0,
                max_relapse_s=8.0,
            )
        )
        self.uses: list[Use] = []
        self.ended: list[Use] = []
        self.probe: Use | None = None
        self.probed_at = float("-inf")

    @rule(seconds=st.floats(0.0, 3.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def enter(self) -> None:
        before = self.breaker.state
        found = self.breaker.enter(self.now)
        if isinstance(found, Use):
            assert before == "closed" and len(self.uses) < 5
            self.uses.append(found)
        else:
            assert before != "closed" or found == "load"

    @rule()
    def try_probe(self) -> None:
        rests = self.breaker.rests_s(self.now)
        found = self.breaker.probe(self.now)
        if found is None:
            assert self.breaker.state != "open" or rests > 0
            return
        assert self.probe is None, "one at a time"
        assert self.now - self.probed_at >= 0.45, "no herd, not even one after the other"
        self.probe, self.probed_at = found, self.now

    @precondition(lambda self: self.uses)
    @rule(
        data=st.data(),
        how=st.sampled_from(["ok", "slow", "wrong", "right", "failed", "late", "left"]),
    )
    def end(self, data: st.DataObject, how: str) -> None:
        one = self.uses.pop(data.draw(st.integers(0, len(self.uses) - 1)))
        self.ended.append(one)
        self._end(one, how)

    @precondition(lambda self: self.probe is not None)
    @rule(how=st.sampled_from(["ok", "failed", "late", "left"]))
    def end_probe(self, how: str) -> None:
        assert self.probe is not None
        one, self.probe = self.probe, None
        self.ended.append(one)
        self._end(one, how)
        assert (self.breaker.state == "closed") is (how == "ok")

    @precondition(lambda self: self.ended)
    @rule(how=st.sampled_from(["ok", "failed", "late", "left"]))
    def end_again(self, how: str) -> None:
        before = (self.breaker.state, self.breaker.in_flight, self.breaker.openings)
        self._end(self.ended[-1], how)
        assert before == (self.breaker.state, self.breaker.in_flight, self.breaker.openings)

    def _end(self, one: Use, how: str) -> None:
        match how:
            case "ok":
                one.succeeded(self.now, 0.01)
            case "slow":
                one.succeeded(self.now, 1.0)
            case "wrong" | "right":
                one.succeeded(self.now, 0.01, found=how == "right")
            case "failed":
                one.failed(self.now)
            case "late":
                one.timed_out(self.now, 0.08)
            case _:
                one.ignored(self.now)

    @invariant()
    def counts_are_right(self) -> None:
        assert self.breaker.in_flight == len(self.uses)
        assert (self.breaker.state == "probing") is (self.probe is not None)
        assert (self.breaker.why is None) is (self.breaker.state == "closed")
        assert self.breaker.rests_s(self.now) <= 8.0 * 1.1


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = hypothesis_settings(max_examples=150, deadline=None)
