"""``forebay eval`` from the command line: in process, against a server, compared, reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from forebay.lab.evaluate.result import EvalResult
from tests.integration.support import LEXICAL, Ran, Served, forebay, served
from tests.unit.lab.evaluate.sets import folder, lines

WORDS = ("--set", "embedding.backend=none")


@pytest.fixture
def boats(tmp_path: Path) -> Path:
    return folder(tmp_path / "boats")


def read(path: Path) -> EvalResult:
    return msgspec.json.decode(path.read_bytes(), type=EvalResult)


def ran(folder: Path, *words: str | Path) -> Ran:
    return forebay("eval", *words, folder=folder)


def test_a_folder_is_evaluated_and_two_runs_are_compared(boats: Path, tmp_path: Path) -> None:
    first, second, page = (tmp_path / name for name in ("first.json", "second.json", "page.html"))
    done = ran(tmp_path, boats, *WORDS, "--out", first, "--html", page, "--json")
    assert done.status == 0, done
    result = read(first)
    assert done.json["sets"][0]["name"] == "boats"
    (one,) = result.sets
    assert one.questions == 4 and one.failed == 0 and one.documents == 3
    assert one.measures["en"]["recall@1"].value == one.measures["zh"]["recall@1"].value == 1.0
    assert one.measures["all"]["answer_found"].count == 2
    assert one.measures["all"]["answered_without_answer"].count == 1
    assert one.latency["all"]["search"].count == 4
    assert "<!doctype html>" in page.read_text(encoding="utf-8")[:20]

    store = tmp_path / "store"
    for _ in range(2):  # the second finds the index as it was left
        kept = ran(tmp_path, boats, *WORDS, "--store", store, "--out", second)
        assert kept.status == 0, kept
    compared = ran(tmp_path, "compare", first, second, "--json")
    assert compared.status == 2 and "fewer than 5 questions" in compared.err
    shown = ran(tmp_path, "report", first)
    assert shown.status == 0 and "recall@10\t1.000" in shown.out


def test_questions_of_a_file_with_a_folder_of_documents(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "leave.md").write_text("# Leave\n\nEach employee has twelve days of leave.\n")
    (notes / "假期.md").write_text("# 假期\n\n每位职工每年有十二天年假。\n", encoding="utf-8")
    rows = [
        {
            "question": "How many days of leave?",
            "answer": "twelve",
            "documents": ["notes/leave.md"],
        },
        {"question": "年假有几天？", "answer": "十二天", "documents": ["notes/假期.md"]},
    ]
    asked, out = tmp_path / "asked.jsonl", tmp_path / "out.json"
    asked.write_bytes(lines(rows * 3))
    strangers = folder(tmp_path / "strangers")
    words = ("-d", notes, "--no-answer", strangers, "--no-answer-count", "2", *WORDS)
    done = ran(tmp_path, "run", asked, *words, "--out", out)
    assert done.status == 0, done
    (one,) = read(out).sets
    assert one.questions == 8
    assert one.measures["zh"]["recall@1"].value == one.measures["en"]["recall@1"].value == 1.0
    assert one.measures["all"]["answered_without_answer"].count == 2
    compared = ran(tmp_path, "compare", out, out)
    assert compared.status == 0 and "Nothing changed beyond noise." in compared.out


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("eval"), LEXICAL) as running:
        yield running


def test_a_server_is_evaluated_from_outside(server: Served, boats: Path, tmp_path: Path) -> None:
    url, out = f"http://127.0.0.1:{server.port}", tmp_path / "out.json"
    done = ran(tmp_path, boats, "--url", url, "--kb", "boats", "--put", "--out", out)
    assert done.status == 0, done
    (one,) = read(out).sets
    assert one.measures["all"]["recall@1"].value == 1.0
    assert sum(one.rungs.values()) == 4 and read(out).origin.target == url
    nowhere = ran(tmp_path, boats, "--url", url, "--kb", "cars", "--json")
    assert nowhere.status == 1 and "NOT EVERY QUESTION WAS ANSWERED" in nowhere.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "there is no set of questions at nowhere"),
        (("--url", "http://127.0.0.1:1"), "name it with --kb"),
        (("--put",), "name it with --url"),
        (("--kb", "none"), "there is no store"),
        (("--set", "nonsense"), "section.key=value"),
    ],
)
def test_wrong_use_is_told(boats: Path, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    given: tuple[str | Path, ...] = words if words[0] == "nowhere" else (boats, *words)
    done = ran(tmp_path, *given)
    assert done.status in (1, 2) and told in " ".join(done.err.split()), done
