"""Limits, shedding, drain rates, forecasts, tails, retries, batches."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from forebay.kernel.errors import ConfigError
from forebay.policy.limit import AdaptiveLimit, LimitSettings
from forebay.policy.retry import RetryBudget, RetrySettings
from forebay.policy.shed import DelayShedder, DrainRate, ServiceForecast, ShedSettings
from forebay.policy.tail import TailSettings, TailWatch


def settle(limit: AdaptiveLimit, slots: int, ends: int, demand: int = 10_000) -> list[int]:
    """A server of ``slots``: latency is 1 up to them, then in proportion; the limit's course."""
    draw = Random(slots)
    course = []
    for _ in range(ends):
        working = min(limit.limit, demand)
        latency = max(1.0, working / slots) * draw.uniform(0.9, 1.1)
        limit.observe(latency, working)
        course.append(limit.limit)
    return course


@pytest.mark.parametrize("slots", [1, 4, 16, 100])
def test_a_limit_finds_twice_the_slots(slots: int) -> None:
    course = settle(AdaptiveLimit(LimitSettings()), slots, 60_000)[30_000:]
    middle = sorted(course)[len(course) // 2]
    assert 1.4 * slots <= middle <= 2.8 * slots


def test_a_limit_follows_a_server_that_shrinks_and_grows() -> None:
    limit = AdaptiveLimit(LimitSettings())
    settle(limit, 32, 30_000)
    settle(limit, 4, 30_000)
    # Latency per cost is the same on four slots alone: the base stays what it was.
    assert 4 <= limit.limit <= 12
    settle(limit, 32, 30_000)
    assert 40 <= limit.limit <= 90


def test_a_limit_does_not_grow_unused_and_falls_with_failures() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=8))
    settle(limit, 100, 5000, demand=2)
    assert limit.limit <= 8
    for _ in range(500):
        limit.observe(1.0, 8, ok=False)
    assert limit.limit == 1
    with pytest.raises(ConfigError, match="least <= initial"):
        LimitSettings(initial=2, least=4)


def test_what_was_tried_beyond_a_fresh_limit_is_what_it_learned_from() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=8))
    for _ in range(16):
        limit.observe(1.0, 30)
    assert (limit.fresh, limit.limit) == (True, 60)
    for _ in range(60):
        limit.observe(3.0, 40)
    assert (limit.fresh, limit.limit < 60) == (False, True)
    failing = AdaptiveLimit(LimitSettings(initial=8))
    for _ in range(16):
        failing.observe(1.0, 30, ok=False)
    assert (failing.fresh, failing.limit) == (False, 7)


def test_those_who_ran_out_of_time_teach_no_unloaded_latency() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=64))
    for _ in range(64):
        limit.observe(2.0, 64, cut=True)
    assert (limit.base, limit.limit) == (0.0, 32)
    for _ in range(64 + 32):  # those in work began in the crowd
        limit.observe(0.01, 32)
    assert limit.base == 0.01


def test_a_crowd_shrinks_the_limit_once_not_once_more_for_those_still_in_it() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=16, probe_every=1000))
    for _ in range(16):
        limit.observe(1.0, 8)
    for _ in range(16 + 3 * 16):  # ends the doubling: a probe, and what is skipped for it
        limit.observe(4.0, 16)
    for _ in range(200):
        limit.observe(1.0, limit.limit)
    before = limit.limit
    for _ in range(before):
        limit.observe(4.0, before)
    shrunk = limit.limit
    assert shrunk == before // 2
    for _ in range(before):
        limit.observe(4.0, before)
    assert limit.limit == shrunk


def test_a_burst_is_absorbed_and_a_standing_queue_is_shed() -> None:
    shedder = DelayShedder(ShedSettings(target_s=0.02, interval_s=0.5))
    assert not any(shedder.sheds(0.3 - now, now) for now in (0.0, 0.1, 0.2, 0.285))
    drops = [now for now in range(1, 400) if shedder.sheds(0.1, 1 + now / 100)]
    assert drops
    assert drops[0] == 51
    gaps = [after - before for before, after in pairwise(drops)]
    assert gaps == sorted(gaps, reverse=True)
    assert not shedder.sheds(0.001, 6.0)
    assert not shedder.dropping
    shedder.emptied(9.0)
    assert not shedder.sheds(0.1, 7.0)


def served(shedder: DelayShedder, line: int, since: float, seconds: float) -> float:
    """A line that stands for a while, looked at each tenth of a second; the last wait allowed."""
    most_s = 0.0
    for step in range(int(seconds * 10)):
        now = since + step / 10
        shedder.occupied(now, line)
        most_s = shedder.most_wait_s(now, excused=False, waiting=line)
        shedder.emptied(now, line)
    return most_s


def test_a_short_line_is_let_be_until_it_has_grown() -> None:
    shedder = DelayShedder(ShedSettings(0.02, 0.5, max_wait_s=2.0, few_waiting=24))
    assert served(shedder, 23, 0.0, 60.0) == 2.0, "so many ask again when they are answered"
    assert served(shedder, 24, 60.0, 1.0) == 0.02, "and these come anyway"
    assert served(shedder, 3, 61.0, 8.9) == 0.02, "what is left of a crowd is short"
    assert served(shedder, 23, 70.1, 1.0) == 2.0, "it was a crowd that is over"
    assert shedder.sheds(1.0, 71.0, 23) is False


def test_few_may_wait_longer_and_a_crowd_may_not() -> None:
    few = DelayShedder(ShedSettings(0.02, 0.5, max_wait_s=2.0, few_waiting=24, few_wait_s=10.0))
    assert served(few, 23, 0.0, 60.0) == 10.0
    assert few.most_wait_s(60.1, excused=False, waiting=24) == 2.0, "a burst is bounded as before"
    assert served(few, 24, 61.0, 1.0) == 0.02
    assert served(few, 3, 62.0, 5.0) == 0.02
    less = DelayShedder(ShedSettings(0.02, 0.5, max_wait_s=2.0, few_waiting=24, few_wait_s=1.0))
    assert served(less, 3, 0.0, 1.0) == 2.0


def test_a_crowd_that_is_there_again_is_believed_to_stay() -> None:
    shedder = DelayShedder(ShedSettings(0.02, 0.5, max_wait_s=2.0, few_waiting=24))
    now, tries = 0.0, []
    while now < 1_000.0:
        line = 24 if shedder.most_wait_s(now, excused=False, waiting=3) == 2.0 else 3
        if line == 24:
            tries.append(now)
        served(shedder, line, now, 0.6)
        now += 0.6
    gaps = [after - before for before, after in pairwise(tries) if after - before > 1.0]
    assert len(tries) < 30
    assert gaps == sorted(gaps)
    assert gaps[-1] > 300.0


def test_a_limit_at_its_bound_is_not_looking_any_more() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=4, most=8))
    for _ in range(400):
        limit.observe(1.0, limit.limit)
    assert (limit.limit, limit.searching) == (8, False)
    assert limit.base == 1.0


@pytest.mark.parametrize(("interval_s", "stands_s"), [(1.0, 0.6), (0.5, 0.5), (5.0, 3.0)])
def test_a_line_stands_sooner_where_it_is_known_what_those_behind_it_can_do(
    interval_s: float, stands_s: float
) -> None:
    shedder = DelayShedder(ShedSettings(target_s=0.2, interval_s=interval_s, max_wait_s=1.5))
    shedder.occupied(0.0)
    assert shedder.most_wait_s(stands_s - 0.01, excused=False, sure=True) == 1.5
    assert shedder.most_wait_s(stands_s, excused=False, sure=True) == 0.2
    unsure = 1.5 if stands_s < interval_s else 0.2
    assert shedder.most_wait_s(stands_s, excused=False) == unsure


def test_a_line_that_does_not_empty_is_kept_short_at_the_door() -> None:
    shedder = DelayShedder(ShedSettings(target_s=0.2, interval_s=1.0, max_wait_s=1.5))
    assert shedder.most_wait_s(0.0, excused=False) == 1.5
    shedder.occupied(0.0)
    assert shedder.most_wait_s(0.9, excused=False) == 1.5
    assert shedder.most_wait_s(1.0, excused=False) == 0.2
    # Moments without a line do not make a new burst of it, an interval does.
    shedder.emptied(5.0)
    shedder.occupied(5.5)
    assert shedder.most_wait_s(5.5, excused=False) == 0.2
    shedder.emptied(6.0)
    shedder.emptied(7.0)
    shedder.occupied(7.1)
    assert shedder.most_wait_s(7.2, excused=False) == 1.5
    # A line that has another reason counts from when that is over.
    assert shedder.most_wait_s(9.0, excused=True) == 1.5
    assert shedder.most_wait_s(9.5, excused=False) == 1.5
    assert shedder.most_wait_s(10.0, excused=False) == 0.2


def test_lengths_that_do_not_differ_teach_no_ratio() -> None:
    service, draw = ServiceForecast(), Random(1)
    for _ in range(2000):
        tokens, output = 330 + draw.randrange(10), 8 + draw.randrange(60)
        service.observe(tokens, output, (0.1 + 0.02 * output) * draw.uniform(0.7, 1.4))
    # 330 x b and the constant cannot be told apart: the assumed ratio of 50 stays.
    assert service.steps(330, 32) == 330 / 50 + 32
    for _ in range(2000):
        tokens, output = draw.choice((100, 3000)), 8 + draw.randrange(60)
        service.observe(tokens, output, 0.002 * tokens + 0.02 * output)
    assert service.steps(330, 32) == pytest.approx(330 / 10 + 32, rel=0.05)


def test_drain_rate_counts_busy_time_only() -> None:
    drain = DrainRate(memory_s=10)
    assert drain.wait_s(10) is None
    now = 0.0
    for _ in range(50):
        drain.at(now, busy=True)
        now += 0.5
        drain.done(50, now)
        drain.at(now, busy=False)
        now += 2.0
    rate = drain.rate()
    assert rate is not None
    assert 95 <= rate <= 112
    assert drain.wait_s(1000) == pytest.approx(1000 / rate)


def test_a_forecast_learns_prefill_and_decode() -> None:
    draw = Random(1)
    forecast = ServiceForecast()
    assert forecast.forecast_s(10, 10) is None
    for _ in range(300):
        i, o = draw.randint(10, 8000), draw.randint(5, 2000)
        forecast.observe(i, o, (0.02 + i * 1e-4 + o * 0.01) * draw.uniform(0.95, 1.05))
    light, heavy = forecast.forecast_s(50, 10), forecast.forecast_s(8000, 2000)
    assert light is not None
    assert heavy is not None
    assert 0 <= light < 1.0
    assert heavy == pytest.approx(20.82, rel=0.05)


def test_a_forecast_of_constant_sizes_is_their_mean_and_never_negative() -> None:
    forecast = ServiceForecast(learn_after=5)
    for _ in range(10):
        forecast.observe(100, 20, 0.4)
    assert forecast.forecast_s(100, 20) == pytest.approx(0.4, rel=0.01)
    odd = ServiceForecast(learn_after=5)
    for i, o, took in ((10, 10, 5.0), (1000, 10, 1.0), (10, 500, 1.0), (900, 400, 0.1)) * 5:
        odd.observe(i, o, took)
    for i, o in ((0, 0), (10_000, 0), (0, 10_000)):
        guess = odd.forecast_s(i, o)
        assert guess is not None
        assert guess >= 0


def test_the_tail_watch_warns_and_calms_down_with_hysteresis() -> None:
    watch = TailWatch(TailSettings(least=100, window=200, calm_s=10))
    for _ in range(100):
        watch.observe(0.1, long=False)
    assert watch.judge(0.0) is None
    for number in range(400):
        watch.observe(1.0 if number % 20 == 0 else 0.1, long=False)
    change = watch.judge(1.0)
    assert change is not None
    assert (change.level, change.was) == ("severe", "normal")
    assert change.reason == "P99 is 10.0 times P50" or "times P50" in change.reason
    for _ in range(3000):
        watch.observe(0.1, long=False)
    assert watch.judge(2.0) is None
    assert watch.judge(11.0) is None
    change = watch.judge(12.5)
    assert change is not None
    assert change.level == "normal"


def test_many_long_requests_are_a_sign_of_their_own() -> None:
    watch = TailWatch(TailSettings(least=50, window=50))
    for _ in range(300):
        watch.observe(1.0, long=True)
    change = watch.judge(0.0)
    assert change is not None
    assert change.level == "severe"
    assert "are long" in change.reason
    with pytest.raises(ConfigError, match="above warn"):
        TailSettings(warn_ratio=5, severe_ratio=4)


def test_retries_stay_within_a_tenth() -> None:
    budget = RetryBudget(RetrySettings(share=0.1, burst=10))
    made = 0
    for _ in range(1000):
        budget.request()
        made += budget.take(1, remaining_s=10, needs_s=1)
    assert 100 <= made <= 110
    assert not budget.take(2, remaining_s=10, needs_s=1)
    budget.request()
    assert not RetryBudget(RetrySettings()).take(1, remaining_s=0.5, needs_s=1)


def test_where_deadlines_are_tight_they_set_the_line() -> None:
    loose, tight = (AdaptiveLimit(LimitSettings(initial=16)) for _ in range(2))
    for limit, bound in ((loose, math.inf), (tight, 1.0)):
        for latency in [0.9] * 16 + [1.2] * 16:
            limit.observe(latency, 16, bound=bound)
    assert loose.limit > 16, "less than twice the unloaded latency is accepted"
    assert tight.limit < 16, "a third over what ends in time is not"


def test_forecasts_go_by_what_runs_in_little_company() -> None:
    limit = AdaptiveLimit(LimitSettings(initial=16))
    for _ in range(16):
        limit.observe(3.0, 16)
    assert (limit.base, limit.unloaded) == (3.0, 3.0)
    for _ in range(4):
        limit.observe(1.0, 1)
    assert (limit.base, limit.unloaded) == (3.0, 1.0)


def calm_then_crowded() -> AdaptiveLimit:
    """Four in little company beside sixteen, doubled until a window was too slow."""
    limit = AdaptiveLimit(LimitSettings(initial=32, probe_every=10))
    for at in range(32):
        limit.observe(1.0, 8 if at < 8 else 32)
    assert limit.limit == 64
    for _ in range(64):
        limit.observe(4.0, 64)
    return limit


def test_a_pulse_after_a_calm_is_not_looked_at_with_a_third_of_the_limit() -> None:
    limit = calm_then_crowded()
    assert (limit.limit, limit.searching) == (32, False)
    strange = AdaptiveLimit(LimitSettings(initial=32, probe_every=10))
    for latency in [1.0] * 32 + [4.0] * 64:
        strange.observe(latency, 64)
    assert strange.searching
    assert strange.limit < 32 / 2


def test_engines_that_became_slower_raise_the_base_by_what_is_seen_in_calm() -> None:
    """No probe is made where there was a calm; what the calm showed must count like one."""
    limit = calm_then_crowded()
    for _ in range(40):
        for at in range(32):
            limit.observe(3.0, 4 if at < 8 else 32)
    assert limit.base == pytest.approx(3.0)


def test_a_load_that_never_lets_up_is_looked_at_after_all() -> None:
    limit = calm_then_crowded()
    looked = 0
    for _ in range(40 * 32):
        limit.observe(2.0, 32)
        looked += limit.searching
    assert looked
