"""Puts every question to a target, a bounded number at a time, each within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import ForebayError, first_error
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.target import Outcome, Target

Done = Callable[[], object]


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """How questions are put: what of, how deep, how many at a time."""

    top_k: int = 20
    """Passages to look for: several may be of one document, which counts once."""
    answers: bool = True
    """Whether answers are asked for, besides passages."""
    at_once: int = 1
    """Questions at a time; with more than one, latencies are those under that load."""
    within_s: float = 60.0
    """Seconds that a search or an answer may take."""


async def ask_all(
    target: Target, questions: Sequence[Question], asking: Asking, clock: Clock, done: Done
) -> dict[str, Outcome]:
    """The outcome of every question by its id; one that fails says why and ends nothing.

    ``done`` is called after each. A search that fails has found nothing, and counts so.
    """
    outcomes: dict[str, Outcome] = {}
    waiting = iter(questions)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(asking.at_once, len(questions)))):
                group.create_task(_ask_some(target, waiting, outcomes, (asking, clock, done)))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return outcomes


async def _ask_some(
    target: Target,
    waiting: Iterator[Question],
    outcomes: dict[str, Outcome],
    how: tuple[Asking, Clock, Done],
) -> None:
    asking, clock, done = how
    for question in waiting:
        outcomes[question.id] = await ask(target, question, asking, clock)
        done()


async def ask(target: Target, question: Question, asking: Asking, clock: Clock) -> Outcome:
    """Search, and answer where that is asked for; each is timed by itself."""
    outcome = Outcome(searched=True)
    try:
        async with asyncio.timeout(asking.within_s):
            began = clock.now()
            found = await target.search(question, asking.top_k)
            outcome.search_s = clock.now() - began
        outcome.hits, outcome.rung = found.hits, found.rung
        if asking.answers:
            async with asyncio.timeout(asking.within_s):
                began = clock.now()
                outcome.said = await target.answer(question)
                outcome.answer_s = clock.now() - began
    except TimeoutError:
        outcome.error = f"no answer within {asking.within_s:g} s"
    except ForebayError as error:
        outcome.error = error.message
    return outcome
