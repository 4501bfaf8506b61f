"""What places and lengths lend a passage is taken off, and only that."""

from __future__ import annotations

import numpy as np
import pytest

from forebay.lab.evaluate.judging.bias import BiasSettings, corrected, importances

SETTINGS = BiasSettings()


def test_the_ends_lose_up_to_fifteen_points() -> None:
    fair = corrected([0.5] * 5, [0] * 5, SETTINGS)
    assert fair[2] - fair[0] == pytest.approx(0.15) and fair[0] == pytest.approx(fair[4])
    assert fair[2] - fair[1] == pytest.approx(0.075)
    assert fair[2] == 0.5, "the middle has nothing to lose"


def test_length_costs_two_points_per_hundred_tokens() -> None:
    fair = corrected([0.5, 0.5], [100, 400], SETTINGS)
    assert fair[0] - fair[1] == pytest.approx(0.06)


def test_scores_stay_scores() -> None:
    assert corrected([1.0, 0.0, 1.0], [10_000, 0, 0], SETTINGS).tolist()[:2] == [0.0, 0.0]
    assert corrected([0.7], [500], SETTINGS).tolist() == pytest.approx([0.6])
    as_it_is = BiasSettings(ends=0.0, per_100_tokens=0.0)
    assert corrected([0.7, 0.2], [900, 5], as_it_is).tolist() == [0.7, 0.2]
    assert corrected([], [], SETTINGS).tolist() == []


def test_importances_are_shares() -> None:
    shares = importances([0.9, 0.5, 0.1])
    assert shares.sum() == pytest.approx(1.0) and (np.diff(shares) < 0).all()
    assert importances([0.9, 0.1], temperature=0.05)[0] > 0.99
