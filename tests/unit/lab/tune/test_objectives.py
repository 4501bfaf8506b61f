"""A candidate in numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.lab.tune.objectives import Figures, Observed, costs, figures, qualities
from forebay.lab.tune.questions import Place, Question, Target

FIRST = Question("zh", "产假多少天", (Target("休假.md"), Target("附录.md", 2)))
SECOND = Question("en", "hotel limit", (Target("travel.md", 1, 100, 200),))


def observed(**found: list[Place]) -> Observed:
    return Observed(found, [0.010, 0.030], [0.004, 0.008], 5_000_000, chunks=7, words_only=1)


def test_quality_is_ndcg_of_documents_and_of_parts() -> None:
    seen = observed(
        zh=[Place("休假.md", 0, 9), Place("休假.md", 9, 20), Place("附录.md", 0, 9)],
        en=[Place("travel.md", 0, 90), Place("travel.md", 100, 190)],
    )
    found = qualities(seen, [FIRST, SECOND], 10)
    discount = 1 / math.log2(3)
    assert found["zh"] == pytest.approx((1 + 2 * discount) / (2 + discount))
    assert found["en"] == pytest.approx(discount)


def test_what_was_not_found_counts_as_nothing() -> None:
    assert qualities(observed(zh=[]), [FIRST, SECOND], 10) == {"zh": 0.0, "en": 0.0}
    late = observed(en=[Place(f"d{n}", 0, 9) for n in range(10)] + [Place("travel.md", 100, 200)])
    assert qualities(late, [SECOND], 10) == {"en": 0.0}


def test_figures_hold_costs_of_a_query() -> None:
    point = figures(observed(), [FIRST, SECOND], 10)
    assert point.cpu_ms == pytest.approx(6.0)
    assert point.p50_ms == pytest.approx(20.0)
    assert point.p99_ms == pytest.approx(29.8)
    assert (point.memory_bytes, point.chunks, point.words_only_share) == (5_000_000, 7, 0.5)
    assert point.latency_ms("cpu") == point.cpu_ms
    assert point.latency_ms("p99") == point.p99_ms


def point(quality: float, cpu_ms: float, memory_bytes: int) -> Figures:
    return Figures(quality, cpu_ms, cpu_ms, 9 * cpu_ms, memory_bytes, 1, 0.0)


def test_costs_see_ratios_and_no_noise() -> None:
    table = costs([point(0.9, 1.0, 1000), point(0.9012, 1.01, 1010), point(0.8, 2.0, 4000)], "cpu")
    assert table[0].tolist() == table[1].tolist()
    assert table[2, 0] > table[0, 0]
    assert table[2, 1] - table[0, 1] == pytest.approx(math.log(2), abs=0.05)
    assert table[2, 2] - table[0, 2] == pytest.approx(math.log(4), abs=0.05)
    assert np.isfinite(costs([point(0.0, 0.0, 0)], "p99")).all()
