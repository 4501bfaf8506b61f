"""The search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.lab.tune.objectives import Figures, Observed, figures
from forebay.lab.tune.questions import Question
from forebay.lab.tune.space import Values
from forebay.lab.tune.study import Search, StudySettings, Trial
from tests.unit.lab.tune.synthetic import EF, KIND, QUESTIONS, SPACE, FormulaEvaluator

START: Values = {KIND: "exact"}


def base() -> Figures:
    observed = asyncio.run(FormulaEvaluator().observe(START, QUESTIONS))
    return figures(observed, QUESTIONS, 10)


def search(
    evaluator: FormulaEvaluator, settings: StudySettings, journal: Path | None = None
) -> list[Trial]:
    it = Search(SPACE, QUESTIONS, evaluator, settings, VirtualClock())
    return list(asyncio.run(it.run(START, base(), journal)))


def test_the_settings_in_force_are_the_first_candidate_and_not_measured_twice() -> None:
    evaluator = FormulaEvaluator()
    trials = search(evaluator, StudySettings(trials=3))
    assert trials[0] == Trial(0, {KIND: "exact"}, base(), 0.0)
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert len(evaluator.seen) == 2


def test_equal_seeds_propose_alike_and_others_do_not() -> None:
    one, same, other = (
        search(FormulaEvaluator(), StudySettings(trials=8, seed=seed)) for seed in (3, 3, 4)
    )
    assert one == same
    assert [trial.values for trial in one] != [trial.values for trial in other]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_search_goes_on_as_if_it_had_not_been_broken_off(sampler: str, tmp_path: Path) -> None:
    def settings(trials: int) -> StudySettings:
        return StudySettings(trials=trials, sampler=sampler)  # type: ignore[arg-type]

    whole = search(FormulaEvaluator(), settings(24))
    journal = tmp_path / "日志.log"
    first = search(FormulaEvaluator(), settings(13), journal)
    evaluator = FormulaEvaluator()
    rest = search(evaluator, settings(24), journal)
    assert first == whole[:13]
    assert rest == whole
    assert len(evaluator.seen) == 11


def test_a_finished_search_is_only_read_again(tmp_path: Path) -> None:
    trials = search(FormulaEvaluator(), StudySettings(trials=4), tmp_path / "j")
    evaluator = FormulaEvaluator()
    assert search(evaluator, StudySettings(trials=4), tmp_path / "j") == trials
    assert evaluator.seen == []


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    search(FormulaEvaluator(), StudySettings(trials=2), tmp_path / "j")
    with pytest.raises(ConfigError, match="another search"):
        search(FormulaEvaluator(), StudySettings(trials=4, seed=9), tmp_path / "j")


def test_what_cannot_be_built_is_a_trial_with_its_reason() -> None:
    trials = search(FormulaEvaluator(), StudySettings(trials=40))
    failed = [trial for trial in trials if trial.figures is None]
    for trial in failed:
        assert "中" in trial.reason
    assert len(trials) == 40


class SlowEvaluator(FormulaEvaluator):
    """Takes ten virtual seconds a candidate."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        self._clock.advance(10.0)
        return await super().observe(values, questions)


def test_no_candidate_is_begun_after_the_time_is_used_up() -> None:
    clock = VirtualClock()
    it = Search(
        SPACE, QUESTIONS, SlowEvaluator(clock), StudySettings(trials=50, budget_s=35.0), clock
    )
    trials = asyncio.run(it.run(START, base()))
    # The first is known; then 10, 20, 30 and, begun at 30, 40 seconds.
    assert len(trials) == 5


class HangingEvaluator(FormulaEvaluator):
    """Never comes to an end."""

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        await asyncio.Event().wait()
        return await super().observe(values, questions)


def test_a_candidate_that_takes_too_long_is_given_up() -> None:
    settings = StudySettings(trials=2, budget_s=0.2)
    it = Search(SPACE, QUESTIONS, HangingEvaluator(), settings, VirtualClock())
    trials = asyncio.run(it.run(START, base()))
    assert trials[1].figures is None
    assert "time was used up" in trials[1].reason


def test_the_search_finds_quick_graphs_that_are_right() -> None:
    trials = search(FormulaEvaluator(), StudySettings(trials=40))
    right = [
        trial for trial in trials if trial.figures is not None and trial.figures.quality > 0.99
    ]
    quickest = min(right, key=lambda trial: trial.figures.cpu_ms if trial.figures else 0.0)
    assert quickest.values[KIND] in ("hnsw", "ivfpq")
    assert EF in quickest.values or quickest.values[KIND] == "ivfpq"
