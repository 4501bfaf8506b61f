from __future__ import annotations

import random

import pytest

from forebay.kernel.errors import EngineError
from forebay.lab.sim.fitting import DecodePoint, MixedPoint, PrefillPoint, fit_rates
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps

RATES = SlotRates(
    levels=(
        SlotLevel(in_flight=1, decode_s=0.007, context_token_s=1e-5),
        SlotLevel(in_flight=2, decode_s=0.017, context_token_s=1.2e-5),
        SlotLevel(in_flight=4, decode_s=0.028, context_token_s=1e-5),
    ),
    prefill_s=0.02,
    prefill_token_s=0.0036,
    prefill_pair_s=3.7e-6,
    overlap=0.25,
)
STEPS = SlotSteps(RATES)


def prefill(tokens: int, noise: float = 1.0) -> PrefillPoint:
    pairs = tokens * (tokens + 1) / 2
    seconds = RATES.prefill_s + tokens * RATES.prefill_token_s + pairs * RATES.prefill_pair_s
    return PrefillPoint(prompt_tokens=tokens, seconds=seconds * noise)


def decode(in_flight: int, context: int, noise: float = 1.0) -> DecodePoint:
    seconds = STEPS.step_seconds(in_flight, context, 0, 0)
    return DecodePoint(in_flight=in_flight, context_tokens=context, seconds=seconds * noise)


DECODES = [decode(n, n * context) for n in (1, 2, 4) for context in (60, 400)]


def test_exact_points_give_the_rates_back() -> None:
    mixed = MixedPoint(
        in_flight=2,
        context_tokens=200,
        prompt_tokens=51,
        seconds=STEPS.step_seconds(2, 200, 51, 26),
    )
    fit = fit_rates([prefill(n) for n in (30, 120, 400)], DECODES, [mixed])
    assert fit.rates.prefill_s == pytest.approx(RATES.prefill_s, rel=1e-6)
    assert fit.rates.prefill_token_s == pytest.approx(RATES.prefill_token_s, rel=1e-6)
    assert fit.rates.prefill_pair_s == pytest.approx(RATES.prefill_pair_s, rel=1e-6)
    assert fit.rates.overlap == pytest.approx(0.25, rel=1e-6)
    for fitted, true in zip(fit.rates.levels, RATES.levels, strict=True):
        assert fitted.in_flight == true.in_flight
        assert fitted.decode_s == pytest.approx(true.decode_s, rel=1e-6)
        assert fitted.context_token_s == pytest.approx(true.context_token_s, rel=1e-6)
    assert max(abs(residual.error) for residual in fit.residuals) < 1e-3


def test_noise_moves_times_by_no_more_than_itself() -> None:
    rng = random.Random(5)
    noisy = [prefill(n, rng.uniform(0.97, 1.03)) for n in (20, 50, 100, 200, 400, 800)]
    fit = fit_rates(noisy, DECODES)
    fitted = SlotSteps(fit.rates)
    for tokens in (30, 300, 700):
        true = STEPS.step_seconds(0, 0, tokens, tokens // 2)
        assert fitted.step_seconds(0, 0, tokens, tokens // 2) == pytest.approx(true, rel=0.03)
    assert max(abs(residual.error) for residual in fit.residuals) < 0.06


def test_no_rate_is_below_zero_whatever_was_measured() -> None:
    falling = [
        PrefillPoint(prompt_tokens=10, seconds=0.5),
        PrefillPoint(prompt_tokens=100, seconds=0.4),
    ]
    slower_when_short = [
        DecodePoint(in_flight=1, context_tokens=50, seconds=0.02),
        DecodePoint(in_flight=1, context_tokens=500, seconds=0.01),
    ]
    fit = fit_rates(falling, slower_when_short)
    assert min(fit.rates.prefill_s, fit.rates.prefill_token_s, fit.rates.prefill_pair_s) >= 0
    assert fit.rates.levels[0].context_token_s == 0
    assert max(abs(residual.error) for residual in fit.residuals) > 0.1


def test_prompts_no_longer_than_a_step_do_not_bend_the_line() -> None:
    prompts = [
        PrefillPoint(prompt_tokens=tokens, seconds=0.004 + max(0.012, 0.002 + tokens * 1e-4))
        for tokens in (20, 60, 400, 1000)
    ]
    fit = fit_rates(
        prompts, [DecodePoint(in_flight=1, context_tokens=n, seconds=0.012) for n in (50, 500)]
    )
    assert fit.rates.prefill_token_s == pytest.approx(1e-4, rel=0.01)
    assert fit.request_s == pytest.approx(0.004, rel=0.01)
    assert max(abs(residual.error) for residual in fit.residuals) < 0.01


def test_one_point_a_level_is_enough() -> None:
    fit = fit_rates([prefill(100)], [decode(1, 100)])
    assert SlotSteps(fit.rates).step_seconds(1, 100, 0, 0) == pytest.approx(0.008)
    assert SlotSteps(fit.rates).step_seconds(0, 0, 100, 50) == pytest.approx(prefill(100).seconds)


def test_an_overlap_beyond_reason_is_held_at_its_ends() -> None:
    for seconds, overlap in ((10.0, 0.0), (0.001, 1.0)):
        mixed = MixedPoint(in_flight=1, context_tokens=100, prompt_tokens=50, seconds=seconds)
        fit = fit_rates([prefill(n) for n in (30, 120, 400)], DECODES, [mixed])
        assert fit.rates.overlap == overlap


def test_nothing_measured_is_said() -> None:
    with pytest.raises(EngineError, match="nothing to fit"):
        fit_rates([], DECODES)
    with pytest.raises(EngineError, match="nothing to fit"):
        fit_rates([prefill(100)], [])
