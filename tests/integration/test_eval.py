"""``forebay eval`` from the command line: in process, against a server, compared, reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from forebay.lab.evaluate.result import EvalResult
from tests.integration.support import LEXICAL, Ran, Served, forebay, served
from tests.unit.lab.evaluate.judging.judges import ScriptedJudge
from tests.unit.lab.evaluate.scripted import Script, Scripted
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
    done = ran(tmp_path, boats, *WORDS, "--patient", "--out", first, "--html", page, "--json")
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


def test_a_knowledge_base_that_is_there(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "leave.md").write_text("# Leave\n\nEach employee has twelve days of leave.\n")
    asked, out, store = tmp_path / "asked.jsonl", tmp_path / "out.json", tmp_path / "store"
    asked.write_bytes(
        lines([{"question": "How many days of leave?", "documents": ["notes/leave.md"]}])
    )
    words = ("--store", store, *WORDS)
    assert forebay("ingest", notes, "--store", store, *WORDS, folder=tmp_path).status == 0
    done = ran(tmp_path, asked, "--kb", "notes", *words, "--out", out)
    assert done.status == 0, done
    assert read(out).sets[0].measures["all"]["recall@1"].value == 1.0
    missing = ran(tmp_path, asked, "--kb", "cars", *words)
    assert missing.status == 1 and "no knowledge base 'cars'" in missing.err


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
    assert nowhere.status == 1 and "no knowledge base 'cars'" in nowhere.err
    assert "error" in nowhere.json, "nothing was asked, so nothing is told"


@pytest.mark.parametrize(("name", "language"), [("xquad_zh", "zh"), ("xquad_en", "en")])
def test_a_public_set(shared_data: Path, tmp_path: Path, name: str, language: str) -> None:
    sets, out = shared_data / "retrieval", tmp_path / "out.json"
    words = ("--limit", "60", "--no-answer", sets / "hotpotqa_train100", "--no-answer-count", "20")
    done = ran(tmp_path, sets / name, *words, *WORDS, "--patient", "--out", out)
    assert done.status == 0, done
    (one,) = read(out).sets
    found = one.measures["all"]
    assert one.documents == 240 and one.questions == 80
    assert found["recall@10"].value > 0.9 and found["recall@10"].count == 60
    assert found["answer_found"].value > 0.6 and found["support"].value > 0.95
    assert found["answered_without_answer"].value < 0.3
    assert one.measures[language]["f1"].count == 60


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


def good(question: str, passage: str) -> float:
    """How many of the question's characters a passage holds."""
    wanted = set(question.lower()) - set(" ?？")
    return len(wanted & set(passage.lower())) / max(1, len(wanted))


@contextmanager
def judging(script: Script) -> Iterator[str]:
    """The address of a scripted judge on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = Scripted(script)
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server.url
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def many(path: Path) -> Path:
    """A set of 80 questions in both languages over 40 documents."""
    path.mkdir()
    things = "ferry lock sluice dam gate pump crane valve rotor shaft".split()
    names = "渡船 船闸 水闸 大坝 闸门 水泵 吊车 阀门 转子 主轴".split()
    corpus, queries, judgements = [], [], []
    for number, (thing, name) in enumerate(product(zip(things, names, strict=True), range(2))):
        english, chinese = thing
        corpus += [
            {"_id": f"e{number}", "text": f"The {english} {name} was built by crew {number}."},
            {"_id": f"z{number}", "text": f"{chinese}{name}号由第{number}班建造。"},
        ]
        for again in range(2):
            queries += [
                {"_id": f"e{number}-{again}", "text": f"Who built the {english} {name}, {again}?"},
                {"_id": f"z{number}-{again}", "text": f"{chinese}{name}号是谁建造的，{again}？"},
            ]
            judgements += [f"e{number}-{again}\te{number}\t1", f"z{number}-{again}\tz{number}\t1"]
    (path / "corpus.jsonl").write_bytes(lines(corpus))
    (path / "queries.jsonl").write_bytes(lines(queries))
    (path / "qrels.tsv").write_text("\n".join(judgements), encoding="utf-8")
    return path


def test_a_judge_scores_what_was_found_and_a_small_one_learns_from_it(tmp_path: Path) -> None:
    boats = many(tmp_path / "boats")
    said, small, out = (tmp_path / name for name in ("said.jsonl", "small.json", "out.json"))
    with judging(ScriptedJudge(good)) as url:
        words = ("--judge", url, "--judge-model", "m", "--judgements", said, "--search-only")
        done = ran(tmp_path, boats, *WORDS, *words, "--out", out)
    assert done.status == 0, done
    (one,) = read(out).sets
    assert one.judge["judged"] == 80 and one.judge["calls"] == 240 and not one.judge["failed"]
    assert one.judge["agreement_with_labels"]["pairwise"] > 0.6
    assert {"judged_relevance", "judged_ndcg"} <= one.measures["zh"].keys() & one.measures[
        "en"
    ].keys()

    made = ran(tmp_path, "distill-judge", said, "--out", small, "--held-out", "0.4", "--json")
    assert made.status == 0, made
    assert made.json["small_with_judge"]["passages"] > 50 and made.json["correlation"] > 0.5
    again = ran(tmp_path, boats, *WORDS, "--small-judge", small, "--search-only", "--out", out)
    assert again.status == 0 and read(out).sets[0].judge["kind"] == "small"


def test_a_judge_that_fails_leaves_the_rest_of_the_result(boats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with judging(lambda *_: web.Response(text="garbage")) as url:
        words = ("--judge", url, "--judge-model", "m", "--out", out)
        done = ran(tmp_path, boats, *WORDS, *words)
    assert done.status == 1 and "the judge failed on" in done.err
    (one,) = read(out).sets
    assert one.measures["all"]["recall@1"].value == 1.0 and one.judge["judged"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--judge", "http://127.0.0.1:1"), "name it with --judge-model"),
        (("--judgements", "said.jsonl"), "needs a judge"),
        (("--small-judge", "none.json"), "cannot read none.json"),
    ],
)
def test_wrong_words_about_a_judge(
    boats: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = ran(tmp_path, boats, *words)
    assert done.status == 2 and told in " ".join(done.err.split()), done
