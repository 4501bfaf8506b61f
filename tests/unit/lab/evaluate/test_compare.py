"""Two results are compared in pairs: chance is seldom taken for a change, a change is seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.compare import Change, EvalComparison, compare
from forebay.lab.evaluate.intervals import Floats
from forebay.lab.evaluate.result import INVENTED, EvalResult, Origin, Row, SetResult


def result(
    values: Floats | Sequence[float],
    measure: str = "ndcg@10",
    *,
    name: str = "boats",
    failed: int = 0,
) -> EvalResult:
    rows = tuple(
        Row(str(at), "zh" if at % 2 else "en", {measure: float(value)})
        for at, value in enumerate(values)
    )
    one = SetResult(name, f"{len(rows)}", 9, len(rows), failed, {}, {}, {}, rows)
    return EvalResult(Origin("in process"), (one,))


def of_all(comparison: EvalComparison) -> Change:
    return next(one for one in comparison.changes if one.language == "all")


def hard(seed: int, count: int = 80) -> Floats:
    """Questions that differ much in how hard they are."""
    return np.random.default_rng(seed).beta(0.5, 0.5, count)


def test_pairs_show_a_small_change_that_means_alone_would_hide() -> None:
    before = hard(1)
    after = np.clip(before + np.random.default_rng(2).normal(0.03, 0.03, len(before)), 0, 1)
    change = of_all(compare(result(before), result(after)))
    assert change.verdict == "better" and change.low > 0 and change.p < 0.01
    assert change.change == pytest.approx(float((after - before).mean()))
    unpaired = np.hypot(before.std(), after.std()) / np.sqrt(len(before))
    assert change.change < 1.96 * unpaired, "the difference of the means is within their noise"


def test_chance_is_seldom_taken_for_a_change() -> None:
    changed = 0
    for seed in range(100):
        before = hard(seed)
        after = before + np.random.default_rng(1_000 + seed).normal(0, 0.1, len(before))
        changed += of_all(compare(result(before), result(after))).verdict != "same"
    assert changed <= 12


def test_the_same_result_did_not_change() -> None:
    for change in compare(result(hard(1)), result(hard(1))).changes:
        assert (change.verdict, change.change, change.p) == ("same", 0.0, 1.0)


@pytest.mark.parametrize(
    ("measure", "verdict"), [("recall@10", "better"), (INVENTED, "worse"), ("search_s", "worse")]
)
def test_of_errors_and_seconds_less_is_better(measure: str, verdict: str) -> None:
    low = np.random.default_rng(1).uniform(0.1, 0.2, 40)
    assert of_all(compare(result(low, measure), result(low * 2, measure))).verdict == verdict
    assert of_all(compare(result(low * 2, measure), result(low, measure))).verdict != verdict


def test_seconds_are_compared_by_their_ratio() -> None:
    taken = np.random.default_rng(3).lognormal(-4, 1, 60)
    change = of_all(compare(result(taken, "answer_s"), result(taken * 1.5, "answer_s")))
    assert [change.change, change.low, change.high] == pytest.approx([0.5] * 3)


def test_each_language_is_compared_too_and_many_looks_cost() -> None:
    before = hard(4)
    after = before + np.random.default_rng(5).normal(0.02, 0.1, len(before))
    found = compare(result(before), result(after)).changes
    assert [one.language for one in found] == ["all", "en", "zh"]
    assert [one.questions for one in found] == [80, 40, 40]
    assert all(one.p <= one.holm <= 1.0 for one in found)
    least = min(found, key=lambda one: one.p)
    assert least.holm == pytest.approx(min(1.0, 3 * least.p))


def test_only_what_both_have_is_compared() -> None:
    comparison = compare(result(hard(1, 40)), result(hard(1, 60), failed=2))
    assert of_all(comparison).questions == 40
    assert len(comparison.warnings) == 2 and "the 40 that both have" in comparison.warnings[0]
    with pytest.raises(ConfigError, match="no set in common: boats against cars"):
        compare(result(hard(1)), result(hard(1), name="cars"))
    with pytest.raises(ConfigError, match="fewer than 5 questions"):
        compare(result([1.0] * 3), result([1.0] * 3))
