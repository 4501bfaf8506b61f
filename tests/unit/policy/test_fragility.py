"""Signs of fragile retrieval: per search, per answer, rolling, and what changes of level tell."""

from __future__ import annotations

import random
from statistics import fmean, pvariance

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.policy.fragility import (
    Bounds,
    FragilityChange,
    FragilitySettings,
    FragilityWatch,
    Rolling,
)

CROWDED = Bounds(normal=0.03, fragile=0.06)
"""What an embedder with crowded cosines calls normal."""


def watched(settings: FragilitySettings) -> tuple[FragilityWatch, list[FragilityChange]]:
    heard: list[FragilityChange] = []
    return FragilityWatch("kb", settings, heard.append), heard


def test_rolling_figures_are_those_of_the_last_values() -> None:
    chance = random.Random(3)
    values = [chance.random() for _ in range(1000)]
    rolling = Rolling(200)
    assert (rolling.mean, rolling.variance) == (0, 0)
    for value in values:
        rolling.add(value)
    assert len(rolling) == 200
    assert rolling.mean == pytest.approx(fmean(values[-200:]))
    assert rolling.variance == pytest.approx(pvariance(values[-200:]))


def test_one_search_is_judged_by_its_embedders_bounds() -> None:
    watch, _ = watched(FragilitySettings())
    assert watch.searched(0.9, 0.05, CROWDED) == ()
    assert watch.searched(0.9, 0.07, CROWDED) == ("spread",)
    assert watch.searched(0.9, 0.07, Bounds(0.08, 0.15)) == ()
    assert watch.searched(0.9, 0.9, None) == ()
    assert watch.searched(None, None, None) == ()
    assert watch.statistics()["spread_fragile"] == 1


def test_confidence_that_swings_is_fragile_whatever_one_search_says() -> None:
    watch, heard = watched(FragilitySettings(window=20, least=10))
    for _ in range(20):
        assert watch.searched(0.8, None, None) == ()
    signs = [watch.searched(float(turn % 2), None, None) for turn in range(20)]
    assert signs[0] == ()
    assert signs[-1] == ("confidence",)
    assert watch.statistics()["confidence"] == pytest.approx(0.25)
    assert [(change.sign, change.level) for change in heard] == [
        ("confidence", "warn"),
        ("confidence", "fragile"),
    ]
    assert heard[-1].value > 0.12


def test_an_answer_is_judged_alone_and_all_are_watched() -> None:
    watch, heard = watched(FragilitySettings(window=10, least=10))
    assert not watch.answered(0.0)
    assert watch.answered(0.5)
    assert not watch.answered(0.35)
    for _ in range(7):
        watch.answered(0.1)
    for _ in range(10):
        watch.answered(0.4)
    assert [change.level for change in heard] == ["warn", "fragile"]
    assert heard[-1] == FragilityChange("kb", "unsupported", "fragile", "warn", heard[-1].value)


def test_a_level_is_not_left_at_once() -> None:
    watch, heard = watched(FragilitySettings(window=20, least=10))
    for turn in range(20):
        watch.searched(float(turn % 2), None, None)
    assert watch.levels["confidence"] == "fragile"
    entered = len(heard)
    for _ in range(5):
        watch.searched(0.8, None, None)
    assert len(heard) == entered
    for _ in range(60):
        watch.searched(0.8, None, None)
    assert heard[-1].level == "normal"


def test_few_values_are_no_figure() -> None:
    watch, heard = watched(FragilitySettings(window=200, least=50))
    for turn in range(49):
        watch.searched(float(turn % 2), None, None)
    assert heard == []


@pytest.mark.parametrize(
    "change",
    [
        {"spread_normal_percentile": 99.9},
        {"confidence_fragile": 0.03},
        {"unsupported_normal": 0.5},
    ],
)
def test_fragile_begins_above_normal(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="above normal"):
        msgspec.structs.replace(FragilitySettings(), **change)
