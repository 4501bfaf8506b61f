"""Buckets keep their digits, texts are HdrHistogram's, quantiles agree with numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.hdr_text import read_counts, write_counts
from forebay.lab.measure.histogram import (
    HIGHEST_US,
    SparseCounts,
    decode,
    layout,
    merge,
    quantile,
    summarise,
)

# Written by the Python port of HdrHistogram 0.10.8: 0 twice, 1, 2047 three times, 2048,
# 5000 70,000 times, 1,234,567 four times, a day.
FOREIGN = "HISTFAAAADN4nJNpmSzMwMAgxAABzFCaEYhFZK8nMNh/gAiwMP2UZ2M6KPzgKMfieo6FjUxMAMqXCes="


@pytest.mark.parametrize("digits", [2, 3])
def test_a_bucket_holds_what_is_equal_at_its_digits(digits: int) -> None:
    grid = layout(digits)
    rng = np.random.default_rng(1)
    micros = np.concatenate(
        [np.arange(5_000), np.exp(rng.uniform(0, np.log(HIGHEST_US), 5_000)).astype(np.int64)]
    )
    index = grid.index(micros / 1e6)
    assert (grid.lowest[index] <= micros).all() and (micros <= grid.highest[index]).all()
    width = grid.highest[index] - grid.lowest[index]
    assert (width <= micros / 10**digits).all()


def test_buckets_follow_one_another_without_gap() -> None:
    grid = layout(3)
    assert (grid.lowest[1:] == grid.highest[:-1] + 1).all()
    assert grid.highest[-1] >= HIGHEST_US


def test_nothing_falls_out_of_the_range() -> None:
    grid = layout(3)
    index = grid.index(np.array([-1.0, 0.0, 1e9]))
    assert index[0] == index[1] == 0
    assert grid.lowest[index[2]] <= HIGHEST_US <= grid.highest[index[2]]


def test_it_reads_what_hdrhistogram_wrote() -> None:
    digits, index, counts = read_counts(FOREIGN)
    assert digits == 3
    expected = [0, 1, 2047, 2048, 5000, 1_234_567, HIGHEST_US]
    lowest, highest = layout(3).lowest[index], layout(3).highest[index]
    assert (lowest <= expected).all() and (expected <= highest).all()
    assert counts == [2, 1, 3, 1, 70_000, 4, 1]


@given(
    st.dictionaries(
        st.integers(0, layout(3).size - 1), st.integers(1, 2**62), min_size=1, max_size=50
    )
)
@settings(max_examples=50, deadline=None)
def test_a_text_says_the_same_when_read_again(cells: dict[int, int]) -> None:
    index = sorted(cells)
    counts = [cells[at] for at in index]
    assert read_counts(write_counts(index, counts, 3, HIGHEST_US)) == (3, index, counts)


@pytest.mark.parametrize("text", ["x", "AAAA", "é", FOREIGN[:-8], "HISTFAAAADN4" * 20])
def test_a_damaged_text_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="damaged"):
        decode(text)


def test_quantiles_agree_with_exact_ones() -> None:
    grid = layout(3)
    times = np.random.default_rng(2).lognormal(-1, 1, 20_000)
    index, counts = np.unique(grid.index(times), return_counts=True)
    found = summarise(index, counts, total_s=float(times.sum()), max_s=float(times.max()))
    for share, value in ((0.5, found.p50_s), (0.9, found.p90_s), (0.99, found.p99_s)):
        exact = float(np.quantile(times, share, method="inverted_cdf"))
        assert value == pytest.approx(exact, rel=2e-3)
    assert found.mean_s == pytest.approx(times.mean())
    assert found.max_s == times.max()
    assert found.tail_ratio == pytest.approx(found.p99_s / found.p50_s)
    values, read = decode(found.histogram)
    assert quantile(values, read, 0.99) == pytest.approx(found.p99_s)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_few_values_are_ranked_like_anybody_ranks_them(share: float) -> None:
    """Every number of values: the nearest rank would be one too low for half of them."""
    for count in (*range(1, 300), 480, 1100, 2300):
        values = np.arange(1.0, count + 1)
        exact = float(np.quantile(values, share, method="inverted_cdf"))
        assert quantile(values, np.ones(count, np.int64), share) == exact


def test_merging_adds_counts() -> None:
    grid = layout(2)
    one = grid.encode(np.array([3, 900]), np.array([2, 1]))
    other = grid.encode(np.array([900]), np.array([5]))
    values, counts = merge([one, "", other])
    assert counts.tolist() == [2, 6]
    assert values.tolist() == (grid.highest[[3, 900]] / 1e6).tolist()
    assert merge([""])[1].tolist() == []


def test_sparse_counts_count_like_a_dictionary() -> None:
    rng = np.random.default_rng(3)
    sparse = SparseCounts(merge_at=100)
    expected: dict[int, int] = {}
    for _ in range(50):
        keys = rng.integers(0, 200, 40)
        weights = rng.integers(1, 9, 40)
        sparse.add(keys, weights)
        for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
            expected[key] = expected.get(key, 0) + weight
    keys, counts = sparse.items()
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == expected
    assert sparse.within(50, 60)[0].tolist() == [key - 50 for key in range(50, 60)]
    sparse.map_keys(lambda old: old // 2)
    halves, counts = sparse.items()
    assert halves.tolist() == list(range(100))
    assert counts.sum() == sum(expected.values())
