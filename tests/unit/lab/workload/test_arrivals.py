"""Arrivals: rate, distribution and shape, for several seeds, with critical values stated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.arrivals import (
    Arrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    PulseArrivals,
    RampArrivals,
    RateProfile,
    Segment,
    Step,
    StepArrivals,
)
from tests.unit.lab.workload.statistics import (
    KS_CRITICAL_001,
    ks_statistic,
    ks_two_samples,
    variation,
)

SEEDS = (1, 2, 3, 5, 8, 13)


def times_of(arrivals: Arrivals, seed: int, count: int | None = None) -> list[float]:
    return list(itertools.islice(arrivals.times(np.random.default_rng(seed)), count))


def gaps_of(times: list[float]) -> list[float]:
    return np.diff(times).tolist()


def between(times: list[float], start_s: float, end_s: float) -> int:
    return sum(start_s <= at < end_s for at in times)


def test_constant_gaps_are_exact() -> None:
    times = times_of(ConstantArrivals(rate=50, duration_s=10).arrivals(), 1)
    assert times == pytest.approx([number / 50 for number in range(500)], abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_poisson_rate_is_within_three_sigma(seed: int) -> None:
    times = times_of(PoissonArrivals(rate=200, duration_s=100).arrivals(), seed)
    assert abs(len(times) - 20_000) < 3 * math.sqrt(20_000)
    assert times == sorted(times) and times[0] >= 0 and times[-1] < 100


def test_the_poisson_rate_has_no_bias() -> None:
    # A load that is off by 5 % passes single runs of three sigma; fifty runs show half a percent.
    counts = [
        len(times_of(PoissonArrivals(rate=200, duration_s=50).arrivals(), seed))
        for seed in range(50)
    ]
    assert abs(sum(counts) - 500_000) < 3 * math.sqrt(500_000)
    # The counts scatter as Poisson counts do: variance over mean is 1 +- 3 sqrt(2 / 49).
    assert abs(np.var(counts, ddof=1) / np.mean(counts) - 1) < 3 * math.sqrt(2 / 49)


@pytest.mark.parametrize("seed", SEEDS)
def test_poisson_gaps_are_exponential(seed: int) -> None:
    gaps = gaps_of(times_of(PoissonArrivals(rate=200).arrivals(), seed, 10_001))
    assert ks_statistic(gaps, lambda gap: 1 - math.exp(-200 * gap)) < KS_CRITICAL_001
    # The coefficient of variation of n exponential gaps scatters by 1 / sqrt(n).
    assert abs(variation(gaps) - 1) < 3 / math.sqrt(len(gaps))


@pytest.mark.parametrize("seed", SEEDS)
def test_poisson_gaps_do_not_remember(seed: int) -> None:
    gaps = np.array(gaps_of(times_of(PoissonArrivals(rate=200).arrivals(), seed, 10_001)))
    correlation = float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])
    assert abs(correlation) < 3 / math.sqrt(len(gaps))


@pytest.mark.parametrize("cv", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_gamma_gaps_have_their_variation_and_distribution(cv: float, seed: int) -> None:
    gaps = gaps_of(times_of(GammaArrivals(rate=100, cv=cv).arrivals(), seed, 20_001))
    shape = cv**-2
    # Standard error of the sample CV of gamma gaps: cv * sqrt((1/2 + cv^2) / n) at most.
    assert abs(variation(gaps) - cv) < 3 * cv * math.sqrt((0.5 + cv**2) / len(gaps))
    assert abs(np.mean(gaps) - 0.01) < 3 * 0.01 * cv / math.sqrt(len(gaps))
    reference = np.random.default_rng(999).gamma(shape, 0.01 / shape, 20_000)
    # Below a nanosecond gaps drown in the resolution of the times they are differences of.
    seen, wanted = np.maximum(gaps, 1e-9).tolist(), np.maximum(reference, 1e-9).tolist()
    assert ks_two_samples(seen, wanted) < KS_CRITICAL_001


@pytest.mark.parametrize("cv", [0.5, 3.0])
def test_bursts_do_not_begin_with_a_burst(cv: float) -> None:
    # Were time zero an arrival, (cv^2 - 1) / 2 = 4 of 20 expected ones would come on top.
    runs = 2_000
    arrivals = GammaArrivals(rate=10, cv=cv, duration_s=2).arrivals()
    counts = [len(times_of(arrivals, seed)) for seed in range(runs)]
    error = float(np.std(counts, ddof=1)) / math.sqrt(runs)
    assert abs(float(np.mean(counts)) - 20) < 3 * error


def test_shape_and_cv_say_the_same() -> None:
    by_shape = times_of(GammaArrivals(rate=10, shape=0.25).arrivals(), 4, 100)
    assert by_shape == times_of(GammaArrivals(rate=10, cv=2.0).arrivals(), 4, 100)
    with pytest.raises(ConfigError, match="give one of them"):
        GammaArrivals(rate=10, cv=2.0, shape=0.25).arrivals()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_step_has_its_rate_and_is_even_inside(seed: int) -> None:
    rates = [50.0, 400.0, 0.0, 100.0]
    steps = tuple(Step(rate=rate, duration_s=20) for rate in rates)
    times = times_of(StepArrivals(steps=steps).arrivals(), seed)
    for place, rate in enumerate(rates):
        inside = [at - 20 * place for at in times if 20 * place <= at < 20 * (place + 1)]
        assert abs(len(inside) - 20 * rate) <= 3 * math.sqrt(20 * rate)
        if inside:
            # Given their number, Poisson arrivals are uniform: also next to both borders.
            assert ks_statistic(inside, lambda at: at / 20) < KS_CRITICAL_001
    assert len(times) == sum(0 <= at < 80 for at in times)


def test_a_step_border_is_met_at_once() -> None:
    # The wait for the first arrival after the step is that of the new rate, not what was left of
    # a gap drawn at the old one: mean 1/100 s after a border from 1/s to 100/s.
    steps = (Step(rate=1, duration_s=10), Step(rate=100, duration_s=10))
    waits = [
        next(at for at in times_of(StepArrivals(steps=steps).arrivals(), seed) if at >= 10) - 10
        for seed in range(1_000)
    ]
    assert ks_statistic(waits, lambda wait: 1 - math.exp(-100 * wait)) < KS_CRITICAL_001


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ramp_follows_its_line(seed: int) -> None:
    arrivals = RampArrivals(from_rate=20, to_rate=180, ramp_s=60, hold_s=20).arrivals()
    times = times_of(arrivals, seed)
    assert abs(between(times, 0, 60) - 6_000) < 3 * math.sqrt(6_000)
    assert abs(between(times, 60, 80) - 3_600) < 3 * math.sqrt(3_600)
    climbing = [at for at in times if at < 60]
    # Integral of 20 + (160 / 60) t, over the expected 6,000.
    assert ks_statistic(climbing, lambda at: (20 * at + 80 * at * at / 60) / 6_000) < (
        KS_CRITICAL_001
    )


def test_a_ramp_of_constant_gaps_has_the_exact_inverse() -> None:
    times = times_of(
        RampArrivals(from_rate=0, to_rate=10, ramp_s=10, process="constant").arrivals(), 1
    )
    # Lambda(t) = t^2 / 2, so that arrival i comes at sqrt(2 i).
    assert times == pytest.approx([math.sqrt(2 * number) for number in range(50)])


def test_a_ramp_down_to_nothing_ends() -> None:
    times = times_of(
        RampArrivals(from_rate=10, to_rate=0, ramp_s=10, process="constant").arrivals(), 1
    )
    assert times == pytest.approx([10 - math.sqrt(100 - 2 * number) for number in range(50)])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pulse_of_the_exam(seed: int) -> None:
    times = times_of(PulseArrivals().arrivals(), seed)
    for start_s, end_s, rate in ((0, 30, 200), (30, 60, 800), (60, 90, 200)):
        expected = rate * (end_s - start_s)
        assert abs(between(times, start_s, end_s) - expected) < 3 * math.sqrt(expected)
        # The seconds beside each flank have their own rate too.
        for second in (start_s, end_s - 1):
            assert abs(between(times, second, second + 1) - rate) < 4 * math.sqrt(rate)
    assert times[-1] < 90


def test_a_pulse_may_rise_gently() -> None:
    arrivals = PulseArrivals(rise_s=10, process="constant").arrivals()
    times = times_of(arrivals, 1)
    assert between(times, 30, 40) == pytest.approx(5_000, abs=2)
    assert between(times, 70, 80) == pytest.approx(5_000, abs=2)


def test_steps_repeat() -> None:
    steps = (Step(rate=10, duration_s=2), Step(rate=0, duration_s=3))
    arrivals = StepArrivals(steps=steps, repeat=True, process="constant", duration_s=50).arrivals()
    times = times_of(arrivals, 1)
    assert len(times) == 200
    assert all(at % 5 < 2 + 1e-9 or at % 5 > 5 - 1e-9 for at in times)


def test_bursts_inside_a_pulse() -> None:
    spec = PulseArrivals(process="gamma", cv=3.0)
    counts = [len(times_of(spec.arrivals(), seed)) for seed in range(30)]
    assert float(np.mean(counts)) == pytest.approx(36_000, rel=0.01)


def test_open_ended_arrivals_go_on() -> None:
    times = times_of(PoissonArrivals(rate=1000).arrivals(), 1, 100_000)
    assert len(times) == 100_000 and times[-1] == pytest.approx(100, rel=0.02)


def test_a_seed_gives_the_same_times_and_another_others() -> None:
    arrivals = PulseArrivals().arrivals()
    assert times_of(arrivals, 7) == times_of(arrivals, 7) != times_of(arrivals, 8)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = times_of(PoissonArrivals(rate=100, duration_s=10).arrivals(), 3)
    long = times_of(PoissonArrivals(rate=100, duration_s=100).arrivals(), 3)
    assert long[: len(short)] == short and long[len(short)] >= 10


def test_the_integral_and_its_inverse_agree() -> None:
    profile = RateProfile([Segment(5, 0, 8), Segment(3, 0, 0), Segment(4, 8, 2)])
    assert profile.expected == pytest.approx(40)
    times = profile.times(np.array([0.0, 5.0, 20.0, 30.0, 39.9999, 40.0]))
    assert times[:4] == pytest.approx([0, 2.5, 8, 8 + (8 - math.sqrt(34)) / 1.5])
    assert times[4] == pytest.approx(12, abs=1e-3) and math.isinf(times[5])


def test_rates_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="every rate is 0"):
        StepArrivals(steps=(Step(rate=0, duration_s=1),)).arrivals()


def test_a_variation_needs_the_gamma_process() -> None:
    with pytest.raises(ConfigError, match="gamma"):
        PulseArrivals(cv=2.0).arrivals()
