"""What is asked: questions about the handbook, and longer texts with a question below."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.queries import QueriesSpec

ROOT = Path(__file__).resolve().parents[2]
HANDBOOK = ROOT / "examples" / "handbook"
QUESTIONS = ROOT / "examples" / "questions" / "handbook.jsonl"
LIGHT, HEAVY = "light", "heavy"
RATE_PER_S = 200.0
TEXTS = 16
"""Different heavy questions of a row."""
_HAN = re.compile(r"[\u3400-\u9fff]")


class Row(NamedTuple):
    """A line of the table; ``heavy`` is the share of requests, ``characters`` their length."""

    name: str
    heavy: float = 0.0
    characters: int = 0
    output_tokens: int = 0
    window_tokens: int | None = None
    """``context.window_tokens``; None: the default."""


ROWS = (
    Row("alone"),
    Row("parts", 0.05, 25_000, 512),
    Row("whole", 0.05, 25_000, 512, 24_576),
    Row("medium", 0.20, 3_400, 400),
)


def write_questions(folder: Path) -> None:
    """The files of questions that the rows ask."""
    lines = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    _write(folder / f"{LIGHT}.jsonl", [line["question"] for line in lines])
    asked = [line["question"] for line in lines if line["language"] == "en"]
    for row in ROWS:
        if row.heavy:
            _write(folder / f"{row.name}.jsonl", list(_long_texts(asked, row.characters)))


def _long_texts(questions: list[str], characters: int) -> Iterator[str]:
    paragraphs = list(_english())
    for number in range(TEXTS):
        question = questions[number % len(questions)]
        at = number * len(paragraphs) // TEXTS
        parts: list[str] = []
        while sum(len(part) + 2 for part in parts) < characters - len(question):
            parts.append(paragraphs[at % len(paragraphs)])
            at += 1
        text = "\n\n".join(parts)[: characters - len(question) - 2]
        yield f"{text}\n\n{question}"


def _english() -> Iterator[str]:
    for path in sorted(HANDBOOK.rglob("*.md")):
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            if len(paragraph) > 80 and not _HAN.search(paragraph):
                yield paragraph.strip()


def _write(path: Path, texts: list[str]) -> None:
    lines = [json.dumps({"question": text}, ensure_ascii=False) for text in texts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def workload(folder: Path, row: Row, scale: float, seconds: float) -> Workload:
    """A row's requests, open loop; each kind of question in the order of its file."""
    kinds = [
        Kind(
            name=LIGHT,
            share=1 - row.heavy,
            queries=QueriesSpec(file=f"{LIGHT}.jsonl", column="question"),
            output_tokens=32,
            deadline_s=2.0,
        )
    ]
    if row.heavy:
        kinds.append(
            Kind(
                name=HEAVY,
                share=row.heavy,
                queries=QueriesSpec(file=f"{row.name}.jsonl", column="question"),
                output_tokens=row.output_tokens,
                deadline_s=30.0,
            )
        )
    arrivals = PoissonArrivals(rate=RATE_PER_S * scale, duration_s=seconds)
    return Workload(WorkloadSpec(name=row.name, arrivals=arrivals, kinds=tuple(kinds)), folder)


def calm(folder: Path, scale: float) -> Workload:
    """Every light question once at a quarter of the rate, as before a busy hour."""
    with (folder / f"{LIGHT}.jsonl").open(encoding="utf-8") as lines:
        count = sum(1 for _ in lines)
    rate = RATE_PER_S * scale / 4
    arrivals = PoissonArrivals(rate=rate, duration_s=min(15.0, count / rate))
    alone = workload(folder, ROWS[0], scale, 1.0).spec
    return Workload(WorkloadSpec(arrivals=arrivals, kinds=alone.kinds), folder)
