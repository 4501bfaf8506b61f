"""Whether one evaluation is better than another: each measure in pairs, question by question.

Questions are drawn again with replacement, the same for both sides: how hard they are cancels out.
Each interval holds by itself; of twenty measures one seems to change by chance, which ``p`` times
their number (``holm``) allows for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.intervals import CONFIDENCE, Floats, resampled_means
from forebay.lab.evaluate.result import ALL, ERRORS, TIMES, EvalResult, Row, SetResult
from forebay.lab.measure.reasons import Reason

Verdict = Literal["better", "worse", "same"]
FEWEST = 5
"""Questions in common below which nothing is said."""
RESAMPLES = 5_000


class Change(msgspec.Struct, frozen=True):
    """One measure of one set in one language, before and after.

    ``change`` is after less before; of seconds it is the ratio of typical times (geometric means)
    less 1. ``low`` and ``high`` hold it. ``p``: how often chance alone would show as much, ``holm``
    the same where every measure of the comparison is looked at.
    """

    set: str
    language: str
    measure: str
    questions: int
    before: float
    after: float
    change: float
    low: float
    high: float
    p: float
    verdict: Verdict
    holm: float = 1.0


class EvalComparison(msgspec.Struct, frozen=True):
    """Everything that can be said of two evaluations."""

    changes: tuple[Change, ...]
    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES
    warnings: tuple[str, ...] = ()
    kind: str = "evaluation_comparison"
    why: tuple[Reason, ...] = ()
    """``warnings`` for other languages."""


def compare(
    before: EvalResult, after: EvalResult, *, confidence: float = CONFIDENCE, seed: int = 1
) -> EvalComparison:
    """Compare sets of the same name; ``ConfigError`` when the two have none in common."""
    theirs = {one.name: one for one in after.sets}
    shared = [(one, theirs[one.name]) for one in before.sets if one.name in theirs]
    if not shared:
        raise ConfigError(
            "the two results have no set in common: "
            f"{_names(before.sets)} against {_names(after.sets)}."
        )
    changes: list[Change] = []
    doubts: list[Reason] = []
    for pair in shared:
        doubts += _differences(*pair)
        changes += _of_set(*pair, confidence=confidence, seed=seed)
    if not changes:
        raise ConfigError(f"the two results share fewer than {FEWEST} questions in every set.")
    warnings = tuple(map(str, doubts))
    return EvalComparison(_holm(changes), confidence, RESAMPLES, warnings, why=tuple(doubts))


def _of_set(
    before: SetResult, after: SetResult, *, confidence: float, seed: int
) -> Iterator[Change]:
    theirs = {row.id: row for row in after.rows}
    pairs = [(row, theirs[row.id]) for row in before.rows if row.id in theirs]
    languages = sorted({row.language for row, _ in pairs})
    groups: dict[str, list[tuple[Row, Row]]] = {ALL: pairs}
    if len(languages) > 1:
        groups |= {one: [pair for pair in pairs if pair[0].language == one] for one in languages}
    for language, group in groups.items():
        for measure in dict.fromkeys(name for row, _ in group for name in row.values):
            both = [
                (own.values[measure], other.values[measure])
                for own, other in group
                if measure in own.values and measure in other.values
            ]
            if len(both) >= FEWEST:
                found = _change(measure, np.array(both), confidence, seed)
                yield Change(
                    set=before.name,
                    language=language,
                    measure=measure,
                    questions=len(both),
                    **found,
                )


def _change(measure: str, both: Floats, confidence: float, seed: int) -> dict[str, Any]:
    timed = measure in TIMES
    if timed:
        both = np.log(np.maximum(both, 1e-9))
    before, after = (float(mean) for mean in both.mean(axis=0))
    differences = both[:, 1] - both[:, 0]
    change = float(differences.mean())
    if np.ptp(differences) == 0:
        low = high = change
        p = 1.0 if change == 0 else 0.0
    else:
        drawn = resampled_means(differences, np.random.default_rng(seed), RESAMPLES)
        rest = (1 - confidence) / 2
        low, high = (float(end) for end in np.quantile(drawn, (rest, 1 - rest)))
        least = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        p = min(1.0, 2 * (least + 1) / (RESAMPLES + 1))
    verdict: Verdict = "same"
    if low > 0 or high < 0:
        better = (change > 0) != (timed or measure in ERRORS)
        verdict = "better" if better else "worse"
    if timed:
        before, after = math.exp(before), math.exp(after)
        change, low, high = (math.expm1(value) for value in (change, low, high))
    return {
        "before": before,
        "after": after,
        "change": change,
        "low": low,
        "high": high,
        "p": p,
        "verdict": verdict,
    }


def _holm(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Adjust p for as many looks (Holm, 1979); languages repeat ``all`` and are counted too."""
    order = sorted(range(len(changes)), key=lambda at: changes[at].p)
    adjusted = [1.0] * len(changes)
    reached = 0.0
    for place, at in enumerate(order):
        reached = max(reached, min(1.0, changes[at].p * (len(changes) - place)))
        adjusted[at] = reached
    return tuple(
        msgspec.structs.replace(one, holm=holm) for one, holm in zip(changes, adjusted, strict=True)
    )


def _differences(before: SetResult, after: SetResult) -> Iterator[Reason]:
    if before.fingerprint != after.fingerprint:
        shared = len({row.id for row in before.rows} & {row.id for row in after.rows})
        counts = {"before": before.questions, "after": after.questions, "shared": shared}
        told = {name: str(count) for name, count in counts.items()}
        yield Reason("sets_differ", {"name": before.name, **told})
    for name, one in (("failed_before", before), ("failed_after", after)):
        if one.failed:
            yield Reason(name, {"name": before.name, "count": str(one.failed)})


def _names(sets: Sequence[SetResult]) -> str:
    return ", ".join(one.name for one in sets)
