from __future__ import annotations

from typing import Any

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps


def level(in_flight: int, decode_s: float, context_token_s: float = 0.0) -> SlotLevel:
    return SlotLevel(in_flight=in_flight, decode_s=decode_s, context_token_s=context_token_s)


def rates(**changes: Any) -> SlotRates:
    given: dict[str, Any] = {
        "levels": (level(1, 0.010, 1e-5), level(2, 0.020, 2e-5), level(4, 0.030, 4e-5)),
        "prefill_s": 0.1,
        "prefill_token_s": 0.004,
        "prefill_pair_s": 1e-6,
    }
    return SlotRates(**{**given, **changes})


def test_measured_levels_are_given_back_and_others_lie_between() -> None:
    steps = SlotSteps(rates())
    assert steps.step_seconds(1, 1000, 0, 0) == pytest.approx(0.020)
    assert steps.step_seconds(2, 0, 0, 0) == pytest.approx(0.020)
    assert steps.step_seconds(3, 1000, 0, 0) == pytest.approx(0.025 + 0.030)
    assert steps.step_seconds(6, 0, 0, 0) == pytest.approx(0.040)


def test_beyond_a_falling_table_times_stay_above_zero() -> None:
    steps = SlotSteps(rates(levels=(level(1, 0.030, 4e-5), level(2, 0.010, 1e-5))))
    assert steps.step_seconds(64, 0, 0, 0) == pytest.approx(0.010)
    assert steps.step_seconds(64, 10_000, 0, 0) == pytest.approx(0.010)


def test_one_level_serves_all() -> None:
    assert SlotSteps(rates(levels=(level(2, 0.5),))).step_seconds(7, 0, 0, 0) == 0.5


def test_prefill_counts_tokens_and_what_they_attend_to() -> None:
    steps = SlotSteps(rates())
    assert steps.step_seconds(0, 0, 100, 50) == pytest.approx(0.1 + 0.4 + 0.005)


def test_a_short_prompt_is_no_faster_than_a_decoded_token() -> None:
    steps = SlotSteps(rates(prefill_s=0.0, prefill_token_s=1e-5))
    assert steps.step_seconds(0, 0, 10, 5) == 0.010
    assert steps.step_seconds(0, 0, 5000, 0) == pytest.approx(0.050)


def test_overlap_saves_part_of_the_shorter() -> None:
    both = SlotSteps(rates(overlap=0.5)).step_seconds(1, 0, 100, 0)
    assert both == pytest.approx(0.5 + 0.010 / 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": ()},
        {"levels": (level(2, 0.1), level(1, 0.1))},
        {"levels": (level(0, 0.1),)},
        {"levels": (level(1, 0.0),)},
        {"levels": (level(1, 0.1, -1.0),)},
        {"prefill_s": -0.1},
        {"overlap": 1.5},
    ],
)
def test_impossible_rates_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        rates(**wrong)
