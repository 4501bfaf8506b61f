"""Intervals cover the mean as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.lab.evaluate.intervals import mean_interval, resampled_means


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = rng.binomial(1, 0.7, 120).astype(np.float64)
        low, high = mean_interval(values, rng)
        covered += low <= 0.7 <= high
    assert 180 <= covered <= 199


def test_equal_values_leave_no_doubt_and_none_says_nothing() -> None:
    rng = np.random.default_rng(1)
    assert mean_interval(np.ones(5), rng) == (1.0, 1.0)
    assert all(math.isnan(end) for end in mean_interval(np.empty(0), rng))


def test_large_sets_are_drawn_in_parts() -> None:
    values = np.random.default_rng(2).normal(size=5_000)
    means = resampled_means(values, np.random.default_rng(3), resamples=1_000)
    assert len(means) == 1_000
    assert means.std() == pytest.approx(values.std() / math.sqrt(5_000), rel=0.1)
