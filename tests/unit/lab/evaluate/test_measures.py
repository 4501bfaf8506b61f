"""Measures of rankings equal trec_eval's, with its library and without."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from forebay.lab.evaluate import measures
from forebay.lab.evaluate.measures import Relevance, Values, documents_of, mean, mrr, ndcg, recall

Measure = Callable[[Relevance, dict[str, list[str]], int], Values]


@pytest.fixture(params=["library", "formulas"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "library":
        pytest.importorskip("pytrec_eval")
    else:
        monkeypatch.setattr(measures, "_library", lambda: None)


@pytest.mark.usefixtures("_either_way")
def test_measures_of_a_ranking_worked_by_hand() -> None:
    relevance = {"什么是前池": {"甲": 2, "乙": 1, "丙": 0}}
    rankings = {"什么是前池": ["丙", "乙", "丁", "甲"]}
    gained = 1 / math.log2(3) + 2 / math.log2(5)
    best = 2 / math.log2(2) + 1 / math.log2(3)
    assert ndcg(relevance, rankings, 10) == {"什么是前池": pytest.approx(gained / best)}
    assert ndcg(relevance, rankings, 1) == {"什么是前池": 0.0}
    assert recall(relevance, rankings, 3) == {"什么是前池": 0.5}
    assert recall(relevance, rankings, 4) == {"什么是前池": 1.0}
    assert mrr(relevance, rankings, 10) == {"什么是前池": 0.5}
    assert mrr(relevance, rankings, 1) == {"什么是前池": 0.0}


@pytest.mark.usefixtures("_either_way")
def test_a_query_without_a_ranking_counts_as_zero() -> None:
    relevance = {"found": {"a": 1}, "empty": {"a": 1}, "absent": {"a": 1}}
    rankings = {"found": ["a"], "empty": []}
    for measure in (ndcg, recall, mrr):
        values = measure(relevance, rankings, 5)
        assert values == {"found": 1.0, "empty": 0.0, "absent": 0.0}
        assert mean(values) == pytest.approx(1 / 3)


@pytest.mark.usefixtures("_either_way")
def test_a_query_without_a_relevant_document_has_no_measure() -> None:
    relevance: Relevance = {"none": {}, "judged": {"a": 0}}
    assert ndcg(relevance, {"none": ["a"], "judged": ["a"]}, 5) == {}
    assert math.isnan(mean({}))


@pytest.mark.usefixtures("_either_way")
def test_a_document_counts_once() -> None:
    relevance = {"q": {"a": 1, "b": 1}}
    assert recall(relevance, {"q": ["a", "a", "b"]}, 2) == {"q": 1.0}


def test_a_document_stands_where_its_best_chunk_does() -> None:
    assert documents_of(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_a_depth_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="one document at least"):
        ndcg({"q": {"a": 1}}, {"q": ["a"]}, 0)


@pytest.mark.parametrize("measure", [ndcg, recall, mrr])
def test_the_formulas_are_the_librarys(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytrec_eval")
    rng = random.Random(7)
    documents = [f"d{number}" for number in range(40)]
    relevance: dict[str, dict[str, int]] = {}
    rankings: dict[str, list[str]] = {}
    for query in range(200):
        judged = rng.sample(documents, rng.randint(1, 12))
        relevance[str(query)] = {document: rng.randint(0, 3) for document in judged}
        rankings[str(query)] = rng.sample(documents, rng.randint(0, 40))
    for depth in (1, 3, 10, 100):
        by_library = measure(relevance, rankings, depth)
        with monkeypatch.context() as without:
            without.setattr(measures, "_library", lambda: None)
            by_formula = measure(relevance, rankings, depth)
        assert by_formula == pytest.approx(by_library, abs=1e-12)


def test_who_computed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "_library", lambda: None)
    assert measures.computed_by() == "forebay"
