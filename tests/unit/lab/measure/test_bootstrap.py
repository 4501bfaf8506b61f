"""Blocks are as long as the series' memory, and draws keep neighbours together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.lab.measure.bootstrap import block_length, resampled_weights, weighted_quantiles


def autoregressive(memory: float, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    series = np.zeros(count)
    for step in range(1, count):
        series[step] = memory * series[step - 1] + rng.normal()
    return series


def test_longer_memory_asks_for_longer_blocks() -> None:
    lengths = [
        float(np.mean([block_length(autoregressive(memory, 400, seed)) for seed in range(20)]))
        for memory in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < 4 < lengths[1] < lengths[2] < 60


def test_a_constant_series_needs_no_blocks() -> None:
    assert block_length(np.ones(50)) == 1.0
    assert block_length(np.array([1.0, 2.0])) == 1.0


def test_each_resample_draws_as_many_slices_in_whole_blocks() -> None:
    weights = resampled_weights(20, 5, 300, np.random.default_rng(7))
    assert weights.shape == (300, 20)
    assert (weights.sum(axis=1) == 20).all()
    assert weights.sum(axis=0) == pytest.approx(np.full(20, 300), rel=0.3)
    # Neighbours are drawn together far more often than by chance.
    together = np.mean([np.corrcoef(weights[:, i], weights[:, i + 1])[0, 1] for i in range(19)])
    assert together > 0.6


def test_the_spread_of_a_mean_is_not_understated() -> None:
    """Single slices would say a third of the truth at this memory."""
    series = [autoregressive(0.8, 300, seed) for seed in range(60)]
    truth = np.std([one.mean() for one in series])
    rng = np.random.default_rng(8)

    def spread(one: np.ndarray, length: int) -> float:
        weights = resampled_weights(len(one), length, 200, rng)
        return float(np.std(weights @ one / len(one)))

    blocks = np.mean([spread(one, math.ceil(block_length(one))) for one in series[:30]])
    single = np.mean([spread(one, 1) for one in series[:30]])
    assert 0.7 * truth < blocks < 1.3 * truth
    assert single < 0.5 * truth


def test_weighted_quantiles_of_each_row() -> None:
    values = np.array([1.0, 2.0, 3.0])
    counts = np.array([[1.0, 1.0, 2.0], [0.0, 0.0, 0.0], [10.0, 0.0, 0.0]])
    found = weighted_quantiles(values, counts, 0.5)
    assert found[0] == 2.0 and np.isnan(found[1]) and found[2] == 1.0
