"""What is good: quality up, latency down, memory down, measured on the same questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from forebay.lab.evaluate.measures import mean, ndcg
from forebay.lab.tune.pareto import Floats
from forebay.lab.tune.questions import Place, Question, ranking
from forebay.lab.tune.space import Values

LatencyMeasure = Literal["cpu", "p99"]
OBJECTIVES = ("quality", "latency_ms", "memory_bytes")
DIRECTIONS = ("maximize", "minimize", "minimize")
_QUALITY_STEP = 0.005
_RATIO_STEP = math.log(1.05)


class Observed(msgspec.Struct, frozen=True):
    """What a candidate did: hits of each question by its id, and what they cost.

    ``wall_s`` and ``cpu_s`` hold one number a question, embedding included where it was asked
    for; ``memory_bytes`` is what a search walks through.
    """

    found: Mapping[str, Sequence[Place]]
    wall_s: Sequence[float]
    cpu_s: Sequence[float]
    memory_bytes: int
    chunks: int = 0
    words_only: int = 0
    """Questions that words alone answered, by early exit."""


class Evaluator(Protocol):
    """Builds an index for settings and asks it questions."""

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        """Ask ``questions`` under ``values``; ``ForebayError`` says why these cannot be built."""
        ...


class Figures(msgspec.Struct, frozen=True):
    """A candidate in numbers. ``quality`` is the mean nDCG at the depth that was asked for."""

    quality: float
    cpu_ms: float
    p50_ms: float
    p99_ms: float
    memory_bytes: int
    chunks: int
    words_only_share: float

    def latency_ms(self, measure: LatencyMeasure) -> float:
        """The latency that counts: mean processor time of a query, or P99 of its duration."""
        return self.cpu_ms if measure == "cpu" else self.p99_ms

    def cheaper_than(self, other: Figures, measure: LatencyMeasure) -> bool:
        """Whether latency or memory is lower by more than what counts as none."""
        own, theirs = self.latency_ms(measure), other.latency_ms(measure)
        step = math.exp(_RATIO_STEP)
        return own * step < theirs or self.memory_bytes * step < other.memory_bytes


class ObjectiveSettings(msgspec.Struct, frozen=True):
    """What is compared."""

    depth: Annotated[int, Meta(description="Hits that count.", ge=1)] = 10
    latency: Annotated[
        LatencyMeasure,
        Meta(description="cpu: mean processor time, steady on a busy machine; p99: duration."),
    ] = "cpu"


def qualities(observed: Observed, questions: Sequence[Question], depth: int) -> dict[str, float]:
    """Return nDCG of each question."""
    relevance = {
        each.id: {target.name: target.grade for target in each.targets} for each in questions
    }
    rankings = {each.id: ranking(each, observed.found.get(each.id, ())) for each in questions}
    return ndcg(relevance, rankings, depth)


def figures(observed: Observed, questions: Sequence[Question], depth: int) -> Figures:
    """Return a candidate in numbers."""
    wall_ms = np.asarray(observed.wall_s) * 1000
    return Figures(
        quality=round(mean(qualities(observed, questions, depth)), 6),
        cpu_ms=round(float(np.mean(observed.cpu_s)) * 1000, 6),
        p50_ms=round(float(np.quantile(wall_ms, 0.5)), 6),
        p99_ms=round(float(np.quantile(wall_ms, 0.99)), 6),
        memory_bytes=observed.memory_bytes,
        chunks=observed.chunks,
        words_only_share=round(observed.words_only / len(questions), 6),
    )


def costs(points: Sequence[Figures], latency: LatencyMeasure) -> Floats:
    """Return a row a point, less is better: quality as it is, latency and memory as logarithms.

    All three in steps below which a difference is noise: half a point of nDCG, five percent.
    """
    rows = [
        (
            -round(point.quality / _QUALITY_STEP) * _QUALITY_STEP,
            _steps(max(point.latency_ms(latency), 1e-6)),
            _steps(max(point.memory_bytes, 1)),
        )
        for point in points
    ]
    return np.asarray(rows, np.float64).reshape(len(rows), len(OBJECTIVES))


def _steps(cost: float) -> float:
    return round(math.log(cost) / _RATIO_STEP) * _RATIO_STEP
