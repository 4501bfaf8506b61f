"""Candidates gathered for the light reranker: what it learns from, and how well it orders them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.lab.distill.late_export import calibrate_scores
from forebay.lab.distill.light import LightExamples, Parameters, score, shares_of
from forebay.lab.evaluate.intervals import mean_interval
from forebay.lab.evaluate.measures import ndcg

Floats = NDArray[np.float32]
LABEL_SHARE = 0.5
_SCORED_AT_ONCE = 256


class LightRow(msgspec.Struct, frozen=True):
    """One question's candidates in the search's order.

    ``features`` (n x F; the last three are how near the nearest sentence is, whether sentences were
    read, the share in another language), ``query`` (d), ``vectors`` (n x d); ``documents`` are the
    candidates' ids
    and ``relevance`` grades documents; ``teacher`` scores candidates as logits, empty where no
    teacher was asked. ``held_out``: kept apart for measuring.
    """

    group: str
    question: str
    features: Floats
    query: Floats
    vectors: Floats
    documents: tuple[str, ...]
    relevance: Mapping[str, int]
    held_out: bool
    teacher: tuple[float, ...] = ()

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Which candidates are relevant."""
        return np.array([self.relevance.get(one, 0) > 0 for one in self.documents], np.bool_)

    @property
    def read(self) -> bool:
        """Whether vectors of its candidates' sentences were read."""
        return bool(self.features[0, -2])

    def without_sentences(self) -> LightRow:
        """The same where no sentence has a vector."""
        features = self.features.copy()
        features[:, -3:-1] = 0.0
        return msgspec.structs.replace(self, features=features)


class Ordered(Protocol):
    """One question's candidates in the search's order, by their documents' ids."""

    @property
    def group(self) -> str:
        """What it is measured with."""
        ...

    @property
    def documents(self) -> Sequence[str]:
        """Ids, best first."""
        ...

    @property
    def relevance(self) -> Mapping[str, int]:
        """Grades of documents."""
        ...


class Ordering(msgspec.Struct, frozen=True):
    """nDCG of one group's held-out questions; ``gain`` with its interval is over the search."""

    questions: int
    search: float
    reranked: float
    gain: float
    low: float
    high: float


def is_held_out(question: str) -> bool:
    """Odd CRC-32 of the question's text: the half that nothing here is tuned or trained on."""
    return zlib.crc32(question.encode()) % 2 == 1


def examples_of(
    rows: Sequence[LightRow], temperature: float = 1.0, label_share: float = LABEL_SHARE
) -> LightExamples:
    """What to train on: the teacher's shares where there is one, even shares of the relevant.

    Where a row has both, labels weigh ``label_share``: what a teacher knows by reading a text
    closely cannot all be seen in its vector, and labels tell which of it is worth learning. Rows
    without a relevant candidate teach nothing without a teacher and are left out. A row whose
    sentences were read is there without them, too. A group weighs by the square root of its
    questions, so that none drowns the others.
    """
    rows = [row for row in rows if row.teacher or row.relevant.any()]
    rows = [*rows, *(row.without_sentences() for row in rows if row.read)]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.group] = counts.get(row.group, 0) + 1
    weight = np.array([counts[row.group] ** -0.5 for row in rows], np.float32)
    plain = _stacked(rows)
    target = np.zeros_like(plain.target)
    for place, row in enumerate(rows):
        count = len(row.documents)
        heard = _heard(row, label_share)
        if row.teacher:
            told = np.array([row.teacher], np.float32)
            shares = shares_of(told, np.ones_like(told, np.bool_), temperature)[0]
            target[place, :count] = (1.0 - heard) * shares
        if heard:
            target[place, :count] += heard * row.relevant / row.relevant.sum()
    return msgspec.structs.replace(plain, target=target, weight=weight / weight.mean())


def _heard(row: LightRow, label_share: float) -> float:
    """How much a row's labels weigh beside its teacher."""
    if not row.relevant.any():
        return 0.0
    return label_share if row.teacher else 1.0


def scores_of(parameters: Parameters, rows: Sequence[LightRow]) -> list[Floats]:
    """The model's scores of each row's candidates."""
    found: list[Floats] = []
    for start in range(0, len(rows), _SCORED_AT_ONCE):
        some = rows[start : start + _SCORED_AT_ONCE]
        scores = score(parameters, _stacked(some))
        found += [scores[at, : len(row.documents)] for at, row in enumerate(some)]
    return found


def curves_of(parameters: Parameters, rows: Sequence[LightRow]) -> list[tuple[float, float]]:
    """From scores to relevance: without sentences, then with them where rows have any."""
    read = [row for row in rows if row.read]
    curves = [calibrated(parameters, [row.without_sentences() for row in rows])]
    return [*curves, calibrated(parameters, read)] if read else curves


def calibrated(parameters: Parameters, rows: Sequence[LightRow]) -> tuple[float, float]:
    """``middle`` and ``width`` of the curve from scores to relevance.

    By the rows' labels; where no row has any, by the relevances that the teacher told.
    """
    labelled = [row for row in rows if row.relevance]
    told = labelled or [row for row in rows if row.teacher]
    scores = np.concatenate(scores_of(parameters, told))
    if labelled:
        return calibrate_scores(scores, np.concatenate([row.relevant for row in told]))
    logits = np.concatenate([np.array(row.teacher, np.float64) for row in told])
    return calibrate_scores(scores, 1 / (1 + np.exp(-logits)))


def ndcg_of(rows: Sequence[Ordered], scores: Sequence[Floats] | None, depth: int) -> Floats:
    """Return nDCG per row when ordered by ``scores``; None: in the search's order."""
    rankings = {}
    for at, row in enumerate(rows):
        order = (
            range(len(row.documents))
            if scores is None
            else np.argsort(-scores[at], kind="stable").tolist()
        )
        rankings[str(at)] = [row.documents[place] for place in order]
    judged = {str(at): row.relevance for at, row in enumerate(rows)}
    values = ndcg(judged, rankings, depth)
    return np.array([values[str(at)] for at in range(len(rows))], np.float32)


def measured(
    rows: Sequence[Ordered], scores: Sequence[Floats], depth: int, seed: int = 1
) -> dict[str, Ordering]:
    """The gain over the search by group."""
    before, after = ndcg_of(rows, None, depth), ndcg_of(rows, scores, depth)
    chance = np.random.default_rng(seed)
    found: dict[str, Ordering] = {}
    for group in dict.fromkeys(row.group for row in rows):
        own = np.array([row.group == group for row in rows])
        found[group] = _ordering(before[own], after[own], chance)
    return found


def _ordering(before: Floats, after: Floats, chance: np.random.Generator) -> Ordering:
    gains = (after - before).astype(np.float64)
    low, high = mean_interval(gains, chance)
    return Ordering(
        len(gains), float(before.mean()), float(after.mean()), float(gains.mean()), low, high
    )


def _stacked(rows: Sequence[LightRow]) -> LightExamples:
    """Rows padded to the longest, without targets."""
    most = max(len(row.documents) for row in rows)
    size, width = len(rows[0].query), rows[0].features.shape[1]
    features = np.zeros((len(rows), most, width), np.float32)
    vectors = np.zeros((len(rows), most, size), np.float32)
    mask = np.zeros((len(rows), most), np.bool_)
    for at, row in enumerate(rows):
        count = len(row.documents)
        features[at, :count], vectors[at, :count] = row.features, row.vectors
        mask[at, :count] = True
    queries = np.stack([row.query for row in rows])
    shares = np.zeros((len(rows), most), np.float32)
    return LightExamples(features, queries, vectors, mask, shares, np.ones(len(rows), np.float32))
