"""The step that tunes retrieval."""

from __future__ import annotations

import asyncio

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.lab.tune.objectives import Figures
from forebay.lab.tune.pipeline import Settled
from forebay.lab.tune.questions import halves
from forebay.lab.tune.retrieval import (
    Beginning,
    RetrievalTuning,
    TuneRetrieval,
    choose,
    paired_change,
)
from forebay.lab.tune.study import StudySettings, Trial
from tests.unit.lab.tune.synthetic import KIND, QUESTIONS, SPACE, FormulaEvaluator


def tuning(quality_loss: float = 0.02, trials: int = 30) -> RetrievalTuning:
    return RetrievalTuning(
        evaluator=FormulaEvaluator(),
        begin=lambda base: Beginning(SPACE, {KIND: "exact"}),
        settings=StudySettings(trials=trials),
        clock=VirtualClock(),
        quality_loss=quality_loss,
    )


def point(quality: float, cpu_ms: float, memory_bytes: int = 1_000_000) -> Figures:
    return Figures(quality, cpu_ms, cpu_ms, cpu_ms, memory_bytes, 1, 0.0)


def test_what_is_chosen_is_on_the_front_quicker_and_as_good() -> None:
    step = TuneRetrieval(tuning())
    settled, report = asyncio.run(step.run(Settled(QUESTIONS, {"other.setting": 1})))
    assert step.found is not None
    assert step.found.chosen in step.found.front
    held = step.found.held_out
    assert held.questions == len(halves(QUESTIONS)[1])
    assert held.after.cpu_ms < held.before.cpu_ms
    assert held.after.quality >= held.before.quality - 0.02
    assert settled.values["other.setting"] == 1
    assert KIND in settled.values
    assert report.before["cpu_ms"] == held.before.cpu_ms
    assert report.after["cpu_ms"] == held.after.cpu_ms


def test_the_held_out_half_is_never_searched_on() -> None:
    job = tuning(trials=5)
    asyncio.run(TuneRetrieval(job).run(Settled(QUESTIONS)))
    evaluator = job.evaluator
    assert isinstance(evaluator, FormulaEvaluator)
    # Once for the start, four trials, and four times the comparison.
    assert len(evaluator.seen) == 1 + 4 + 4


def test_the_knee_is_looked_for_where_quality_is_kept() -> None:
    trials = [
        Trial(0, {"a": 0}, point(0.90, 10.0), 0.0),
        Trial(1, {"a": 1}, point(0.89, 3.0), 0.0),
        Trial(2, {"a": 2}, point(0.60, 1.0), 0.0),
        Trial(3, {"a": 3}, point(0.50, 9.0), 0.0),
        Trial(4, {"a": 4}, None, 0.0, "broken"),
    ]
    base = point(0.90, 10.0)
    chosen = choose(trials, base, tuning(quality_loss=0.02))
    assert chosen.front == (0, 1, 2)
    assert chosen.eligible == (0, 1)
    assert chosen.number in (0, 1)
    assert choose(trials, base, tuning(quality_loss=0.5)).eligible == (0, 1, 2)


def test_nothing_good_enough_changes_nothing() -> None:
    bad = [Trial(0, {"a": 0}, point(0.5, 1.0), 0.0)]
    assert choose(bad, point(0.9, 10.0), tuning()).number is None
    assert choose([], point(0.9, 10.0), tuning()).number is None


def test_a_paired_change_has_an_interval() -> None:
    before = {f"q{n}": 0.5 for n in range(50)}
    better = paired_change(before, dict.fromkeys(before, 0.6), 1)
    assert better.mean == pytest.approx(0.1)
    assert better.low == pytest.approx(0.1)
    assert better.verdict == "better"
    mixed = {name: 0.5 + 0.3 * (at % 2 or -1) for at, name in enumerate(before)}
    assert paired_change(before, mixed, 1).verdict == "same"
    assert paired_change(before, dict.fromkeys(before, 0.1), 1).verdict == "worse"
