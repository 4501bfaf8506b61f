"""Candidates gathered for late interaction: what the head learns from, how well it orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.lab.distill.late import (
    LateExample,
    LateHead,
    LateTraining,
    initial_head,
    late_scores,
)
from forebay.lab.distill.late_export import calibrate_scores

Floats = NDArray[np.floating]
States = NDArray[np.float16]
"""Tokens x dimensions of an embedder's last layer."""

TRAINING = LateTraining(epochs=2, learning_rate=2e-4, teacher_share=0.7, scale=25.0)
"""What the shipped head was trained with."""
BESIDE = 0.4
"""What a mean MaxSim weighs beside the search's score where both order."""
_HARD, _OTHERS, _AMONG = 6, 6, 30
_TAUGHT_LATE, _TAUGHT_FUSED = 21.8, 22.5
"""Logits of a relevance by mean MaxSim and fused score, fitted on the training halves of the public
sets (``benchmarks/rerank_late``)."""


class LateRow(msgspec.Struct, frozen=True):
    """One question's candidates in the search's order, with all tokens' states.

    ``documents`` are the candidates' ids and ``relevance`` grades documents; ``fused`` are the
    search's scores; ``teacher`` scores candidates as logits, empty where no teacher was asked.
    """

    group: str
    query: States
    passages: tuple[States, ...]
    documents: tuple[str, ...]
    relevance: Mapping[str, int]
    fused: tuple[float, ...]
    held_out: bool
    teacher: tuple[float, ...] = ()

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Which candidates are relevant."""
        return np.array([self.relevance.get(one, 0) > 0 for one in self.documents], np.bool_)

    def of(self, places: Sequence[int]) -> LateRow:
        """The row with some of its candidates."""
        return msgspec.structs.replace(
            self,
            passages=tuple(self.passages[at] for at in places),
            documents=tuple(self.documents[at] for at in places),
            fused=tuple(self.fused[at] for at in places),
            teacher=tuple(self.teacher[at] for at in places) if self.teacher else (),
        )


def thinned(rows: Sequence[LateRow], seed: int) -> list[LateRow]:
    """What is learnt from: the relevant, the six best others, six of the next two dozen."""
    chance = np.random.default_rng(seed)
    kept = []
    for row in rows:
        relevant = row.relevant.tolist()
        others = [at for at, right in enumerate(relevant) if not right]
        further = others[_HARD:_AMONG]
        drawn = chance.permutation(further)[:_OTHERS].tolist() if further else []
        places = [at for at, right in enumerate(relevant) if right]
        kept.append(row.of([*places, *others[:_HARD], *drawn]))
    return kept


def taught_by_states(rows: Sequence[LateRow]) -> list[LateRow]:
    """The rows with a teacher that no small head can be: all dimensions in float, untrained.

    Beside it the fused score, so that the head learns what the search knows by words.
    """
    examples = [example_of(row) for row in rows]
    size = examples[0].query.shape[1]
    full = initial_head(examples, msgspec.structs.replace(TRAINING, dimensions=size))
    return [
        msgspec.structs.replace(
            row,
            teacher=tuple(
                (
                    _TAUGHT_LATE * late_scores(full, example.query, example.passages)
                    + _TAUGHT_FUSED * np.array(row.fused)
                ).tolist()
            ),
        )
        for row, example in zip(rows, examples, strict=True)
    ]


def example_of(row: LateRow) -> LateExample:
    """What ``train_late`` takes of a row."""
    return LateExample(row.query, row.passages, tuple(row.relevant.tolist()), row.teacher)


def scores_of(head: LateHead, rows: Sequence[LateRow]) -> list[Floats]:
    """Mean MaxSim of each row's candidates."""
    return [late_scores(head, row.query, row.passages) for row in rows]


def ordering_scores(
    rows: Sequence[LateRow], scores: Sequence[Floats], way: Literal["alone", "beside"]
) -> list[NDArray[np.float32]]:
    """What orders candidates: late interaction alone, or beside the search's scores."""
    if way == "alone":
        return [np.asarray(one, np.float32) for one in scores]
    return [
        np.asarray(np.array(row.fused) + BESIDE * one, np.float32)
        for row, one in zip(rows, scores, strict=True)
    ]


def calibrated(rows: Sequence[LateRow], scores: Sequence[Floats]) -> tuple[float, float]:
    """``middle`` and ``width`` of the curve from mean MaxSim to relevance.

    By the rows' labels; where no row has any, by the relevances that the teacher told.
    """
    labelled = [at for at, row in enumerate(rows) if row.relevance]
    told = labelled or list(range(len(rows)))
    seen = np.concatenate([scores[at] for at in told])
    if labelled:
        return calibrate_scores(seen, np.concatenate([rows[at].relevant for at in told]))
    logits = np.concatenate([np.array(rows[at].teacher, np.float64) for at in told])
    return calibrate_scores(seen, 1 / (1 + np.exp(-logits)))
