"""``forebay eval``: from words to a result, a comparison, a report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forebay.app.delivery import Delivery
from forebay.app.eval_targets import EvalWords, open_targets
from forebay.app.eval_text import tell, tell_changes
from forebay.app.judging import JudgeWords, judge_set, open_judge
from forebay.app.operations import run
from forebay.app.output import Output
from forebay.context.attribution import unsupported_share
from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.asking import Asking, ask_all
from forebay.lab.evaluate.datasets import Question, QuestionSet, load_set, without_answer
from forebay.lab.evaluate.judging.panel import Judged, summary
from forebay.lab.evaluate.judging.verdicts import write_judgements
from forebay.lab.evaluate.measures import computed_by
from forebay.lab.evaluate.result import EvalResult, Origin, SetResult, load_result
from forebay.lab.evaluate.scoring import Depths, score_set
from forebay.lab.evaluate.target import Outcome, Target
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.report.words import Words as Language


def run_evaluation(
    words: EvalWords, judge: JudgeWords, flags: dict[str, Any], delivery: Delivery
) -> int:
    """Evaluate and deliver the result; 1 when questions failed, so that scripts notice."""
    result = evaluate(words, judge, flags, delivery.output)
    deliver(result, delivery)
    failed = shortcomings(result.sets)
    for sentence in failed:
        delivery.output.alarm(f"THIS RESULT IS NOT WHOLE: {sentence}")
    return int(bool(failed))


def deliver(result: EvalResult, delivery: Delivery) -> None:
    """Give a result, new or stored, as the options say."""
    from forebay.lab.report.evaluations import write_evaluation_report

    def draw(path: Path, language: Language) -> None:
        write_evaluation_report(result, path, language)

    delivery.give(
        msgspec.json.encode(result), draw, lambda output: tell(result, output, delivery.language)
    )


def compare(paths: tuple[Path, Path], confidence: float, seed: int, delivery: Delivery) -> int:
    """Deliver what changed between two stored results."""
    from forebay.lab.evaluate.compare import compare as compared
    from forebay.lab.report.evaluations import write_quality_comparison

    before, after = (load_result(path) for path in paths)
    comparison = compared(before, after, confidence=confidence, seed=seed)
    names = (paths[0].name, paths[1].name)

    def draw(path: Path, language: Language) -> None:
        write_quality_comparison(comparison, names, path, language)

    delivery.give(
        msgspec.json.encode(comparison),
        draw,
        lambda output: tell_changes(comparison, output, delivery.language),
    )
    for warning in delivery.language.reasons(comparison.why):
        delivery.output.alarm(f"{delivery.language('warnings')}: {warning}")
    return 0


def report(path: Path, delivery: Delivery) -> int:
    """Deliver a stored result again."""
    deliver(load_result(path), delivery)
    return 0


def evaluate(
    words: EvalWords, judge: JudgeWords, flags: dict[str, Any], output: Output
) -> EvalResult:
    """Ask everything and measure it; ``ConfigError`` when the words contradict each other."""
    sets = [_chosen(load_set(path), words) for path in words.sets]
    _check(words, sets)
    judge.check()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    asked = run(_ask((words, judge), flags, sets, output))
    if judge.judgements is not None:
        write_judgements(judge.judgements, (each for one in asked for each in one.judged.questions))
    results = [
        msgspec.structs.replace(
            score_set(of, one.outcomes, supporting, Depths(), words.seed), judge=one.summary
        )
        for of, one in zip(sets, asked, strict=True)
    ]
    return EvalResult(_origin(words, flags, started_at), tuple(results))


def supporting(text: str, cited: Sequence[str]) -> float:
    """The share of an answer's statements that the cited texts back."""
    return 1.0 - unsupported_share(text, [_as_hit(one) for one in cited])


def shortcomings(results: Sequence[SetResult]) -> list[str]:
    """What makes an evaluation no success, in sentences."""
    return [
        f"{one.name}: {one.failed} of {one.questions} questions failed, the first with: "
        + next(row.error for row in one.rows if row.error)
        for one in results
        if one.failed
    ] + [
        f"{one.name}: the judge failed on {one.judge['failed']} questions, the first with: "
        + str(one.judge["error"])
        + (" It was asked no more." if one.judge["gave_up"] else "")
        for one in results
        if one.judge.get("failed")
    ]


def _chosen(asked: QuestionSet, words: EvalWords) -> QuestionSet:
    """The questions to put: at most so many of the set, and some that it does not answer."""
    rng = np.random.default_rng(words.seed)
    questions = _some(asked.questions, words.limit, rng)
    for path in words.no_answer or []:
        questions += _some(without_answer(load_set(path)), words.no_answer_count, rng)
    return msgspec.structs.replace(asked, questions=tuple(questions))


def _some(
    questions: Sequence[Question], at_most: int | None, rng: np.random.Generator
) -> list[Question]:
    if at_most is None or at_most >= len(questions):
        return list(questions)
    return [questions[at] for at in sorted(rng.permutation(len(questions))[:at_most])]


def _check(words: EvalWords, sets: Sequence[QuestionSet]) -> None:
    if words.url is not None and words.kb is None:
        raise ConfigError("--url asks one knowledge base of a server: name it with --kb.")
    if words.url is None and (words.put or words.key_file):
        raise ConfigError("--put and --key-file are for a server: name it with --url.")
    if words.url is not None and words.patient:
        raise ConfigError("--patient is about searches made here: a server has its own time-outs.")
    if words.url is not None and words.documents:
        raise ConfigError("--documents are indexed here, not in a server: leave out --url.")
    if words.put and any(not asked.documents for asked in sets):
        raise ConfigError("--put needs sets that bring their documents (corpus.jsonl).")


class _Asked(msgspec.Struct, frozen=True):
    """What came of one set."""

    outcomes: dict[str, Outcome]
    judged: Judged
    summary: dict[str, Any]


async def _ask(
    told: tuple[EvalWords, JudgeWords],
    flags: dict[str, Any],
    sets: Sequence[QuestionSet],
    output: Output,
) -> list[_Asked]:
    words, judge_words = told
    found = []
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_judge(judge_words))
        opener = await stack.enter_async_context(open_targets(words, flags, output))
        for asked in sets:
            target = await opener(asked)
            outcomes = await _ask_set(target, asked, words, output)
            judged, told_of = Judged(), {}
            if opened is not None:
                judged = await judge_set(opened.judge, asked, outcomes, judge_words, output)
                told_of = summary(judged, opened.costs())
            found.append(_Asked(outcomes, judged, told_of))
    return found


async def _ask_set(
    target: Target, asked: QuestionSet, words: EvalWords, output: Output
) -> dict[str, Outcome]:
    asking = Asking(
        top_k=words.top_k,
        answers=not words.search_only,
        at_once=words.at_once,
        within_s=words.timeout,
    )
    with output.progress() as progress:
        bar = progress.add_task(asked.name, total=len(asked.questions))
        return await ask_all(
            target, asked.questions, asking, SystemClock(), lambda: progress.advance(bar)
        )


def _as_hit(text: str) -> Hit:
    """A cited text as the support check takes it."""
    chunk = ChunkRow(
        chunk_id=0,
        document_id="",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        context="",
        tokens=0,
        page=None,
        heading_path=(),
        title="",
        source="",
        language="",
        tags=(),
        groups=(),
        metadata={},
        version=0,
    )
    return Hit(chunk, 0.0)


def _origin(words: EvalWords, flags: dict[str, Any], started_at: str) -> Origin:
    named = {
        "sets": [path.name for path in words.sets],
        "top_k": words.top_k,
        "limit": words.limit,
        "no_answer": [path.resolve().name for path in words.no_answer or []],
        "no_answer_count": words.no_answer_count if words.no_answer else None,
        "at_once": words.at_once,
        "patient": words.patient or None,
        "settings": {name: value for name, value in flags.items() if value is not None},
    }
    return Origin(
        target=words.url or "in process",
        options={name: value for name, value in named.items() if value not in (None, [], {})},
        seed=words.seed,
        started_at=started_at,
        machine=describe_machine(),
        commit=describe_commit(),
        versions=describe_versions("pytrec-eval-terrier"),
        measures_by=computed_by(),
    )
