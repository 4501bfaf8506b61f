"""Drawn numbers have the mean, spread and bounds they were asked for; Zipf's shares are exact."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import (
    Exponential,
    FromFile,
    LogNormal,
    Shares,
    Uniform,
    Zipf,
    sampler,
    whole_tokens,
)
from tests.unit.lab.workload.statistics import KS_CRITICAL_001, ks_statistic

COUNT = 20_000


def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def test_a_fixed_number_is_itself() -> None:
    assert sampler(42, "x", Path())(rng(), 3).tolist() == [42, 42, 42]


def test_uniform_is_uniform() -> None:
    drawn = sampler(Uniform(10, 30), "x", Path())(rng(), COUNT)
    assert ks_statistic(drawn.tolist(), lambda value: (value - 10) / 20) < KS_CRITICAL_001


def test_lognormal_has_its_mean_and_variation() -> None:
    drawn = sampler(LogNormal(mean=200, cv=0.8), "x", Path())(rng(), COUNT)
    sigma = math.sqrt(math.log1p(0.64))
    mu = math.log(200) - sigma**2 / 2

    def cdf(value: float) -> float:
        return 0.5 * (1 + math.erf((math.log(value) - mu) / (sigma * math.sqrt(2))))

    assert ks_statistic(drawn.tolist(), cdf) < KS_CRITICAL_001
    assert drawn.mean() == pytest.approx(200, rel=3 * 0.8 / math.sqrt(COUNT))


def test_lognormal_is_cut_at_its_bounds() -> None:
    drawn = sampler(LogNormal(mean=50, cv=2, min=10, max=100), "x", Path())(rng(), COUNT)
    assert drawn.min() == 10 and drawn.max() == 100


def test_exponential_has_its_mean() -> None:
    drawn = sampler(Exponential(mean=5), "x", Path())(rng(), COUNT)
    assert ks_statistic(drawn.tolist(), lambda value: 1 - math.exp(-value / 5)) < KS_CRITICAL_001


def test_tokens_are_whole_and_at_least_one() -> None:
    assert whole_tokens(np.array([0.0, 0.4, 1.6, 7.0])) == [1, 1, 2, 7]


def test_numbers_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("name,tokens\na,10\nb,20\n\nc,30\n")
    spec = FromFile(file="lengths.csv", column="tokens")
    drawn = sampler(spec, "x", tmp_path)(rng(), 3_000)
    assert set(drawn.tolist()) == {10, 20, 30}
    assert drawn.mean() == pytest.approx(20, abs=3 * 8.2 / math.sqrt(3_000))
    (tmp_path / "plain.txt").write_text("5\n6\n")
    assert set(sampler(FromFile(file="plain.txt"), "x", tmp_path)(rng(), 50).tolist()) == {5, 6}


@pytest.mark.parametrize(
    ("content", "column", "sentence"),
    [
        ("1\ntwo\n", "", 'numbers.csv line 2: "two" is not a number from 0 on.'),
        ("1\n-2\n", "", 'numbers.csv line 2: "-2" is not a number from 0 on.'),
        ("nan\n", "", 'numbers.csv line 1: "nan" is not a number from 0 on.'),
        ("a,b\n1\n", "b", 'numbers.csv line 2: "" is not a number from 0 on.'),
        ("a,b\n1,2\n", "c", "numbers.csv has no column c; it has a, b."),
        ("", "", "numbers.csv holds no numbers; put one on each line."),
    ],
)
def test_a_bad_file_is_one_sentence(
    tmp_path: Path, content: str, column: str, sentence: str
) -> None:
    (tmp_path / "numbers.csv").write_text(content)
    with pytest.raises(ConfigError) as caught:
        sampler(FromFile(file="numbers.csv", column=column), "x", tmp_path)
    assert caught.value.message == sentence


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.txt does not exist"):
        sampler(FromFile(file="none.txt"), "x", tmp_path)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="swap them"):
        sampler(Uniform(3, 1), "kind a: input_tokens", Path())


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.5])
def test_zipf_frequencies_are_those_of_the_law(exponent: float) -> None:
    items, draws = 50, 200_000
    ranks = Zipf(items, exponent).draw(rng(), draws)
    seen = np.bincount(ranks, minlength=items)
    weights = np.array([1 / rank**exponent for rank in range(1, items + 1)])
    expected = draws * weights / weights.sum()
    # Chi-squared with 49 degrees of freedom: 85.4 is exceeded once in a thousand times.
    assert float(((seen - expected) ** 2 / expected).sum()) < 85.4
    assert len(seen) == items


def test_zipf_of_one_item() -> None:
    assert Zipf(1, 1.0).draw(rng(), 5).tolist() == [0] * 5


def test_shares_are_kept() -> None:
    drawn = Shares([95, 5]).draw(rng(), 100_000)
    assert abs(int(drawn.sum()) - 5_000) < 3 * math.sqrt(100_000 * 0.05 * 0.95)
