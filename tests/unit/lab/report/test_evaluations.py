"""Reports of evaluations and of two compared: what they say, in both languages, and draw."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import vl_convert

from forebay.lab.evaluate.compare import compare
from forebay.lab.evaluate.datasets import Question, QuestionSet
from forebay.lab.evaluate.result import EvalResult, Origin
from forebay.lab.evaluate.scoring import Depths, score_set
from forebay.lab.evaluate.target import Outcome, Passage, Said
from forebay.lab.report.evaluations import (
    comparison_page,
    evaluation_page,
    write_evaluation_report,
    write_quality_comparison,
)
from forebay.lab.report.page import VEGA_LITE, Page
from forebay.lab.report.words import Words


def evaluation(
    right: int, languages: tuple[str, ...] = ("en", "zh"), failed: int = 0
) -> EvalResult:
    questions = tuple(
        Question(str(at), "?", languages[at % len(languages)], {"a": 1}, ("nine",), (), True)
        for at in range(40)
    )
    outcomes = {
        question.id: Outcome(
            searched=True,
            hits=(Passage("a" if at < right else "b", "nine"),),
            said=Said("nine"),
            search_s=0.001 * (at + 1),
            answer_s=0.01,
            rung="bm25",
            error="it was late" if at < failed else "",
        )
        for at, question in enumerate(questions)
    }
    asked = QuestionSet("boats", questions)
    return EvalResult(
        Origin("in process", measures_by="trec"),
        (score_set(asked, outcomes, lambda _text, _cited: 1.0, Depths(), 1),),
    )


def drawn(page: Page) -> list[dict[str, object]]:
    """Every chart of a page, each made into a picture without complaint."""
    specs = [json.loads(one.spec_json) for section in page.sections for one in section.figures]
    for spec in specs:
        assert vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).startswith("<svg")
    return specs


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_shows_measures_by_language_and_latencies(language: str) -> None:
    words = Words(language)
    page = evaluation_page(evaluation(30), words)
    assert len(drawn(page)) == 4, "retrieval, answers, searches, answers' time"
    measures, latency, rungs, _ = page.sections[0].tables
    assert list(measures.columns[1:]) == [words("all"), words("en"), words("zh")]
    row = next(row for row in measures.rows if row[0] == "ndcg@10")
    assert row[1].startswith("0.750 (")
    assert len(latency.rows) == 6 and rungs.rows == [("bm25", "40")]
    assert not page.alarm
    assert {card.name for card in page.cards} >= {"ndcg@10", words("answer_found")}


def test_one_language_is_drawn_once() -> None:
    page = evaluation_page(evaluation(30, ("zh",)), Words())
    rows = drawn(page)[0]["layer"]
    assert rows
    text = page.sections[0].figures[0].spec_json
    assert '"language":"all"' in text and '"language":"Chinese"' not in text


def test_failures_stand_above_everything() -> None:
    page = evaluation_page(evaluation(30, failed=3), Words())
    assert page.alarm and page.reasons == ["boats: 3 / 40, it was late"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_went_wrong_is_told_by_question(tmp_path: Path, language: str) -> None:
    words = Words(language)
    asked = QuestionSet(
        "boats",
        (
            Question("1", "When <i>?", "en", {"ferry": 1}, ("at nine",), (), True),
            Question("2", "Who?", "en", answerable=False),
        ),
    )
    outcomes = {
        "1": Outcome(True, (Passage("lock", ""),), Said("<script>at ten</script>")),
        "2": Outcome(True, (Passage("lock", ""),), Said("Anna.")),
    }
    scored = score_set(asked, outcomes, lambda _text, _cited: 1.0, Depths(), 1)
    result = EvalResult(Origin("in process"), (scored,))
    table = evaluation_page(result, words).sections[0].tables[-1]
    assert "2" in table.caption and table.columns[0] == words("question")
    invented, wrong = table.rows
    assert invented[:3] == ("Who?", words("answered_without_answer"), words("failure_no_answer"))
    assert wrong[1] == "; ".join((words("answered_wrong"), words("not_found")))
    assert wrong[2:] == ("at nine", "<script>at ten</script>", "lock")
    path = tmp_path / "report.html"
    write_evaluation_report(result, path, words)
    text = path.read_text(encoding="utf-8")
    assert "&lt;script&gt;at ten" in text and "<script>at ten" not in text and "<i>?" not in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_comparison_shows_every_change(language: str) -> None:
    words = Words(language)
    comparison = compare(evaluation(20), evaluation(35, failed=1))
    page = comparison_page(comparison, ("one.json", "two.json"), words)
    assert page.alarm == words("warnings")
    assert len(drawn(page)) == 1
    rows = page.sections[0].tables[0].rows
    row = next(row for row in rows if row[0] == "recall@10")
    assert row[4] == "+0.3750" and row[-1] == words("verdict_better")
    assert any(words("zh") in row[0] for row in rows)


def test_reports_are_one_file_each(tmp_path: Path) -> None:
    result = evaluation(30)
    path = tmp_path / "report.html"
    write_evaluation_report(result, path)
    assert "http://" not in path.read_text(encoding="utf-8").split("<script>")[0]
    write_quality_comparison(compare(result, result), ("a", "b"), path, Words("zh"))
    assert "质量对比" in path.read_text(encoding="utf-8")
    assert msgspec.json.decode(msgspec.json.encode(result), type=EvalResult) == result
