"""What evaluations say to people, and which statements count as backed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.app.eval_targets import EvalWords, is_across
from forebay.app.eval_text import tell, tell_changes
from forebay.app.evaluating import evaluate, shortcomings, supporting
from forebay.app.judging import JudgeWords
from forebay.app.output import Output
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.compare import compare
from forebay.lab.evaluate.datasets import Document, Question, QuestionSet
from forebay.lab.evaluate.result import EvalResult, Mean, Origin, Row, SetResult
from forebay.lab.measure.result import Quantiles
from forebay.lab.report.words import Words
from tests.unit.lab.evaluate.sets import folder


@pytest.mark.parametrize(
    ("text", "cited", "share"),
    [
        ("The ferry leaves at nine each day [1].", ["The ferry leaves at nine each day."], 1.0),
        ("The ferry leaves at 10 each day [1].", ["The ferry leaves at 9 each day."], 0.0),
        ("水闸每天早上八点打开[1]。门票每人三十元。", ["水闸每天早上八点打开，由两人操作。"], 0.5),
        ("水闸每天早上八点打开。", [], 0.0),
        ("文档中这样说：\n> 水闸每天早上八点打开 [1]", ["水闸每天早上八点打开。"], 1.0),
    ],
)
def test_statements_are_backed_by_what_is_cited(text: str, cited: list[str], share: float) -> None:
    assert supporting(text, cited) == pytest.approx(share)


def result(value: float = 0.5, **more: object) -> EvalResult:
    rows = tuple(Row(str(at), "zh", {"mrr@10": value, "search_s": 0.01}) for at in range(8))
    one = SetResult(
        name="船",
        fingerprint="f",
        documents=3,
        questions=8,
        failed=0,
        measures={"all": {"mrr@10": Mean(value, 8, 0.4, 0.6)}, "zh": {}},
        latency={"all": {"search": Quantiles(count=8, p50_s=0.01, p90_s=0.02, p99_s=0.03)}},
        rungs={"vector+bm25": 7, "bm25": 1},
        rows=rows,
    )
    return EvalResult(Origin("in process"), (msgspec.structs.replace(one, **more),))


def test_an_evaluation_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    tell(result(), Output(), Words())
    out = capsys.readouterr().out
    assert "船: 8 questions, 3 documents" in out
    assert "mrr@10\t0.500 (0.400..0.600)\t-" in out
    assert "rungs: vector+bm25 7, bm25 1" in out
    assert "search\tall\t8\t10 ms\t20 ms\t30 ms" in out
    tell(result(), Output(), Words("zh"))
    out = capsys.readouterr().out
    assert out.startswith("船：8 个问题，3 篇文档\n指标\t全部\t中文\n")
    assert "检索\t全部\t8\t10 ms" in out and "梯级：vector+bm25 7, bm25 1" in out


def test_changes_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    tell_changes(compare(result(0.5), result(0.75)), Output(), Words())
    first, second = capsys.readouterr().out.splitlines()[1:3]
    assert first.split("\t")[2] == "mrr@10" and first.endswith("better")
    assert second.split("\t")[2] == "time of a search" and "+0.0%" in second
    tell_changes(compare(result(), result()), Output(), Words())
    assert capsys.readouterr().out.startswith("Nothing changed beyond noise.")
    tell_changes(compare(result(), result()), Output(), Words("zh"))
    said, columns, *_, row = capsys.readouterr().out.splitlines()
    assert said == "没有超出噪声的变化。"
    assert columns.split("\t")[:4] == ["数据集", "语言", "指标", "问题数"]
    assert row.split("\t")[2] == "检索耗时" and row.endswith("无超出噪声的变化")


def test_what_is_doubtful_is_told_in_the_language_of_the_reader() -> None:
    doubtful = compare(result(), result(fingerprint="g", failed=2))
    assert [str(one) for one in doubtful.why] == list(doubtful.warnings)
    differ, failed = Words("zh").reasons(doubtful.why, doubtful.warnings)
    assert "船 在两边不是同一个数据集：8 和 8 个问题" in differ
    assert failed == "船：第二个结果中有 2 个问题失败。"
    assert Words("zh").reasons((), ("as recorded",)) == ["as recorded"]


def test_what_is_not_whole_is_said() -> None:
    assert shortcomings(result().sets) == []
    rows = (Row("1", "zh", {}, error="it was late."),)
    (told,) = shortcomings(result(failed=1, rows=rows).sets)
    assert told == "船: 1 of 8 questions failed, the first with: it was late."
    judge = {"failed": 5, "error": "no key.", "gave_up": True}
    (told,) = shortcomings(result(judge=judge).sets)
    assert told.endswith("failed on 5 questions, the first with: no key. It was asked no more.")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"url": "http://127.0.0.1:1"}, "name it with --kb"),
        ({"url": "http://127.0.0.1:1", "kb": "a", "documents": [Path("x")]}, "leave out --url"),
        ({"url": "http://127.0.0.1:1", "kb": "a", "patient": True}, "its own time-outs"),
        ({"put": True}, "name it with --url"),
        ({"key_file": Path("key")}, "name it with --url"),
    ],
)
def test_words_that_contradict_each_other(
    tmp_path: Path, words: dict[str, object], told: str
) -> None:
    asked = EvalWords.of({"sets": [folder(tmp_path / "boats")], **words})
    with pytest.raises(ConfigError, match=told):
        evaluate(asked, JudgeWords(), {}, Output())


def test_sets_that_ask_across_languages_are_told() -> None:
    english, chinese = Document("e", "The gate closes at six."), Document("c", "大门六点关闭。")
    asked = Question("1", "大门几点关？", "zh"), Question("2", "When does it close?", "en")
    assert is_across(QuestionSet("s", asked[:1], (english,)))
    assert is_across(QuestionSet("s", asked[1:], (chinese,)))
    assert not is_across(QuestionSet("s", asked[:1], (chinese,)))
    assert not is_across(QuestionSet("s", asked, (english, chinese)))
    assert is_across(QuestionSet("s", asked)), "nobody knows"


def test_one_judge_at_a_time() -> None:
    for words, told in (
        ({"judge": "http://127.0.0.1:1", "small_judge": Path("a")}, "one judge at a time"),
        ({"judge": "http://127.0.0.1:1"}, "--judge-model"),
        ({"judgements": Path("a")}, "needs a judge"),
    ):
        with pytest.raises(ConfigError, match=told):
            JudgeWords.of(words).check()
    JudgeWords.of({"small_judge": Path("a"), "judgements": Path("b")}).check()
