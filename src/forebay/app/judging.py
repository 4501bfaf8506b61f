"""Judges for ``forebay eval``: a model behind an endpoint, a small one from a file, its making."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.keys import read_key
from forebay.app.output import Output
from forebay.app.words import Words
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.datasets import QuestionSet
from forebay.lab.evaluate.judging.agreement import Agreement
from forebay.lab.evaluate.judging.bias import BiasSettings
from forebay.lab.evaluate.judging.distilling import HARDLY, Distilled, distill
from forebay.lab.evaluate.judging.endpoint import JudgeEndpoint, open_endpoint
from forebay.lab.evaluate.judging.model import ModelJudge
from forebay.lab.evaluate.judging.panel import Judged, Judging, judge_all
from forebay.lab.evaluate.judging.small import SmallJudge, load_small
from forebay.lab.evaluate.judging.verdicts import Judge, read_judgements
from forebay.lab.evaluate.target import Outcome


class JudgeWords(Words, frozen=True, kw_only=True):
    """What the command line says of a judge."""

    judge: str | None = None
    judge_model: str = ""
    judge_key_file: Path | None = None
    judge_top: int = 5
    judge_at_once: int = 4
    judge_timeout: float = 60.0
    judge_as_is: bool = False
    small_judge: Path | None = None
    judgements: Path | None = None
    seed: int = 1

    @property
    def wanted(self) -> bool:
        """Whether anything is to be judged."""
        return self.judge is not None or self.small_judge is not None

    def check(self) -> None:
        """``ConfigError`` when the words contradict each other."""
        if self.judge is not None and self.small_judge is not None:
            raise ConfigError("one judge at a time: --judge or --small-judge.")
        if self.judge is not None and not self.judge_model:
            raise ConfigError("--judge asks a model: name it with --judge-model.")
        if self.judgements is not None and not self.wanted:
            raise ConfigError("--judgements needs a judge: --judge or --small-judge.")


class OpenJudge(msgspec.Struct, frozen=True):
    """A judge that can be asked, and what it has cost so far."""

    judge: Judge
    costs: Callable[[], dict[str, Any]]


@asynccontextmanager
async def open_judge(words: JudgeWords) -> AsyncIterator[OpenJudge | None]:
    """The judge that was named; None without one."""
    if words.small_judge is not None:
        small = SmallJudge(load_small(words.small_judge))
        yield OpenJudge(small, lambda: {"kind": "small"})
        return
    if words.judge is None:
        yield None
        return
    endpoint = JudgeEndpoint(
        url=words.judge,
        model=words.judge_model,
        api_key=read_key(words.judge_key_file),
        at_once=words.judge_at_once,
        timeout_s=words.judge_timeout,
    )
    chance = random.Random(words.seed)  # noqa: S311
    async with open_endpoint(endpoint, chance) as chat:
        bias = BiasSettings(ends=0.0, per_100_tokens=0.0) if words.judge_as_is else BiasSettings()
        model = ModelJudge(chat, EstimatedTokenCounter().count, seed=words.seed, bias=bias)

        def costs() -> dict[str, Any]:
            spent: dict[str, Any] = msgspec.to_builtins(chat.costs)
            return {
                "kind": "model",
                "model": endpoint.model,
                **spent,
                "replies": model.replies,
                "malformed": model.malformed,
            }

        yield OpenJudge(model, costs)


async def judge_set(
    judge: Judge,
    asked: QuestionSet,
    outcomes: dict[str, Outcome],
    words: JudgeWords,
    output: Output,
) -> Judged:
    """Judge what was found for a set, with a bar."""
    judging = Judging(top=words.judge_top, at_once=words.judge_at_once)
    with output.progress() as progress:
        bar = progress.add_task(f"{asked.name}: judging", total=len(asked.questions))
        return await judge_all(judge, asked, outcomes, judging, lambda: progress.advance(bar))


def distill_judge(
    files: Sequence[Path], out: Path, held_out: float, seed: int, output: Output
) -> int:
    """Make a small judge of judgements, write it, tell how far it agrees with whom."""
    judged = [one for file in files for one in read_judgements(file)]
    model, found = distill(judged, SystemClock(), held_out=held_out, seed=seed)
    try:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(model)) + b"\n")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}.") from error
    if output.as_json:
        output.result(found)
        return 0
    tell_distilled(found, output)
    output.note(f"written: {out}")
    return 0


def tell_distilled(found: Distilled, output: Output) -> None:
    """Print agreements for people."""
    output.line(
        f"learnt from {found.trained_questions:,} questions, checked with "
        f"{found.held_out_questions:,}; {found.left_out:,} inconsistent ones left out"
    )
    rows = (
        ("small with judge", found.small_with_judge),
        ("small with labels", found.small_with_labels),
        ("judge with labels", found.judge_with_labels),
    )
    output.table(
        ("agreement", "passages", "alike", "kappa", "pairs in order"),
        [(name, *_agreement(one)) for name, one in rows if one.passages],
    )
    output.line(
        f"correlation with the judge {found.correlation:.3f}; "
        f"{found.small_ms:.2f} ms for a question's passages"
    )
    if found.spread < HARDLY:
        output.note(
            f"The judge's scores hardly differ (standard deviation {found.spread:.3f}): there was "
            "next to nothing to learn."
        )


def _agreement(one: Agreement) -> tuple[str, ...]:
    return (
        f"{one.passages:,}",
        f"{one.alike:.1%}",
        "-" if math.isnan(one.kappa) else f"{one.kappa:.3f}",
        "-" if math.isnan(one.pairwise) else f"{one.pairwise:.1%}",
    )
