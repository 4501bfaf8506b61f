"""Agreement as it is defined."""

from __future__ import annotations

import math

import pytest

from forebay.lab.evaluate.judging.agreement import agreement, kappa, with_labels
from forebay.lab.evaluate.judging.verdicts import JudgedPassage, JudgedQuestion, Verdict
from forebay.lab.evaluate.target import Passage


def test_kappa_of_a_worked_example() -> None:
    # 20 both yes, 15 both no, 5 and 10 apart: .70 seen, .50 by chance.
    own = [True] * 25 + [False] * 25
    other = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert kappa(own, other) == pytest.approx(0.4)
    assert kappa([True, False], [True, False]) == 1.0
    assert kappa([True, False], [False, True]) == -1.0
    assert math.isnan(kappa([True, True], [True, True])) and math.isnan(kappa([], []))


def test_pairs_are_those_the_other_side_tells_apart() -> None:
    found = agreement([([0.9, 0.9, 0.1], [1.0, 0.0, 0.0]), ([0.2, 0.8], [1.0, 1.0])])
    assert found.passages == 5 and found.pairs == 2
    assert found.pairwise == 0.75, "one pair right, one tied"
    assert found.alike == pytest.approx(3 / 5)
    assert math.isnan(agreement([]).pairwise)


def test_only_passages_with_a_label_are_compared_with_labels() -> None:
    def judged(score: float, fair: float, label: int | None) -> JudgedPassage:
        return JudgedPassage(Passage("a", "text"), Verdict(score, fair), 1, label)

    one = JudgedQuestion(
        "s", "1", "?", "en", (judged(0.9, 0.2, 0), judged(0.4, 0.8, 2), judged(0.9, 0.9, None))
    )
    assert with_labels([one]).pairwise == 1.0 and with_labels([one]).alike == 1.0
    assert with_labels([one], raw=True).pairwise == 0.0 and with_labels([one]).passages == 2
