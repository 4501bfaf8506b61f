"""Costs, learned output lengths, recent quantiles."""

from __future__ import annotations

from random import Random

import pytest

from forebay.policy.cost import COST_PROFILES, CostWeights
from forebay.policy.estimate import EstimateSettings, OutputEstimates
from forebay.policy.quantiles import RecentQuantiles


def test_costs_follow_the_formula() -> None:
    assert CostWeights().cost(40, 60) == 100
    assert COST_PROFILES["document"].cost(8000, 2000) == 0.5 * 8000 + 0.7 * 2000 + 2 * 10_000


@pytest.mark.parametrize("profile", COST_PROFILES)
def test_output_within_a_budget_keeps_it(profile: str) -> None:
    weights = COST_PROFILES[profile]
    budget = weights.cost(100, 50)
    most = weights.output_within(budget, 100)
    assert weights.cost(100, most) <= budget + 1e-9
    assert most in (49, 50)
    assert weights.output_within(weights.cost(100, 0) - 1, 100) == -1


def test_the_cap_counts_until_enough_answers_have_settled() -> None:
    estimates = OutputEstimates(EstimateSettings())
    for _ in range(49):
        estimates.settled("shop/chat", 1000, 20)
    assert estimates.estimate("shop/chat", 1000) == 1000
    estimates.settled("shop/chat", 1000, 20)
    assert 20 <= estimates.estimate("shop/chat", 1000) <= 22
    assert estimates.estimate("shop/chat", 10) == 10
    assert estimates.estimate("bank/chat", 1000) == 1000
    assert estimates.statistics() == {"kinds": 1, "learned": 1}


def test_the_estimate_covers_its_share_and_follows_change() -> None:
    draw = Random(7)
    estimates = OutputEstimates(EstimateSettings(quantile=0.9, memory=500))
    for _ in range(1000):
        estimates.settled("k", 10_000, round(draw.lognormvariate(4, 0.8)))
    guess = estimates.estimate("k", 10_000)
    covered = sum(round(draw.lognormvariate(4, 0.8)) <= guess for _ in range(4000)) / 4000
    assert 0.88 <= covered <= 0.93
    for _ in range(4000):
        estimates.settled("k", 10_000, 5)
    assert estimates.estimate("k", 10_000) <= 6


def test_kinds_are_bounded() -> None:
    estimates = OutputEstimates(EstimateSettings(max_kinds=10))
    for number in range(100):
        estimates.settled(str(number), 100 * number, 5)
    assert estimates.statistics()["kinds"] == 10


def test_quantiles_are_near_the_exact_ones() -> None:
    draw = Random(3)
    recent = RecentQuantiles(least=0.001, memory=10_000)
    values = sorted(draw.expovariate(3) for _ in range(9000))
    for value in values:
        recent.add(value)
    for share, found in zip((0.5, 0.9, 0.99), recent.several((0.5, 0.9, 0.99)), strict=True):
        exact = values[round(share * len(values)) - 1]
        assert found is not None
        assert exact * 0.999 <= found <= exact * 1.051
    assert RecentQuantiles(least=1).at(0.5) is None
    with pytest.raises(ValueError, match="growth"):
        RecentQuantiles(least=1, growth=1)


def test_time_is_forecast_from_what_comes_not_from_what_is_allowed() -> None:
    estimates = OutputEstimates(EstimateSettings())
    assert estimates.expected("k", 1000) is None
    for length in range(10, 110):
        estimates.settled("k", 1000, length)
    assert 65 <= (estimates.expected("k", 4000) or 0) <= 75
    assert estimates.expected("k", 120) == 120
    assert estimates.expected("k", 5) == 5


def test_caps_that_differ_by_size_are_learned_apart() -> None:
    estimates = OutputEstimates(EstimateSettings())
    for number in range(100):
        estimates.settled("k", 32, 32)
        if number % 10 == 0:
            estimates.settled("k", 2000, 1900)
    # Ten say enough for a forecast; a reservation waits for fifty, until then all of them count.
    assert estimates.expected("k", 2000) == 2000
    assert 32 <= estimates.estimate("k", 2000) <= 34
    for _ in range(40):
        estimates.settled("k", 1500, 1900)
    assert 1900 <= estimates.estimate("k", 2000) <= 2000
    assert estimates.expected("k", 40) == 40
    assert 32 <= estimates.estimate("k", 40) <= 34
    # Nothing like it has been seen: what is known of all.
    assert 1900 <= estimates.estimate("k", 100_000) <= 2000


def test_sizes_are_bounded_too() -> None:
    estimates = OutputEstimates(EstimateSettings(max_kinds=3, learn_after=1))
    for cap in (1, 2, 4, 8, 16, 32):
        estimates.settled("k", cap, cap)
    for kind in ("l", "m", "n"):
        estimates.settled(kind, 5, 5)
    assert estimates.estimate("k", 32) == 32
    assert estimates.estimate("n", 5) == 5
    assert estimates.statistics()["kinds"] == 3
