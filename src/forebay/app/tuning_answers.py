"""What tuned settings do to answers: refusals and inventions before and after, where no engine is.

The answering life is opened twice as a server would, with the settings in force and with the tuned
ones, and asked what tuning did not look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from forebay.app.candidates import changed_settings
from forebay.app.eval_targets import EvalWords, as_measured, local_targets
from forebay.app.output import Output
from forebay.app.settings import Settings
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.asking import Asking, ask_all
from forebay.lab.evaluate.compare import Change, compare
from forebay.lab.evaluate.datasets import QuestionSet
from forebay.lab.evaluate.result import ALL, ERRORS, EvalResult, Origin
from forebay.lab.evaluate.scoring import Depths, score_set
from forebay.lab.tune.patch import changed
from forebay.lab.tune.questions import Question, halves
from forebay.lab.tune.result import TuneResult
from forebay.lab.tune.space import Values

MOST_CHUNKS = 5_000
"""Both sides are indexed anew: beyond this ``forebay eval`` is the way to look at answers."""


def worth_asking(settings: Settings, result: TuneResult) -> bool:
    """Whether answers can be looked at: by quotations, of a corpus soon indexed, of a change."""
    few = result.found.base.chunks <= MOST_CHUNKS
    return (
        settings.generation.backend == "extractive"
        and few
        and bool(changed(result.before, result.after))
    )


def to_ask(asked: QuestionSet, tuned: Sequence[Question], most: int) -> QuestionSet:
    """The held-out questions with an answer, and those known to have none, at most so many each."""
    held_out = {question.id for question in halves(tuned)[1]}
    having = [one for one in asked.questions if one.answerable and one.id in held_out]
    lacking = [one for one in asked.questions if one.answerable is False]
    return msgspec.structs.replace(asked, questions=(*having[:most], *lacking[:most]))


async def answers_changed(
    settings: Settings, after: Values, asked: QuestionSet, documents: Sequence[Path], seed: int
) -> tuple[Change, ...]:
    """Refusals and inventions before and after; none where too few questions are known."""
    words = EvalWords(sets=[], documents=list(documents) or None)
    sides: list[EvalResult] = []
    for values in ({}, after):
        own = as_measured(changed_settings(settings, values))
        async with local_targets(words, own, Output(as_json=True)) as opener:
            target = await opener(asked)
            outcomes = await ask_all(target, asked.questions, Asking(), SystemClock(), lambda: None)
        scored = score_set(asked, outcomes, lambda _text, _cited: 0.0, Depths(), seed)
        sides.append(EvalResult(Origin(""), (scored,)))
    try:
        changes = compare(*sides, seed=seed).changes
    except ConfigError:
        return ()
    return tuple(one for one in changes if one.language == ALL and one.measure in ERRORS)
