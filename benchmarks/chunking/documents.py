"""Long documents with questions: paragraphs of one article, or of many, in one file.

A question's answer counts as found by a chunk that overlaps the paragraph the question was written
for and holds an answer string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from forebay.ingest import parse
from forebay.kernel.documents import ChunkDraft, Extracted

OTHER_ARTICLES = 408
"""Of HotpotQA's 994 articles, twelve to a file."""


class Long(NamedTuple):
    """A long document and where each paragraph lies in its extracted text."""

    name: str
    extracted: Extracted
    spans: dict[str, tuple[int, int]]


class Question(NamedTuple):
    """A question, its answer strings, and the paragraphs that hold one."""

    id: str
    text: str
    answers: tuple[str, ...]
    paragraphs: frozenset[str]


class LongSet(NamedTuple):
    """One set made long."""

    name: str
    documents: list[Long]
    questions: list[Question]


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_article(rows: list[dict[str, Any]], least: int) -> list[list[dict[str, Any]]]:
    """Group paragraphs by title; articles of fewer than ``least`` are left out."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["title"], []).append(row)
    return [group for group in groups.values() if len(group) >= least]


def by_count(rows: list[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """Put ``count`` paragraphs of different articles together."""
    return [rows[at : at + count] for at in range(0, len(rows), count)]


def read(data: Path, names: str, between: str = "\n\n") -> LongSet:
    """Make the long documents of one set, or of several joined by ``+``.

    ``between`` stands between paragraphs.
    """
    parts = [_read(data, name, between) for name in names.split("+")]
    return LongSet(
        names,
        [document for part in parts for document in part.documents],
        [question for part in parts for question in part.questions],
    )


def _read(data: Path, name: str, between: str) -> LongSet:
    folder = data / name
    rows = lines(folder / "corpus.jsonl")
    if name == "hotpotqa_train100":
        groups = by_count(rows[:OTHER_ARTICLES], 12)
    else:
        groups = by_article(rows, 12 if name == "drcd_dev" else 2)
    documents = [_long(f"{name}-{number}", group, between) for number, group in enumerate(groups)]
    place = {p: document for document in documents for p in document.spans}
    relevant: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, paragraph, grade = line.split("\t")
        if int(grade) > 0 and paragraph in place:
            relevant.setdefault(query, set()).add(paragraph)
    questions = []
    for row in lines(folder / "queries.jsonl"):
        answers = tuple(a for a in row["metadata"]["answers"] if a.strip())
        held = frozenset(p for p in relevant.get(row["_id"], ()) if _holds(place[p], p, answers))
        if held:
            questions.append(Question(row["_id"], row["text"], answers, held))
    return LongSet(name, documents, questions)


def _long(name: str, group: list[dict[str, Any]], between: str) -> Long:
    text = between.join(" ".join(row["text"].split()) for row in group)
    extracted = parse(text.encode(), name=f"{name}.txt")
    spans, at = {}, 0
    for row in group:
        body = " ".join(row["text"].split())
        start = extracted.text.find(body[:60], at)
        if start < 0:
            continue
        at = start + len(body)
        spans[row["_id"]] = (start, at)
    return Long(name, extracted, spans)


def _holds(document: Long, paragraph: str, answers: Iterable[str]) -> bool:
    start, end = document.spans[paragraph]
    return any(answer in document.extracted.text[start:end] for answer in answers)


def answers_in(question: Question, document: Long, chunk: ChunkDraft) -> bool:
    """Whether a chunk of ``document`` answers: the right paragraph's answer is inside it."""
    for paragraph in question.paragraphs & document.spans.keys():
        first, last = document.spans[paragraph]
        start, end = max(first, chunk.start), min(last, chunk.end)
        if any(answer in document.extracted.text[start:end] for answer in question.answers):
            return True
    return False
