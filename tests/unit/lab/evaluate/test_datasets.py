"""Sets of questions are read as their owners write them; what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.datasets import language_of, load_set, without_answer
from tests.unit.lab.evaluate.sets import ASKED, folder, lines


def test_a_folder_brings_questions_documents_and_judgements(tmp_path: Path) -> None:
    found = load_set(folder(tmp_path / "boats"))
    assert found.name == "boats"
    assert [document.id for document in found.documents] == ["ferry", "水闸", "lock"]
    first, second, third, fourth = found.questions
    assert (first.language, second.language) == ("en", "zh")
    assert first.relevance == {"ferry": 1, "lock": 0} and first.answers == ("at nine",)
    assert second.relevance == {"水闸": 2}
    assert [one.answerable for one in (first, second, third, fourth)] == [True, True, False, None]


def test_judgements_may_lie_where_beir_puts_them(tmp_path: Path) -> None:
    path = folder(tmp_path / "boats")
    (path / "qrels").mkdir()
    (path / "qrels.tsv").rename(path / "qrels" / "test.tsv")
    assert load_set(path).questions[0].relevance == {"ferry": 1, "lock": 0}


def test_a_file_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_bytes(
        lines(
            [
                {"id": "a", "question": "多少钱？", "answer": ["12", "元"], "documents": ["x.md"]},
                {"question": "How far?", "answers": ["3 km", "3 kilometres"], "language": "en"},
                {"question": "Why?", "documents": [], "answer": [], "kind": "unanswerable"},
                {"question": "谁？", "answer": "李工", "groups": ["hr"]},
                {"question": "Where?", "documents": []},
                {"question": "When?", "documents": {"x.md": 0}},
                {"question": "何时？", "documents": [], "answers": ["3月"]},
            ]
        )
    )
    money, far, why, who, where, when, then = load_set(path).questions
    assert money.parts == ("12", "元") and money.answers == ("12 元",)
    assert money.relevance == {"x.md": 1} and money.answerable
    assert far.id == "2" and far.answers == ("3 km", "3 kilometres") and far.parts == ()
    assert why.answerable is False and why.kind == "unanswerable"
    assert where.answerable is False and when.answerable is None and then.answerable
    assert who.answers == ("李工",) and who.groups == ("hr",) and money.groups is None


def test_the_fingerprint_is_that_of_what_is_asked(tmp_path: Path) -> None:
    one, same = load_set(folder(tmp_path / "one")), load_set(folder(tmp_path / "two"))
    assert one.fingerprint == same.fingerprint and one.corpus == same.corpus
    (tmp_path / "two" / "queries.jsonl").write_bytes(lines(ASKED[:3]))
    other = load_set(tmp_path / "two")
    assert other.fingerprint != one.fingerprint and other.corpus == one.corpus


def test_questions_of_another_set_have_no_answer_here(tmp_path: Path) -> None:
    strangers = without_answer(load_set(folder(tmp_path / "boats")))
    assert all(one.answerable is False and not one.relevance for one in strangers)
    assert [one.id for one in strangers] == ["boats/1", "boats/2", "boats/3", "boats/4"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How far?", "en"),
        ("多远？", "zh"),
        ("GitHub备份脚本上传失败", "zh"),
        ("12", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_that_of_the_script(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("queries.jsonl", '{"_id": "1", "text": "a"}\n{"_id":', r"queries.jsonl:2 cannot be read"),
        ("queries.jsonl", '{"_id": "1", "text": 3}', "queries.jsonl:1 cannot be read"),
        ("queries.jsonl", "", "holds no question"),
        ("queries.jsonl", '{"_id":"1","text":"a"}\n' * 2, "two questions with the id '1'"),
        ("qrels.tsv", "1\tferry\t1\nnonsense\n", r"qrels.tsv:2 is no judgement"),
        ("corpus.jsonl", '{"text": "a"}', "corpus.jsonl:1 cannot be read"),
        (
            "qrels.tsv",
            "1\tno-such\t1\n",
            "1 of 1 documents .* such as 'no-such'",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, file: str, text: str, told: str) -> None:
    path = folder(tmp_path / "boats")
    (path / file).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        load_set(path)


@pytest.mark.parametrize("missing", ["queries.jsonl", "qrels.tsv", "corpus.jsonl"])
def test_what_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    path = folder(tmp_path / "boats")
    (path / missing).unlink()
    with pytest.raises(ConfigError, match=missing):
        load_set(path)
    with pytest.raises(ConfigError, match="no set of questions"):
        load_set(tmp_path / "nowhere")


def test_judgements_of_documents_that_are_not_there_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder(tmp_path / "boats")
    assert load_set(path).questions and not caplog.messages
    with (path / "qrels.tsv").open("a", encoding="utf-8") as judgements:
        judgements.write("1\tdry-dock\t1\n")
    assert load_set(path).questions[0].relevance["dry-dock"] == 1
    assert "1 of 3 documents judged relevant" in caplog.text and "'dry-dock'" in caplog.text
