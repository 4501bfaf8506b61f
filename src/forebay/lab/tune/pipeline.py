"""The one pipeline of F3.16: named steps, each with its before and after, one report.

The steps of the whole are: label what retrieval finds, tune it, train the light reranker, tune the
engine's limits, cache as the hardware likes. A step gets what the steps before it have settled and
adds to it; what it does not know it leaves alone, so that later steps plug in at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from forebay.kernel.clock import Clock
from forebay.lab.tune.questions import Question
from forebay.lab.tune.space import Value


class Settled(msgspec.Struct, frozen=True):
    """What the steps have settled so far: questions with labels, and settings by path."""

    questions: tuple[Question, ...] = ()
    values: dict[str, Value] = {}


class StepReport(msgspec.Struct, frozen=True):
    """What one step did, in figures by name, and in sentences."""

    name: str
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class Step(Protocol):
    """One step of the pipeline."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        """Do the step; return what is settled after it, and how it went."""
        ...


async def run_pipeline(
    steps: Sequence[Step], settled: Settled, clock: Clock
) -> tuple[Settled, tuple[StepReport, ...]]:
    """Run the steps in order; a step that fails ends the pipeline with its error."""
    reports: list[StepReport] = []
    for step in steps:
        began = clock.now()
        settled, report = await step.run(settled)
        seconds = clock.now() - began
        reports.append(msgspec.structs.replace(report, name=step.name, seconds=seconds))
    return settled, tuple(reports)
