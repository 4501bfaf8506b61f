"""What is asked, and what a cache without bounds would spare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from forebay.cache.canonical import canonical
from forebay.lab.workload.arrivals import Step, StepArrivals
from forebay.lab.workload.kinds import Documents, Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.queries import QueriesSpec

HEAVY_SHARE = 5.0
MOST_TOKENS = 512
"""No answer to a light question comes near it: those that are cut would not be kept."""
REPEATED = 0.3
WINDOW = 2_000
RESERVED = 5_000


class Span(NamedTuple):
    """A stretch of one rate."""

    name: str
    rate: float
    seconds: float


class Asked(NamedTuple):
    """A workload and its stretches."""

    workload: Workload
    spans: Sequence[Span]

    def within(self) -> dict[str, tuple[float, float]]:
        """Begin and end of each stretch."""
        found, at = {}, 0.0
        for span in self.spans:
            found[span.name] = (at, at + span.seconds)
            at += span.seconds
        return found

    def ideal(self, seed: int) -> dict[str, dict[str, float]]:
        """For each stretch: what was asked before, of all questions and of light ones."""
        known: set[str] = set()
        answered: set[str] = set()
        spans = self.within()
        counts = {name: Counter[str]() for name in spans}
        for planned in self.workload.requests(seed):
            text = canonical(planned.text)
            name = next(n for n, (first, end) in spans.items() if first <= planned.at_s < end)
            count = counts[name]
            count["asked"] += 1
            count["known"] += text in known
            known.add(text)
            if planned.kind == "light":
                count["light"] += 1
                count["answered"] += text in answered
                answered.add(text)
        return {
            name: {
                "retrieval": round(count["known"] / count["asked"], 4),
                "answer_of_light": round(count["answered"] / count["light"], 4),
            }
            for name, count in counts.items()
        }


def zipf(folder: Path, texts: Sequence[str], spans: Sequence[Span]) -> Asked:
    """Popularity 1/rank over all texts, in both kinds."""
    _write(folder / "questions.jsonl", texts)
    return _asked(folder, spans, [QueriesSpec(file="questions.jsonl", zipf=1.0)] * 2)


def repeating(folder: Path, texts: Sequence[str], spans: Sequence[Span], seed: int) -> Asked:
    """New questions, but for three in ten that repeat one of the last 2,000 asked."""
    draw = np.random.default_rng(seed)
    needed = int(sum(span.rate * span.seconds for span in spans) * 1.2)
    new = iter(texts[RESERVED:])
    asked: list[str] = []
    for chance in draw.random(needed).tolist():
        if asked and chance < REPEATED:
            asked.append(asked[-1 - int(draw.integers(min(len(asked), WINDOW)))])
        else:
            asked.append(next(new))
    _write(folder / "questions.jsonl", asked)
    _write(folder / "heavy.jsonl", texts[:RESERVED])
    return _asked(
        folder, spans, [QueriesSpec(file="questions.jsonl"), QueriesSpec(file="heavy.jsonl")]
    )


def _asked(folder: Path, spans: Sequence[Span], queries: Sequence[QueriesSpec]) -> Asked:
    light = Kind(
        name="light",
        share=100 - HEAVY_SHARE,
        output_tokens=MOST_TOKENS,
        deadline_s=10.0,
        queries=queries[0],
    )
    heavy = Kind(
        name="heavy",
        share=HEAVY_SHARE,
        output_tokens=2_000,
        deadline_s=120.0,
        queries=queries[1],
        # A report to be looked into: 8,000 tokens in front of the question.
        documents=Documents(count=500, tokens=2_000, zipf=0.0, per_request=4),
    )
    steps = tuple(Step(rate=span.rate, duration_s=span.seconds) for span in spans)
    arrivals = StepArrivals(steps=steps)
    return Asked(Workload(WorkloadSpec(arrivals=arrivals, kinds=(light, heavy)), folder), spans)


def _write(path: Path, texts: Iterable[str]) -> None:
    lines: list[dict[str, Any]] = [{"text": text} for text in texts]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(content, encoding="utf-8")
