"""The report of a search."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.compare import Change as AnswerChange
from forebay.lab.evaluate.compare import Verdict
from forebay.lab.measure.result import Machine
from forebay.lab.report.words import Words
from forebay.lab.tune.pipeline import Settled, run_pipeline
from forebay.lab.tune.report import (
    change_sentence,
    held_out_table,
    tuning_page,
    tuning_words,
    write_tuning_report,
    write_tuning_svg,
)
from forebay.lab.tune.result import Change, HeldOut, TuneResult, load_tuning
from forebay.lab.tune.retrieval import Beginning, RetrievalTuning, TuneRetrieval
from forebay.lab.tune.study import StudySettings
from forebay.lab.tune.words import TEXTS
from tests.unit.lab.tune.synthetic import KIND, QUESTIONS, SPACE, FormulaEvaluator


@pytest.fixture(scope="module")
def result() -> TuneResult:
    step = TuneRetrieval(
        RetrievalTuning(
            evaluator=FormulaEvaluator(),
            begin=lambda base: Beginning(SPACE, {KIND: "exact"}),
            settings=StudySettings(trials=30, seed=2),
            clock=VirtualClock(),
        )
    )
    _, steps = asyncio.run(run_pipeline([step], Settled(QUESTIONS), VirtualClock()))
    assert step.found is not None
    return TuneResult(
        corpus="员工手册 <b>",
        source="labels",
        tuning_questions=20,
        settings=StudySettings(trials=30, seed=2),
        quality_loss=0.02,
        space=SPACE,
        before={KIND: "exact"},
        found=step.found,
        patch='[v]\nkind = "hnsw"  # was "exact"\n',
        steps=steps,
        machine=Machine(cpu="a processor", cores=2),
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_self_contained_and_shows_front_knee_and_patch(
    result: TuneResult, language: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_tuning_report(result, path, Words(language))
    text = path.read_text(encoding="utf-8")
    words = tuning_words(Words(language))
    for key in ("tune_chosen", "tune_base", "tune_by_latency", "tune_by_memory", "tune_patch"):
        assert words(key) in text
    assert "员工手册 &lt;b&gt;" in text
    assert "was &#34;exact&#34;" in text
    assert "src=" not in text.split("<script")[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture_has_both_panels(result: TuneResult, language: str, tmp_path: Path) -> None:
    path = tmp_path / "front.svg"
    write_tuning_svg(result, path, Words(language))
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert TEXTS["tune_by_memory"][language == "zh"] in text
    assert "nDCG@10" in text


def test_every_word_has_both_languages() -> None:
    for key, (english, chinese) in TEXTS.items():
        assert english
        assert chinese, key
        assert english.count("{") == chinese.count("{"), key


def test_the_tables_tell_before_and_after(result: TuneResult) -> None:
    words = tuning_words(Words("en"))
    table = held_out_table(result, words)
    assert table.rows[0][0] == "nDCG@10"
    assert all(len(row) == 3 for row in table.rows)
    assert "95 % interval" in change_sentence(result, words)


def test_worse_on_the_held_out_half_is_said_in_red(result: TuneResult) -> None:
    words = tuning_words(Words("zh"))
    assert tuning_page(result, words).alarm == ""
    held = msgspec.structs.replace(result.found.held_out, quality=Change(-0.1, -0.2, -0.05))
    found = msgspec.structs.replace(result.found, held_out=held)
    page = tuning_page(msgspec.structs.replace(result, found=found), words)
    assert "请勿采用" in page.alarm
    assert "-0.1000" in page.reasons[0]


def test_more_lost_than_may_be_is_said_even_if_chance_may_have_done_it(result: TuneResult) -> None:
    def warned(mean: float) -> str:
        held = msgspec.structs.replace(result.found.held_out, quality=Change(mean, -0.1, 0.01))
        found = msgspec.structs.replace(result.found, held_out=held)
        page = tuning_page(msgspec.structs.replace(result, found=found), tuning_words(Words("en")))
        return page.alarm

    assert warned(-0.02) == ""
    assert "tune on more questions" in warned(-0.037)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("quality", "saves", "advised", "warning"),
    [
        (Change(0.0033, 0.0, 0.0099), False, "keep", "tune_noise"),
        (Change(0.0033, 0.0, 0.0099), True, "cheaper", None),
        (Change(0.02, 0.001, 0.04), False, "take", None),
        (Change(-0.05, -0.08, -0.02), True, "keep", "tune_worse"),
        (Change(-0.05, -0.12, 0.01), True, "keep", "tune_loss"),
    ],
)
def test_what_is_within_noise_is_not_advised(
    result: TuneResult,
    quality: Change,
    saves: bool,
    advised: str,
    warning: str | None,
    language: str,
) -> None:
    before = result.found.held_out.before
    cpu_ms = before.cpu_ms * (0.9 if saves else 0.97)
    held = HeldOut(20, before, msgspec.structs.replace(before, cpu_ms=cpu_ms), quality)
    found = msgspec.structs.replace(result.found, held_out=held)
    tuned = msgspec.structs.replace(result, found=found)
    assert (tuned.advised, tuned.warning) == (advised, warning)
    words = tuning_words(Words(language))
    said = change_sentence(tuned, words)
    assert (words("tune_same") in said) is (quality.verdict == "same")
    assert (words("tune_cheaper") in said) is (advised == "cheaper")
    page = tuning_page(tuned, words)
    assert page.alarm == (words(warning) if warning else "")
    assert page.sections[1].notes == (said,)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("verdict", "alarm"), [("worse", "tune_answers"), ("same", "")])
def test_refusals_before_and_after_are_told(
    result: TuneResult, verdict: Verdict, alarm: str, language: str
) -> None:
    held = msgspec.structs.replace(result.found.held_out, quality=Change(0.02, 0.001, 0.04))
    found = msgspec.structs.replace(result.found, held_out=held)
    more = AnswerChange(
        "boats", "all", "answered_without_answer", 24, 0.28, 0.36, 0.08, 0.01, 0.15, 0.03, verdict
    )
    tuned = msgspec.structs.replace(result, found=found, answers=(more,))
    words = tuning_words(Words(language))
    page = tuning_page(tuned, words)
    assert page.alarm == (words(alarm) if alarm else "")
    assert tuned.advised == ("keep" if alarm else "take")
    row = page.sections[1].tables[1].rows[0]
    assert row[:4] == (words("answered_without_answer"), "24", "0.280", "0.360")
    assert row[-1] == words(f"verdict_{verdict}")


def test_a_failed_trial_is_listed_with_its_reason(result: TuneResult) -> None:
    broken = msgspec.structs.replace(result.found.trials[-1], figures=None, reason="列表太多")
    trials = (*result.found.trials[:-1], broken)
    found = msgspec.structs.replace(result.found, trials=trials)
    page = tuning_page(msgspec.structs.replace(result, found=found), tuning_words(Words("en")))
    assert any("列表太多" in row for table in page.sections[0].tables for row in table.rows)


def test_a_search_that_keeps_the_settings_says_so(result: TuneResult) -> None:
    found = msgspec.structs.replace(result.found, chosen=None)
    kept = msgspec.structs.replace(result, found=found)
    assert kept.after == {}
    assert "settings in force" in change_sentence(kept, tuning_words(Words("en")))


def test_a_result_is_read_back(result: TuneResult, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(msgspec.json.encode(result))
    assert load_tuning(path) == result
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="no result of tuning"):
        load_tuning(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_tuning(tmp_path / "missing.json")
