"""Trains a small judge from a judge's scores, and says how far it can be trusted."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np

from forebay.kernel.clock import Clock
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.judging.agreement import Agreement, agreement, with_labels
from forebay.lab.evaluate.judging.small import SmallJudge, SmallModel, features, fit
from forebay.lab.evaluate.judging.verdicts import CONSISTENT, JudgedQuestion
from forebay.lab.evaluate.target import Passage

LEAST_QUESTIONS = 20
HARDLY = 0.05
"""Standard deviation of a judge's scores under which there is next to nothing to learn."""
SAME = 1e-9


class Distilled(msgspec.Struct, frozen=True):
    """What came of a distillation; agreements are over the held-out questions."""

    trained_questions: int
    held_out_questions: int
    left_out: int
    """Judgements that were not consistent."""
    small_with_judge: Agreement
    small_with_labels: Agreement
    judge_with_labels: Agreement
    correlation: float
    """Pearson's, of the small judge's scores with the judge's; 0 where either are all the same."""
    spread: float
    """Standard deviation of the judge's scores: near 0 there is nothing to learn."""
    small_ms: float
    """Milliseconds that the small one takes for a question's passages, on this machine."""
    weights: dict[str, float]
    """Of the standardised features: which says how much."""
    kind: str = "distilled_judge"


def distill(
    judged: Sequence[JudgedQuestion], clock: Clock, *, held_out: float = 0.3, seed: int = 1
) -> tuple[SmallModel, Distilled]:
    """Fit on one part of the questions, measure on the other; ``ConfigError`` for too few.

    Which part a question is in depends on its text and ``seed`` alone: the same question asked in
    two sets never stands on both sides.
    """
    good = [one for one in judged if one.passages and one.consistency >= CONSISTENT]
    test = [one for one in good if _held_out(one, held_out, seed)]
    train = [one for one in good if not _held_out(one, held_out, seed)]
    left_out = len(judged) - len(good)
    if min(len(test), len(train)) < LEAST_QUESTIONS:
        raise ConfigError(
            f"{len(train)} judged questions to learn from and {len(test)} to check with are too "
            f"few; there must be {LEAST_QUESTIONS} of each"
            + (f" ({left_out} more contradict themselves)." if left_out else ".")
        )
    table = np.concatenate([features(one.question, _passages(one)) for one in train])
    targets = np.concatenate([_targets(one) for one in train])
    model = fit(table, targets, {"questions": len(train), "passages": len(targets)})
    return model, _measured(model, (train, test), left_out, clock)


def _measured(
    model: SmallModel,
    parts: tuple[Sequence[JudgedQuestion], Sequence[JudgedQuestion]],
    left_out: int,
    clock: Clock,
) -> Distilled:
    train, test = parts
    small = SmallJudge(model)
    began = clock.now()
    said = [
        small.scores(Question(one.id, one.question, one.language), _passages(one)).tolist()
        for one in test
    ]
    took_s = clock.now() - began
    wanted = [_targets(one).tolist() for one in test]
    return Distilled(
        trained_questions=len(train),
        held_out_questions=len(test),
        left_out=left_out,
        small_with_judge=agreement(list(zip(said, wanted, strict=True))),
        small_with_labels=with_labels(
            [_judged_by(one, scores) for one, scores in zip(test, said, strict=True)]
        ),
        judge_with_labels=with_labels(test),
        correlation=_correlation(np.concatenate(said), np.concatenate(wanted)),
        spread=float(np.concatenate(wanted).std()),
        small_ms=1000 * took_s / len(test),
        weights={
            name: round(weight, 4)
            for name, weight in zip(model.features, model.weights, strict=True)
        },
    )


def _held_out(one: JudgedQuestion, share: float, seed: int) -> bool:
    return zlib.crc32(f"{seed} {one.question}".encode("utf-8", "replace")) % 1000 < share * 1000


def _passages(one: JudgedQuestion) -> list[Passage]:
    return [each.passage for each in one.passages]


def _targets(one: JudgedQuestion) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([each.verdict.corrected for each in one.passages])


def _judged_by(one: JudgedQuestion, scores: Sequence[float]) -> JudgedQuestion:
    """The same question with the small judge's scores."""
    passages = tuple(
        msgspec.structs.replace(
            each, verdict=msgspec.structs.replace(each.verdict, score=score, corrected=score)
        )
        for each, score in zip(one.passages, scores, strict=True)
    )
    return msgspec.structs.replace(one, passages=passages)


def _correlation(
    one: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    other: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> float:
    if min(one.std(), other.std()) < SAME:  # rounding alone is no correlation
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
