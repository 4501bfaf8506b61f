"""Query files in all forms, popularity by Zipf, groups of other words for the same question."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.queries import QueriesSpec, read_queries


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("q.txt", "first one\n\n  second one \n", {}),
        ("q.csv", "id,question\n1,first one\n2,second one\n", {}),
        ("q.csv", 'id,frage\n1,"first one"\n2,second one\n', {"column": "frage"}),
        ("q.jsonl", '{"_id":"1","text":"first one"}\n{"_id":"2","text":"second one"}\n', {}),
        ("q.jsonl", '{"q":"first one"}\n\n{"q":"second one"}', {"column": "q"}),
        ("q.csv", "\ufefftext\nfirst one\nsecond one\n", {}),
    ],
)
def test_questions_are_read(
    tmp_path: Path, name: str, content: str, options: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    queries = read_queries(QueriesSpec(file=name, **options), tmp_path)
    assert queries.texts == ["first one", "second one"]
    assert queries.tokens == [3, 3]


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("q.csv", "id,frage\n1,x\n", {},
         "q.csv: which column holds the questions? Set column to one of id, frage."),
        ("q.csv", "text\n", {}, "q.csv holds no questions."),
        ("q.csv", "id,text\n1,a\n2\n", {}, "q.csv line 3: the row has 1 of 2 columns."),
        ("q.csv", "text\na\n", {"group": "intent"}, "q.csv has no column intent; it has text."),
        ("q.jsonl", '{"text":"a"}\nnonsense\n', {},
         "q.jsonl line 2 is no JSON object: JSON is malformed: invalid character (byte 4)."),
        ("q.jsonl", '{"text":5}\n', {}, "q.jsonl line 1: the question is not a text."),
        ("q.jsonl", '{"text":"a"}\n{"texts":"b"}\n', {"column": "text"},
         "q.jsonl line 2: no field text; the line has texts."),
        ("q.txt", "a\n", {"group": "x"},
         "q.txt is plain text: it has no columns; use csv or jsonl."),
        ("q.pdf", "a\n", {}, "q.pdf: a file of questions ends in .txt, .csv or .jsonl, not .pdf."),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence(
    tmp_path: Path, name: str, content: str, options: dict[str, Any], sentence: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_queries(QueriesSpec(file=name, **options), tmp_path)
    assert caught.value.message == sentence


def test_latin_1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_bytes("wie heißt".encode("latin-1"))
    with pytest.raises(ConfigError, match="save it as UTF-8"):
        read_queries(QueriesSpec(file="q.txt"), tmp_path)


def test_without_zipf_questions_come_in_order_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("a\nb\nc\n")
    draws = read_queries(QueriesSpec(file="q.txt"), tmp_path).draws(rng())
    assert draws.next(2) + draws.next(3) + draws.next(2) == [0, 1, 2, 0, 1, 2, 0]


def test_popularity_follows_zipf_over_a_seeded_order(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(f"question {n}" for n in range(20)))
    queries = read_queries(QueriesSpec(file="q.txt", zipf=1.0), tmp_path)
    favourites = set()
    for seed in range(5):
        counts = Counter(queries.draws(rng(seed)).next(50_000))
        ranked = [count for _, count in counts.most_common()]
        expected = 50_000 / sum(1 / rank for rank in range(1, 21))
        assert ranked[0] == pytest.approx(expected, rel=0.05)
        assert ranked[4] == pytest.approx(expected / 5, rel=0.1)
        favourites.add(counts.most_common(1)[0][0])
    assert len(favourites) > 1


def test_a_group_is_drawn_before_its_member(tmp_path: Path) -> None:
    rows = ["lost card,lost"] * 1 + [f"way {n} to say late,late" for n in range(9)]
    (tmp_path / "q.csv").write_text("text,intent\n" + "\n".join(rows) + "\n")
    spec = QueriesSpec(file="q.csv", group="intent", zipf=0.0)
    counts = Counter(read_queries(spec, tmp_path).draws(rng()).next(20_000))
    # Two groups alike, though one has nine members: 3 sigma of 10,000 are 212.
    assert abs(counts[0] - 10_000) < 212
    assert all(counts[place] == pytest.approx(10_000 / 9, rel=0.1) for place in range(1, 10))


def test_banking_questions_and_beir_queries(shared_data: Path) -> None:
    spec = QueriesSpec(file="queries/banking77_train.csv", group="category", zipf=1.0)
    queries = read_queries(spec, shared_data)
    assert len(queries.texts) == 10_003
    chosen = queries.draws(rng()).next(1_000)
    assert len({queries.texts[place] for place in chosen}) > 300
    beir = read_queries(QueriesSpec(file="retrieval/xquad_zh/queries.jsonl"), shared_data)
    assert len(beir.texts) == 1_190
