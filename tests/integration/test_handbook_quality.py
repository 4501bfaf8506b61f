"""The quality gate: what the served handbook finds and answers for its own questions.

Prints a table. A gate is set slightly under what was measured, so that it fails when search or
answers get worse, and not when one question in twenty goes another way.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.integration.support import ROOT, Client, served, until

GATES: dict[str, tuple[float, float]] = {
    "top 1, all, en": (0.75, 0.797),
    "top 1, all, zh": (0.75, 0.797),
    "top 5, all, en": (0.90, 0.938),
    "top 5, all, zh": (0.91, 0.942),
    "top 5, fact, en": (0.86, 0.909),
    "top 5, fact, zh": (0.91, 0.957),
    "top 5, table, en": (0.90, 1.0),
    "top 5, table, zh": (0.87, 1.0),
    "top 5, procedure, en": (0.87, 1.0),
    "top 5, procedure, zh": (0.90, 1.0),
    "top 5, contrast, en": (0.83, 1.0),
    "top 5, contrast, zh": (0.70, 0.80),
    "top 5, cross-lingual, en": (0.84, 0.923),
    "top 5, cross-lingual, zh": (0.85, 0.929),
    "top 5, group, en": (0.50, 0.75),
    "top 5, group, zh": (0.75, 1.0),
    "answered, en": (0.84, 0.882),
    "answered, zh": (0.83, 0.873),
    "answered, cross-lingual, en": (0.61, 0.769),
    "answered, cross-lingual, zh": (0.64, 0.786),
    "answer is right, en": (0.82, 0.863),
    "answer is right, zh": (0.79, 0.836),
    "cites a right document, en": (0.80, 0.843),
    "cites a right document, zh": (0.82, 0.873),
    "refused, en": (0.66, 0.75),
    "refused, zh": (0.58, 0.667),
}
"""Share of questions: the gate, and beside it what was measured.

Many unanswerable questions are near misses (the canteen's fruit on Sunday), so the shares of
refusals here are far below those of unrelated questions. The refusal is fitted to refuse nine in
ten of those (benchmarks/extractive).
"""

TWINS: tuple[frozenset[str], ...] = (
    frozenset({"handbook/hr/leave-policy-2026.md", "handbook/hr/休假制度-2026.md"}),
    frozenset({"handbook/finance/travel-expenses.md", "handbook/finance/差旅报销.md"}),
    frozenset({"handbook/it/accounts-and-passwords.md", "handbook/it/账号与密码.md"}),
    frozenset({"handbook/products/fb-2041-manual.md", "handbook/products/FB-2041安装手册.docx"}),
)
"""Documents that state the same facts in two languages."""


class Question(msgspec.Struct, frozen=True):
    id: str
    question: str
    language: str
    documents: tuple[str, ...]
    answer: tuple[str, ...]
    kind: str
    groups: tuple[str, ...] = ()

    @property
    def accepted(self) -> frozenset[str]:
        """Documents that answer it, in either language."""
        twins = [twin for twin in TWINS if twin & set(self.documents)]
        return frozenset(self.documents).union(*twins)

    @property
    def headers(self) -> Mapping[str, str]:
        """The groups to ask with: its own and no others."""
        return {"x-forebay-groups": ",".join(self.groups)}


def questions() -> list[Question]:
    lines = (ROOT / "examples" / "questions" / "handbook.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Question) for line in lines]


class Shares:
    """Shares of questions by name."""

    def __init__(self) -> None:
        self.counts: dict[str, list[str]] = defaultdict(list)
        self.missed: dict[str, list[str]] = defaultdict(list)

    def add(self, name: str, question: Question, good: bool) -> None:
        self.counts[name].append(question.id)
        if not good:
            self.missed[name].append(question.id)

    def share(self, name: str) -> float:
        return 1 - len(self.missed[name]) / len(self.counts[name])

    def table(self) -> str:
        rows = [f"{'measure':38} {'n':>3} {'share':>6} {'gate':>6}  missed"]
        for name in sorted(self.counts):
            gate = GATES.get(name, (0.0, 0.0))[0]
            missed = " ".join(self.missed[name][:12])
            share = self.share(name)
            rows.append(f"{name:38} {len(self.counts[name]):3} {share:6.3f} {gate:6.2f}  {missed}")
        return "\n".join(rows)

    def check(self) -> None:
        assert self.counts.keys() <= GATES.keys(), self.table()
        low = [name for name in self.counts if self.share(name) < GATES[name][0]]
        assert not low, f"under their gates: {low}\n{self.table()}"


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The handbook, served with the defaults but for time, every chunk embedded."""
    folder = tmp_path_factory.mktemp("handbook")
    config = f'[knowledge.handbook]\npaths = ["{ROOT / "examples" / "handbook"}"]\n'
    # What is found by meaning is judged here, not whether a busy machine finds it in time.
    config += "[retrieval]\nvector_timeout_ms = 20000\n"
    with served(folder, config) as server:
        path = ROOT / "examples" / "handbook"
        ran = server.command("ingest", path, "--kb", "handbook", "--wait-embedded", "--json")
        assert ran.status == 0, ran
        # Answers are chosen and judged by vectors of sentences, which nobody else waits for.
        until(lambda: chunks_without_sentences(folder) == 0, 240)
        yield server.ask


def chunks_without_sentences(folder: Path) -> int:
    """Embedded chunks whose sentences have no vectors yet, by the store's file."""
    [file] = folder.rglob("record.sqlite3")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        [[count]] = connection.execute(
            "SELECT (SELECT count(*) FROM embedding) - (SELECT count(*) FROM sentence)"
        )
    return int(count)


def test_retrieval(handbook: Client, capsys: pytest.CaptureFixture[str]) -> None:
    shares = Shares()
    for question in questions():
        if not question.documents:
            continue
        hits = handbook.search("handbook", question.question, 5, question.headers)
        found = question.accepted & {hit["document_id"] for hit in hits}
        shares.add(f"top 5, {question.kind}, {question.language}", question, bool(found))
        shares.add(f"top 5, all, {question.language}", question, bool(found))
        first = bool(hits) and hits[0]["document_id"] in question.accepted
        shares.add(f"top 1, all, {question.language}", question, first)
    with capsys.disabled():
        print("\n" + shares.table())  # noqa: T201
    shares.check()


RESTRICTED = {
    "handbook/hr/薪酬等级.md": "hr",
    "handbook/finance/budget-2026.md": "finance",
}


@pytest.mark.parametrize("groups", ["", "visitors", "hr", "finance"])
def test_a_restricted_document_never_appears_without_its_group(
    handbook: Client, groups: str
) -> None:
    headers = {"x-forebay-groups": groups}
    hidden = {name for name, group in RESTRICTED.items() if group != groups}
    for question in questions():
        if question.kind == "group":
            hits = handbook.search("handbook", question.question, 50, headers)
            assert not hidden & {hit["document_id"] for hit in hits}, question.id
            answer = ask(handbook, question.question, headers)
            assert not hidden & {each["document_id"] for each in answer.citations}, question.id
    listed = handbook("GET", "/v1/kb/handbook/documents?limit=1000", None, headers).json["data"]
    names = {each["id"] for each in listed}
    assert not hidden & names
    assert set(RESTRICTED) - hidden <= names


class Answer(NamedTuple):
    text: str
    citations: list[dict[str, Any]]
    refused: bool


def ask(client: Client, question: str, headers: Mapping[str, str]) -> Answer:
    body = {"model": "forebay/handbook", "messages": [{"role": "user", "content": question}]}
    reply = client("POST", "/v1/chat/completions", body, headers)
    assert reply.status == 200, reply.body
    text: str = reply.json["choices"][0]["message"]["content"]
    return Answer(text, reply.json["citations"], reply.json["forebay"]["refused"])


def plain(text: str) -> str:
    return "".join(text.split()).casefold()


def test_answers(handbook: Client, capsys: pytest.CaptureFixture[str]) -> None:
    shares = Shares()
    for question in questions():
        answer = ask(handbook, question.question, question.headers)
        if question.kind == "unanswerable":
            shares.add(f"refused, {question.language}", question, answer.refused)
            continue
        if question.kind == "cross-lingual":
            shares.add(
                f"answered, cross-lingual, {question.language}", question, not answer.refused
            )
            continue
        shown = plain(answer.text) + "".join(plain(each["text"]) for each in answer.citations)
        cited = question.accepted & {each["document_id"] for each in answer.citations}
        right = all(plain(words) in shown for words in question.answer) and not answer.refused
        # A twin says the same in the other language, with other words.
        right = right or (bool(cited) and not set(question.documents) & cited)
        shares.add(f"answered, {question.language}", question, not answer.refused)
        shares.add(f"answer is right, {question.language}", question, right)
        shares.add(f"cites a right document, {question.language}", question, bool(cited))
    with capsys.disabled():
        print("\n" + shares.table())  # noqa: T201
    shares.check()


def test_the_questions_are_about_documents_that_exist() -> None:
    for question in questions():
        for document in question.documents:
            assert Path(ROOT, "examples", document).is_file(), question.id
