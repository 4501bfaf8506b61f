"""From what was found and said to measures, in both languages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.result import ALL, INVENTED, REFUSED, UNSURE
from forebay.lab.evaluate.scoring import Depths, score_answer, score_set
from forebay.lab.evaluate.target import Cited, Outcome, Passage, Said

FERRY = Question("1", "When does the ferry leave?", "en", {"ferry": 1}, ("at nine",), (), True)
SLUICE = Question("2", "水闸几点打开？", "zh", {"水闸": 1, "图": 1}, ("早上八点",), (), True)
NOWHERE = Question("3", "Who painted the lock?", "en", answerable=False)
OPEN = Question("4", "What is known?", "en")


def all_of_it(_text: str, cited: Sequence[str]) -> float:
    return float(bool(cited))


def found(*ids: str, error: str = "") -> Outcome:
    hits = tuple(Passage(name, name) for name in ids)
    return Outcome(searched=True, hits=hits, search_s=0.01, rung="bm25", error=error)


def test_an_answer_is_compared_with_what_is_known() -> None:
    said = Said("It leaves at nine [1].", (Cited(1, "ferry", "…"), Cited(2, "lock", "…")))
    values = score_answer(FERRY, said, all_of_it)
    assert values["answer_found"] == 1.0 and values["em"] == 0.0
    assert values["f1"] == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert values[REFUSED] == 0.0 and INVENTED not in values
    assert values["citation_precision"] == 0.5 and values["citation_recall"] == 1.0
    assert values["support"] == 1.0


def test_chinese_is_compared_by_characters() -> None:
    said = Said("早上八点[1]。", (Cited(1, "水闸", "…"),))
    values = score_answer(SLUICE, said, all_of_it)
    assert values["em"] == values["f1"] == values["citation_precision"] == 1.0
    assert values["citation_recall"] == 0.5


def test_a_refusal_is_right_where_there_is_no_answer() -> None:
    refusal = Said("The documents do not say at nine.", refused=True)
    assert score_answer(NOWHERE, refusal, all_of_it) == {INVENTED: 0.0, UNSURE: 0.0}
    wrong = score_answer(FERRY, refusal, all_of_it)
    assert wrong == {REFUSED: 1.0, UNSURE: 0.0, "em": 0.0, "f1": 0.0, "answer_found": 0.0}


def test_an_answer_where_there_is_none_is_the_other_error() -> None:
    values = score_answer(NOWHERE, Said("Anna painted it."), all_of_it)
    assert values == {INVENTED: 1.0, UNSURE: 0.0, "support": 0.0}
    cites_nothing = score_answer(FERRY, Said("At nine."), all_of_it)
    assert cites_nothing["citation_precision"] == cites_nothing["citation_recall"] == 0.0


def test_what_is_told_as_the_nearest_is_no_refusal_and_no_invention() -> None:
    nearest = Said("No plain answer; the nearest: at nine.", unsure=True)
    assert score_answer(NOWHERE, nearest, all_of_it) == {INVENTED: 0.0, UNSURE: 1.0, "support": 0.0}
    values = score_answer(FERRY, nearest, all_of_it)
    assert (values[REFUSED], values[UNSURE], values["answer_found"]) == (0.0, 1.0, 1.0)


def test_where_nothing_is_known_only_support_is_measured() -> None:
    assert score_answer(OPEN, Said("Much.", (Cited(1, "a", "…"),)), all_of_it) == {"support": 1.0}


def test_a_set_is_summed_up_by_language() -> None:
    asked = QuestionSet("boats", (FERRY, SLUICE, NOWHERE, OPEN))
    outcomes = {
        "1": found("lock", "lock", "ferry"),
        "2": found("水闸"),
        "3": found("lock"),
        "4": found(error="no answer within 1 s"),
    }
    outcomes["1"].said = Said("At nine.", (Cited(1, "ferry", ""),))
    outcomes["1"].answer_s = 0.5
    result = score_set(asked, outcomes, all_of_it, Depths(), seed=1)
    assert list(result.measures) == [ALL, "en", "zh"]
    assert result.measures["en"]["mrr@10"].value == 0.5, "a document counts once"
    assert result.measures["zh"]["recall@10"].value == 0.5
    assert result.measures[ALL]["recall@10"].count == 2, "only questions with a right document"
    assert result.failed == 1 and result.rows[3].error == "no answer within 1 s"
    assert result.latency["en"]["answer"].count == 1
    assert result.latency[ALL]["search"].count == 4
    assert result.latency[ALL]["search"].p50_s == pytest.approx(0.01, rel=1e-3)
    assert result.rungs == {"bm25": 4}


def test_one_language_stands_beside_all() -> None:
    result = score_set(QuestionSet("a", (FERRY,)), {"1": found("ferry")}, all_of_it, Depths(), 1)
    assert result.measures[ALL] == result.measures["en"]
    one = result.measures[ALL]["ndcg@10"]
    assert (one.value, one.low, one.high, one.count) == (1.0, 1.0, 1.0, 1)
