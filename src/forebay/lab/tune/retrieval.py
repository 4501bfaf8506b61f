"""The step that tunes retrieval: search on one half of the questions, check on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from forebay.kernel.clock import Clock
from forebay.lab.evaluate.intervals import mean_interval
from forebay.lab.tune.knee import knee
from forebay.lab.tune.objectives import Evaluator, Figures, Observed, costs, figures, qualities
from forebay.lab.tune.pareto import front, order_by
from forebay.lab.tune.pipeline import Settled, StepReport
from forebay.lab.tune.questions import Question, halves
from forebay.lab.tune.result import Change, Found, HeldOut
from forebay.lab.tune.space import Parameter, Value, Values
from forebay.lab.tune.study import Search, StudySettings, Trial


class Beginning(msgspec.Struct, frozen=True):
    """What may change, and where the settings in force stand in it."""

    space: tuple[Parameter, ...]
    start: dict[str, Value]


class RetrievalTuning(msgspec.Struct, frozen=True):
    """What the step works with; ``quality_loss`` is what may be given up for speed and memory."""

    evaluator: Evaluator
    begin: Callable[[Figures], Beginning]
    settings: StudySettings
    clock: Clock
    quality_loss: float = 0.02
    journal: Path | None = None
    progress: Callable[[Trial], None] = lambda trial: None


class TuneRetrieval:
    """Finds settings for retrieval and measures them against what there was.

    ``beginning`` and ``found`` hold what was searched and what came of it once the step has run.
    """

    name = "retrieval"

    def __init__(self, tuning: RetrievalTuning) -> None:
        self._tuning = tuning
        self.beginning: Beginning | None = None
        self.found: Found | None = None

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        """Search, choose the knee, measure both on the held-out half."""
        tuning = self._tuning
        half, held_out = halves(settled.questions)
        observed = await tuning.evaluator.observe({}, half)
        depth = tuning.settings.objectives.depth
        base = figures(observed, half, depth)
        beginning = self.beginning = tuning.begin(base)
        search = Search(beginning.space, half, tuning.evaluator, tuning.settings, tuning.clock)
        trials = await search.run(beginning.start, base, tuning.journal, tuning.progress)
        chosen = choose(trials, base, tuning)
        after = {} if chosen.number is None else _trial(trials, chosen.number).values
        checked = await compare(tuning, after, held_out)
        self.found = Found(trials, base, chosen.front, chosen.eligible, chosen.number, checked)
        return (
            msgspec.structs.replace(settled, values={**settled.values, **after}),
            StepReport(self.name, _told(checked.before), _told(checked.after)),
        )


class Chosen(msgspec.Struct, frozen=True):
    """Trials on the front, those of them that are good enough, and the knee (None: the start)."""

    front: tuple[int, ...]
    eligible: tuple[int, ...]
    number: int | None


def choose(trials: Sequence[Trial], base: Figures, tuning: RetrievalTuning) -> Chosen:
    """Return the front, and the knee of that part of it that keeps enough quality.

    Enough is what the start has but for ``quality_loss``: a front reaches down to answers that are
    quick and wrong, and its knee may lie there.
    """
    measured = [(trial, trial.figures) for trial in trials if trial.figures is not None]
    if not measured:
        return Chosen((), (), None)
    points = [point for _, point in measured]
    table = costs(points, tuning.settings.objectives.latency)
    rows = order_by(table, front(table), 0)
    enough = base.quality - tuning.quality_loss
    eligible = [row for row in rows if points[row].quality >= enough]
    if not eligible:
        return Chosen(tuple(measured[row][0].number for row in rows), (), None)
    number = measured[eligible[knee(table[eligible])]][0].number
    return Chosen(
        tuple(measured[row][0].number for row in rows),
        tuple(measured[row][0].number for row in eligible),
        number,
    )


async def compare(tuning: RetrievalTuning, after: Values, questions: Sequence[Question]) -> HeldOut:
    """Measure both on questions nobody tuned on: before, after, after, before.

    Each side's latencies are the lesser of its two: what disturbs a machine only adds.
    """
    order: tuple[Values, ...] = ({}, after, after, {})
    seen = [await tuning.evaluator.observe(values, questions) for values in order]
    sides = [_quieter(seen[0], seen[3]), _quieter(seen[1], seen[2])]
    depth = tuning.settings.objectives.depth
    one, other = (qualities(side, questions, depth) for side in sides)
    return HeldOut(
        len(questions),
        figures(sides[0], questions, depth),
        figures(sides[1], questions, depth),
        paired_change(one, other, tuning.settings.seed),
    )


def paired_change(before: Mapping[str, float], after: Mapping[str, float], seed: int) -> Change:
    """Return the mean change over questions, with the 95 % interval of a paired bootstrap."""
    changes = np.asarray([after[name] - before[name] for name in before], np.float64)
    low, high = mean_interval(changes, np.random.default_rng(seed))
    return Change(*(round(value, 6) for value in (float(changes.mean()), low, high)))


def _quieter(one: Observed, other: Observed) -> Observed:
    return msgspec.structs.replace(
        one,
        wall_s=np.minimum(one.wall_s, other.wall_s).tolist(),
        cpu_s=np.minimum(one.cpu_s, other.cpu_s).tolist(),
    )


def _trial(trials: Sequence[Trial], number: int) -> Trial:
    return next(trial for trial in trials if trial.number == number)


def _told(point: Figures) -> dict[str, float]:
    return {name: float(getattr(point, name)) for name in Figures.__struct_fields__}
