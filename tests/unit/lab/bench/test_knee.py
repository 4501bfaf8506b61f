"""The search brackets the knee; the test of a step is exact."""

from __future__ import annotations

import random

import pytest

from forebay.lab.bench.knee import KneeSearch, judge


def searched(knee: float, start: float = 10, highest: float = 1_000) -> tuple[KneeSearch, int]:
    search, steps = KneeSearch(start, highest, 0.05), 0
    while (rate := search.rate) is not None:
        search.tell(rate <= knee)
        steps += 1
    return search, steps


@pytest.mark.parametrize("knee", [3.0, 10.0, 11.0, 137.0, 641.0, 999.0])
def test_the_knee_lies_in_a_narrow_bracket(knee: float) -> None:
    search, steps = searched(knee)
    assert search.low is not None and search.high is not None
    assert search.low <= knee < search.high <= search.low * 1.05
    assert steps < 20


def test_a_target_that_never_fails_ends_at_the_highest_rate() -> None:
    search, _ = searched(1e9)
    assert (search.low, search.high) == (1_000, None)


def test_a_target_that_always_fails_ends() -> None:
    search, steps = searched(0.0)
    assert search.low is None and search.high is not None
    assert steps == 11


@pytest.mark.parametrize(
    ("good", "meant", "verdict"),
    [
        (0, 0, "undecided"),
        (100, 100, "undecided"),
        (300, 300, "healthy"),
        (995, 1_000, "undecided"),
        (19_960, 20_000, "healthy"),
        (970, 1_000, "overloaded"),
        (0, 5, "overloaded"),
        (0, 100_000, "overloaded"),
    ],
)
def test_verdicts_at_99_percent(good: int, meant: int, verdict: str) -> None:
    assert judge(good, meant, 0.99, 0.95) == verdict


def test_the_verdict_is_wrong_no_more_often_than_it_says() -> None:
    rng = random.Random(9)
    verdicts = [
        judge(sum(rng.random() < 0.99 for _ in range(500)), 500, 0.99, 0.95) for _ in range(400)
    ]
    # Exactly at the border each verdict is an error of 5 % at most.
    assert verdicts.count("healthy") <= 32
    assert verdicts.count("overloaded") <= 32
