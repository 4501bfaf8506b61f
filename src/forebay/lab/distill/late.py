"""Trains the head of late interaction: token states down to 128 dimensions (F3.13).

A query's tokens ``x_i`` and a passage's tokens ``y_j`` (an embedder's last layer) become

    q_i = unit(x_i W + b),  d_j = unit(y_j V + c),  a = softmax(x u)
    score = scale * sum_i a_i max_j <q_i, d_j>                     (MaxSim, weighted)

Over a query's candidates the loss is ``(1 - t) * -log sum_positives p + t * KL(teacher || p)``
with ``p = softmax(score + prior)``: labels pull by contrast, a teacher by its soft scores. The
prior is what the search itself scored, so that the head learns what it did not know. Gradients are
exact; only the passage tokens that were a maximum receive any, so a step costs little more than
projecting the batch. Everything is numpy: 100,000 parameters need no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
States = NDArray[np.floating]
"""Tokens x dimensions; half precision is enough to keep them."""

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8
_SAMPLED_TOKENS = 60_000
_TINY = 1e-6


class LateTraining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a head is trained."""

    dimensions: Annotated[int, msgspec.Meta(ge=8, le=1024, description="Size of a vector.")] = 128
    epochs: Annotated[int, msgspec.Meta(ge=1, description="Passes over the examples.")] = 4
    batch: Annotated[int, msgspec.Meta(ge=1, description="Queries in one step.")] = 16
    learning_rate: Annotated[
        float, msgspec.Meta(gt=0, description="Adam's first step size; falls to nothing.")
    ] = 1e-3
    teacher_share: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Weight of the teacher's scores beside labels."),
    ] = 0.5
    scale: Annotated[
        float, msgspec.Meta(gt=0, description="What a mean cosine is multiplied by at first.")
    ] = 20.0
    seed: Annotated[int, msgspec.Meta(ge=0, description="Order of examples.")] = 7


class LateExample(msgspec.Struct, frozen=True):
    """One query and its candidates.

    ``query`` and each of ``passages`` are token states (tokens x dimensions); ``relevant[k]``
    says whether candidate ``k`` answers; ``teacher[k]`` is a dearer model's score of it, as a
    logit, empty where there is none. ``prior[k]`` is what is added to its score; empty: nothing.
    """

    query: States
    passages: tuple[States, ...]
    relevant: tuple[bool, ...]
    teacher: tuple[float, ...] = ()
    prior: tuple[float, ...] = ()


class LateHead(msgspec.Struct):
    """The trained parameters: ``(inputs, dimensions)`` matrices, their offsets, the weights."""

    query: Floats
    query_offset: Floats
    passage: Floats
    passage_offset: Floats
    weight: Floats
    log_scale: Floats

    def arrays(self) -> dict[str, Floats]:
        """Every parameter by its name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def initial_head(examples: Sequence[LateExample], settings: LateTraining) -> LateHead:
    """Principal axes of the passages' tokens, for both sides; all query tokens weigh the same."""
    rows = _sample(examples, np.random.default_rng(settings.seed))
    mean = rows.mean(axis=0)
    variance, axes = np.linalg.eigh(np.cov(rows, rowvar=False))  # ascending
    variance, axes = variance[::-1], axes[:, ::-1]
    # Axes of little spread say as much about meaning as those of much: halfway to whitening.
    strength = (np.maximum(variance[: settings.dimensions], 0) + _TINY) ** -0.25
    matrix = np.ascontiguousarray(axes[:, : settings.dimensions] * strength, np.float32)
    asked = np.concatenate([example.query for example in examples[:1000]]).mean(axis=0)
    return LateHead(
        query=matrix.copy(),
        query_offset=(-asked @ matrix).astype(np.float32),
        passage=matrix,
        passage_offset=(-mean @ matrix).astype(np.float32),
        weight=np.zeros(len(matrix), np.float32),
        log_scale=np.array([np.log(settings.scale)], np.float32),
    )


def _sample(examples: Sequence[LateExample], random: np.random.Generator) -> Floats:
    passages = [passage for example in examples for passage in example.passages]
    chosen = random.permutation(len(passages))[: max(1, _SAMPLED_TOKENS // 100)]
    parts = [np.asarray(passages[index], np.float32)[::2] for index in chosen]
    return np.concatenate(parts)[:_SAMPLED_TOKENS]


def train_late(
    examples: Sequence[LateExample],
    settings: LateTraining,
    report: Callable[[int, float], None] = lambda epoch, loss: None,
) -> LateHead:
    """Train on ``examples``; the same examples and settings give the same head.

    ``report`` hears each epoch's mean loss. Blocking: about a tenth of a second a step of 16
    queries with 12 candidates of 200 tokens each on one core.
    """
    head = initial_head(examples, settings)
    random = np.random.default_rng(settings.seed)
    steps = settings.epochs * -(-len(examples) // settings.batch)
    adam = _Adam(head.arrays(), settings.learning_rate, steps)
    for epoch in range(settings.epochs):
        order = random.permutation(len(examples))
        total = 0.0
        for start in range(0, len(order), settings.batch):
            chosen = [examples[index] for index in order[start : start + settings.batch]]
            loss, slopes = loss_and_slopes(head, chosen, settings.teacher_share)
            total += loss * len(chosen)
            adam.step(slopes)
        report(epoch, total / len(examples))
    return head


class _Adam:
    """Adam with a step size that falls to nothing along a half cosine."""

    def __init__(self, parameters: dict[str, Floats], rate: float, steps: int) -> None:
        self._parameters = parameters
        self._rate = rate
        self._steps = steps
        self._done = 0
        self._mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: np.zeros_like(value) for name, value in parameters.items()}

    def step(self, slopes: dict[str, Floats]) -> None:
        """Move every parameter, in place."""
        rate = self._rate * 0.5 * (1 + np.cos(np.pi * self._done / self._steps))
        self._done += 1
        for name, slope in slopes.items():
            mean, square = self._mean[name], self._square[name]
            mean += (1 - _BETA_1) * (slope - mean)
            square += (1 - _BETA_2) * (slope * slope - square)
            steady = np.sqrt(square / (1 - _BETA_2**self._done)) + _EPSILON
            self._parameters[name] -= rate * (mean / (1 - _BETA_1**self._done)) / steady


def loss_and_slopes(
    head: LateHead, examples: Sequence[LateExample], teacher_share: float
) -> tuple[float, dict[str, Floats]]:
    """The mean loss over ``examples`` and its exact derivative by every parameter."""
    slopes = {name: np.zeros_like(value) for name, value in head.arrays().items()}
    total = 0.0
    for example in examples:
        total += _add_example(head, example, teacher_share, slopes)
    share = np.float32(1 / len(examples))
    return total / len(examples), {name: slope * share for name, slope in slopes.items()}


class _Side(msgspec.Struct, frozen=True):
    """Projected tokens: what went in, unit vectors, and their lengths before."""

    states: Floats
    unit: Floats
    length: Floats

    @classmethod
    def of(cls, states: States, matrix: Floats, offset: Floats) -> _Side:
        rows = np.asarray(states, matrix.dtype)
        projected = rows @ matrix + offset
        length = np.linalg.norm(projected, axis=1, keepdims=True) + _TINY
        return cls(rows, projected / length, length)

    def back(self, rows: NDArray[np.intp], slope: Floats) -> tuple[Floats, Floats]:
        """Derivatives by matrix and offset of what moves unit vectors ``rows`` by ``slope``."""
        unit = self.unit[rows]
        through = (slope - unit * (unit * slope).sum(axis=1, keepdims=True)) / self.length[rows]
        return self.states[rows].T @ through, through.sum(axis=0)


def _add_example(
    head: LateHead, example: LateExample, teacher_share: float, slopes: dict[str, Floats]
) -> float:
    query = _Side.of(example.query, head.query, head.query_offset)
    passages = _Side.of(np.concatenate(example.passages), head.passage, head.passage_offset)
    lengths = np.array([len(passage) for passage in example.passages])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    shares = softmax(query.states @ head.weight)
    cosines = passages.unit @ query.unit.T
    best = np.stack(
        [
            start + cosines[start : start + length].argmax(axis=0)
            for start, length in zip(starts, lengths, strict=True)
        ]
    )
    tokens = np.arange(len(shares))
    top = cosines[best, tokens]
    scale = float(np.exp(head.log_scale[0]))
    means = top @ shares
    loss, wanted = _loss(scale * means, example, teacher_share)
    # Down again: scores, then maxima, then both sides.
    moved = (scale * wanted).astype(query.unit.dtype)
    by_max = moved[:, None] * shares[None]
    near = passages.unit[best]
    slope_query = np.einsum("kt,ktd->td", by_max, near)
    slope_near = by_max[..., None] * query.unit[None]
    _add(slopes, "query", query.back(tokens, slope_query))
    _add(slopes, "passage", passages.back(best.ravel(), slope_near.reshape(best.size, -1)))
    by_share = moved @ top
    slopes["weight"] += query.states.T @ (shares * (by_share - by_share @ shares))
    slopes["log_scale"] += float(wanted @ means) * scale
    return loss


def _add(slopes: dict[str, Floats], name: str, found: tuple[Floats, Floats]) -> None:
    slopes[name] += found[0]
    slopes[f"{name}_offset"] += found[1]


def _loss(
    scores: NDArray[np.floating], example: LateExample, teacher_share: float
) -> tuple[float, NDArray[np.floating]]:
    """The loss of one query's scores and its derivative by each."""
    p = softmax(scores + np.asarray(example.prior, scores.dtype) if example.prior else scores)
    relevant = np.array(example.relevant, bool)
    share = teacher_share if example.teacher else 0.0
    if not relevant.any():
        share = 1.0 if example.teacher else 0.0
    loss, slope = 0.0, np.zeros_like(p)
    if relevant.any() and share < 1:
        among = np.where(relevant, p, 0)
        sure = float(among.sum()) + 1e-30
        loss -= (1 - share) * float(np.log(sure))
        slope += (1 - share) * (p - among / sure)
    if share > 0:
        soft = softmax(np.asarray(example.teacher, p.dtype))
        loss += share * float((soft * (np.log(soft + 1e-30) - np.log(p + 1e-30))).sum())
        slope += share * (p - soft)
    return loss, slope


def softmax(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Shares of one that grow with ``values``."""
    powers = np.exp(values - values.max())
    shares: NDArray[np.floating] = powers / powers.sum()
    return shares


def late_scores(head: LateHead, query: States, passages: Sequence[States]) -> NDArray[np.floating]:
    """Mean weighted MaxSim of each passage, in -1..1, without quantising."""
    asked = _Side.of(query, head.query, head.query_offset)
    shares = softmax(asked.states @ head.weight)
    means = [
        (_Side.of(each, head.passage, head.passage_offset).unit @ asked.unit.T).max(axis=0) @ shares
        for each in passages
    ]
    return np.array(means)
