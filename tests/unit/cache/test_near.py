"""Questions that say the same: proposed by their vectors, decided by their words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forebay.cache.near import (
    FALSE_HITS,
    NOTHING,
    UNKNOWN_COSINE,
    NearQuestions,
    NearSettings,
    least_cosine,
)

SCOPE = b"s"


def vector(*values: float) -> np.ndarray:
    row = np.array(values, np.float32)
    unit: np.ndarray = row / np.linalg.norm(row)
    return unit


def questions(**settings: int) -> NearQuestions:
    return NearQuestions(NearSettings(enabled=True, **settings))


def test_what_says_the_same_is_found() -> None:
    held = questions()
    held.add(SCOPE, b"1", "What is the notice period?", vector(1, 0))
    assert held.find(SCOPE, "notice period?", vector(1, 0.1), 0.9) == [b"1"]


def test_vectors_only_propose() -> None:
    held = questions()
    held.add(SCOPE, b"1", "可以退吗", vector(1, 0))
    held.add(SCOPE, b"2", "policy of 2023", vector(1, 0))
    assert held.find(SCOPE, "不可以退吗", vector(1, 0), 0.9) == []
    assert held.find(SCOPE, "policy of 2024", vector(1, 0), 0.9) == []
    assert held.statistics()["refused"] == 4


def test_too_far_is_not_proposed() -> None:
    held = questions()
    held.add(SCOPE, b"1", "notice period", vector(1, 0))
    assert held.find(SCOPE, "notice period", vector(0, 1), 0.5) == []
    assert held.statistics()["proposed"] == 0


def test_scopes_know_nothing_of_each_other() -> None:
    held = questions()
    held.add(b"tenant a", b"1", "notice period", vector(1, 0))
    assert held.find(b"tenant b", "notice period", vector(1, 0), 0.5) == []


def test_the_nearest_comes_first() -> None:
    held = questions()
    held.add(SCOPE, b"far", "the notice period", vector(1, 0.6))
    held.add(SCOPE, b"near", "notice period", vector(1, 0.1))
    assert held.find(SCOPE, "notice period?", vector(1, 0), 0.5) == [b"near", b"far"]


def test_the_same_key_is_held_once() -> None:
    held = questions()
    for _ in range(3):
        held.add(SCOPE, b"1", "notice period", vector(1, 0))
    assert held.statistics()["questions"] == 1


def test_what_is_held_is_bounded() -> None:
    held = questions(max_questions=100)
    for scope in range(10):
        for number in range(30):
            held.add(b"%d" % scope, b"%d.%d" % (scope, number), f"question {number}", vector(1, 0))
    assert held.statistics()["questions"] <= 100
    assert held.find(b"0", "question 1", vector(1, 0), 0.5) == []
    held.clear()
    assert held.statistics()["questions"] == 0


def test_a_full_scope_forgets_its_oldest_questions_and_not_all() -> None:
    questions = NearQuestions(NearSettings(enabled=True, max_questions=32))
    vectors = np.eye(64, dtype=np.float32)
    for number in range(40):
        questions.add(b"scope", b"k%d" % number, f"question {number}", vectors[number])
    assert 30 <= questions.statistics()["questions"] <= 32
    assert questions.find(b"scope", "question 0", vectors[0], 0.9) == []
    for number in (15, 39):
        found = questions.find(b"scope", f"question {number}", vectors[number], 0.9)
        assert found == [b"k%d" % number]


@pytest.mark.parametrize(
    ("budget", "cosine"),
    [(0.12, 0.8), (1.0, 0.6), (0.07, 0.9), (0.02, 0.95), (0.001, NOTHING), (0.0, NOTHING)],
)
def test_the_budget_of_false_hits_picks_the_cosine(budget: float, cosine: float) -> None:
    settings = NearSettings(false_hits_per_million=budget)
    assert least_cosine(settings, "multilingual-e5-small") == cosine
    assert least_cosine(settings, "another") == UNKNOWN_COSINE


def test_a_cosine_that_was_set_is_taken() -> None:
    settings = NearSettings(min_cosine=0.7, false_hits_per_million=0.0)
    assert least_cosine(settings, "multilingual-e5-small") == 0.7
    assert least_cosine(settings, "another") == 0.7


def test_the_default_budget_is_what_the_built_in_embedder_was_tuned_to() -> None:
    assert least_cosine(NearSettings(), "multilingual-e5-small") == 0.8


def test_false_hits_are_those_measured() -> None:
    file = Path(__file__).parents[3] / "benchmarks" / "caching" / "near.json"
    measured = json.loads(file.read_bytes())
    sets = [measured[name] for name in ("banking77", "clinc150")]
    pairs = sum(one["pairs"] for one in sets)
    for at, (cosine, told) in enumerate(FALSE_HITS[measured["embedder"]].items()):
        rows = [one["by_cosine"][at] for one in sets]
        assert {row["min_cosine"] for row in rows} == {cosine}
        false = sum(
            one["passed_other_intent"] * row["other_kept"]
            for one, row in zip(sets, rows, strict=True)
        )
        assert told == pytest.approx(1e6 * false / pairs, abs=0.001)
