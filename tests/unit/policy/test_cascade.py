"""When the dear reranker is asked: by numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.policy.cascade import CascadeSettings, blended, decide

SETTINGS = CascadeSettings(floor=0.3, sure_from=0.8, most=4)


@pytest.mark.parametrize(
    ("relevances", "asked", "why"),
    [
        ([], 0, "nothing to order"),
        ([0.6], 0, "one alone has its place"),
        ([0.5, 0.29, 0.2], 0, "only one is above the floor"),
        ([0.2, 0.1], 0, "nobody is above the floor"),
        ([0.95, 0.4, 0.3], 0, "the first is clearly before the second"),
        ([0.6, 0.55, 0.1], 2, "close, and those under the floor are spared"),
        ([0.6, 0.55, 0.5, 0.45, 0.4], 4, "no more than the most"),
        ([0.3, 0.3], 2, "the floor itself is above it"),
    ],
)
def test_who_is_asked(relevances: list[float], asked: int, why: str) -> None:
    assert decide(relevances, SETTINGS).asked == asked, why


def test_sureness_is_the_chance_that_the_first_is_rightly_first() -> None:
    assert decide([0.5, 0.5], SETTINGS).sure == pytest.approx(0.5)
    assert decide([0.9, 0.1], SETTINGS).sure == pytest.approx(0.81 / 0.82)
    assert decide([1.0, 1.0], SETTINGS).sure == pytest.approx(0.5)
    assert decide([0.7], SETTINGS).sure == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda r: sorted(r, reverse=True)))
def test_less_floor_and_more_doubt_ask_more(relevances: list[float]) -> None:
    found = decide(relevances, SETTINGS)
    assert 0 <= found.asked <= min(4, len(relevances)) and found.asked != 1
    assert all(relevance >= SETTINGS.floor for relevance in relevances[: found.asked])
    assert 0 <= found.sure <= 1 and found.slack >= 0
    always = decide(relevances, CascadeSettings(floor=0.0, sure_from=1.0, most=4))
    assert always.asked >= found.asked


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(-1, 1))
def test_within_the_slack_nobody_crosses_the_floor(one: float, two: float, share: float) -> None:
    relevances = sorted((one, two), reverse=True)
    settings = CascadeSettings(floor=0.3, sure_from=1.0, most=4)
    found = decide(relevances, settings)
    moved = [min(1.0, relevance + 0.99 * share * found.slack) for relevance in relevances]
    assert decide(moved, settings).asked == found.asked


def test_both_models_log_odds_are_averaged() -> None:
    assert blended([0.9, 0.2], [0.1, 0.2], 0.5) == pytest.approx([0.5, 0.2])
    assert blended([0.9, 0.2], [0.1, 0.7], 1.0) == pytest.approx([0.1, 0.7])
    assert blended([0.9, 0.2], [0.1, 0.7], 0.0) == pytest.approx([0.9, 0.2])
    assert blended([1.0], [0.0], 0.5) == pytest.approx([0.5]), "certainty is bounded"
