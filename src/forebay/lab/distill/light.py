"""Trains the light reranker (F2.14) by a teacher's soft scores or by labels.

For candidate ``j`` with features ``f_j`` (the fused score first; last whether sentences were read,
``r``, and the share of candidates in another language than the query, ``o``) and vector ``c_j``,
and the query's vector ``q``:

    d_j = <unit(q A), unit(c_j B)>            A, B: two projections to 128 dimensions
    x_j = [clip((f_j - mean f) / deviation), 20 o (d_j - mean d)]      means over the candidates
    s_j = 10 fused_j + <(1 - r) u + r v, x_j>                          u, v >= 0

Sentences change what the rest is worth, so there are weights for either case; where sentences were
read, a query is learned from both with them and without.

Every feature speaks for a candidate the more the larger it is, so no weight may be negative: what
would be used against its sense is a corpus's habit, and lost on the next one. Projections are heard
by as much as candidates are in another language; within one, cosines and words do better on corpora
not trained on.

With ``p = softmax(s)`` and ``t`` the teacher's softmax (labels: even shares of the relevant), the
loss of a query is ``KL(t || p) + margin * mean over pairs of max(0, m (t_i - t_j) - (s_i - s_j))``,
over pairs the teacher tells apart, and half of ``decay |u|^2`` is added: where little is told, the
search's order stands. Gradients are exact, in numpy; steps are Adam's. Projections
begin as the passages' principal axes and are held there: with some thousand queries they would
learn the passages by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Parameters = dict[str, Floats]

FUSED_WEIGHT = 10.0
SPREAD = 20.0
CLIP = 4.0
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8
_TINY = 1e-6
_TINY_DEVIATION = 1e-3
_HELD = ("query", "passage")


class LightTraining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the light reranker is trained."""

    dimensions: Annotated[int, Meta(ge=8, le=512, description="Size of a projection.")] = 128
    epochs: Annotated[int, Meta(ge=1, description="Passes over the examples.")] = 15
    batch: Annotated[int, Meta(ge=1, description="Queries in one step.")] = 64
    learning_rate: Annotated[
        float, Meta(gt=0, description="Adam's first step size; falls to nothing.")
    ] = 3e-2
    projection_rate: Annotated[float, Meta(ge=0, description="The same for the projections.")] = (
        1e-4
    )
    decay: Annotated[
        float, Meta(ge=0, description="Price of weights: this times half their squares.")
    ] = 3e-2
    hold: Annotated[float, Meta(ge=0, description="Pull of projections to where they began.")] = (
        10.0
    )
    margin: Annotated[
        float, Meta(ge=0, description="Weight of the ranking of pairs beside the shares.")
    ] = 0.2
    gap: Annotated[
        float, Meta(ge=0, description="Lead in score for a whole lead in the teacher's share.")
    ] = 2.0
    seed: Annotated[int, Meta(ge=0, description="Order of examples and first weights.")] = 7


class LightExamples(msgspec.Struct, frozen=True):
    """Queries with their candidates, padded to the most.

    ``features`` (queries, n, F) with the fused score first and last whether sentences were read and
    the share of candidates in another language; ``queries`` (queries, d) and ``vectors`` (queries,
    n, d) are unit vectors; ``mask`` tells candidates from padding; ``target`` (queries, n) are the
    shares to reach, each row summing to 1; ``weight`` (queries).
    """

    features: Floats
    queries: Floats
    vectors: Floats
    mask: Mask
    target: Floats
    weight: Floats

    def rows(self, chosen: NDArray[np.int64]) -> LightExamples:
        """The examples of ``chosen`` queries."""
        return LightExamples(
            *(np.asarray(getattr(self, name)[chosen]) for name in self.__struct_fields__)
        )


class _Pass(msgspec.Struct, frozen=True):
    """What a forward pass leaves for the way back; ``heard``: whose projections were made."""

    scores: Floats
    inputs: Floats
    heard: NDArray[np.int64]
    query: Floats
    query_length: Floats
    passage: Floats
    passage_length: Floats


def shares_of(scores: Floats, mask: Mask, temperature: float = 1.0) -> Floats:
    """Softmax of ``scores`` over candidates, padding apart."""
    scores = np.where(mask, scores / temperature, -np.inf)
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = (grown / grown.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares


def first_parameters(examples: LightExamples, training: LightTraining) -> Parameters:
    """Deviations and principal axes of the examples; weights that say nothing yet."""
    chance = np.random.default_rng(training.seed)
    read = examples.features[..., -2]
    told = examples.mask & (read == read.max())
    seen = _apart(examples.features[..., :-2], examples.mask)[told].astype(np.float64)
    axes = _principal_axes(examples.vectors[examples.mask], training.dimensions, chance)
    values = {
        "deviation": seen.std(axis=0) + _TINY_DEVIATION,
        "query": axes,
        "passage": axes,
        "linear": np.zeros(2 * (seen.shape[1] + 1)),
    }
    return {name: np.array(value, np.float32) for name, value in values.items()}


def score(parameters: Parameters, examples: LightExamples) -> Floats:
    """Scores (queries, n); what padding gets means nothing."""
    return _forward(parameters, examples).scores


def loss_and_gradients(
    parameters: Parameters, examples: LightExamples, training: LightTraining
) -> tuple[float, Parameters]:
    """The mean loss and its exact gradients by each trained parameter."""
    passed = _forward(parameters, examples)
    value, outer = _loss(passed.scores, examples, training)
    without, with_sentences = parameters["linear"].reshape(2, -1)[:, -1]
    read, across = examples.features[..., -2], examples.features[..., -1]
    by_likeness = outer * (without * (1 - read) + with_sentences * read) * across
    gradients = {
        "linear": np.einsum("qn,qnf->f", outer, passed.inputs),
        **_projections(by_likeness, passed, examples),
    }
    return value, {name: np.asarray(g, np.float32) for name, g in gradients.items()}


def train(
    examples: LightExamples,
    training: LightTraining,
    told: Callable[[int, float], None] = lambda _epoch, _loss: None,
) -> Parameters:
    """Train on ``examples``; ``told`` hears of each epoch's mean loss. Blocking: minutes."""
    parameters = first_parameters(examples, training)
    begun = {name: parameters[name].copy() for name in _HELD}
    trained = ("linear", *_HELD)
    first = {name: np.zeros_like(parameters[name]) for name in trained}
    second = {name: np.zeros_like(parameters[name]) for name in trained}
    chance = np.random.default_rng(training.seed)
    count = len(examples.weight)
    steps = training.epochs * -(-count // training.batch)
    step = 0
    for epoch in range(training.epochs):
        order = chance.permutation(count)
        total = 0.0
        for start in range(0, count, training.batch):
            chosen = order[start : start + training.batch]
            value, gradients = loss_and_gradients(parameters, examples.rows(chosen), training)
            total += value * len(chosen)
            step += 1
            slowing = 0.5 * (1.0 + np.cos(np.pi * step / steps))
            gradients["linear"] += np.float32(training.decay) * parameters["linear"]
            for name in trained:
                rate = training.projection_rate if name in _HELD else training.learning_rate
                moved = _adam(first[name], second[name], gradients[name], step)
                if name in _HELD:
                    moved += training.hold * (parameters[name] - begun[name])
                parameters[name] -= np.float32(rate * slowing) * moved
            np.maximum(parameters["linear"], 0.0, out=parameters["linear"])
        told(epoch, total / count)
    return parameters


def _adam(first: Floats, second: Floats, gradient: Floats, step: int) -> Floats:
    first += (1.0 - _BETA_1) * (gradient - first)
    second += (1.0 - _BETA_2) * (gradient * gradient - second)
    deviation = np.sqrt(second / (1.0 - _BETA_2**step)) + _EPSILON
    moved: Floats = first / (1.0 - _BETA_1**step) / deviation
    return moved


def _forward(parameters: Parameters, examples: LightExamples) -> _Pass:
    mask, across = examples.mask, examples.features[..., -1]
    heard = np.flatnonzero(across.max(axis=1))
    query, query_length = _unit(examples.queries[heard] @ parameters["query"])
    passage, passage_length = _unit(examples.vectors[heard] @ parameters["passage"])
    alike: Floats = np.zeros(mask.shape, examples.vectors.dtype)
    alike[heard] = np.einsum("qd,qnd->qn", query, passage)
    likeness: Floats = SPREAD * across * _apart(alike[..., None], mask)[..., 0]
    scaled = _apart(examples.features[..., :-2], mask) / parameters["deviation"]
    told = np.concatenate([np.clip(scaled, -CLIP, CLIP), likeness[..., None]], axis=2)
    read = examples.features[..., -2, None]
    inputs: Floats = np.concatenate([told * (1 - read), told * read], axis=2)
    scores: Floats = FUSED_WEIGHT * examples.features[..., 0] + inputs @ parameters["linear"]
    return _Pass(scores, inputs, heard, query, query_length, passage, passage_length)


def _apart(values: Floats, mask: Mask) -> Floats:
    """Values (queries, n, k) less their means over each query's candidates."""
    told = mask[..., None]
    mean = (values * told).sum(axis=1, keepdims=True) / told.sum(axis=1, keepdims=True)
    apart: Floats = values - mean
    return apart


def _loss(
    scores: Floats, examples: LightExamples, training: LightTraining
) -> tuple[float, NDArray[np.float64]]:
    """The mean loss and its gradient by scores."""
    mask, target = examples.mask, examples.target.astype(np.float64)
    masked = np.where(mask, scores.astype(np.float64), -np.inf)
    top = masked.max(axis=1, keepdims=True)
    logs = masked - top - np.log(np.exp(masked - top).sum(axis=1, keepdims=True))
    shares = np.exp(logs)
    entropy = (target * np.log(np.maximum(target, 1e-12))).sum(axis=1)
    losses = entropy - (target * np.where(mask, logs, 0.0)).sum(axis=1)
    outer = np.where(mask, shares - target, 0.0)
    if training.margin:
        more, by_scores = _pairs(scores.astype(np.float64), target, mask, training.gap)
        losses = losses + training.margin * more
        outer = outer + training.margin * by_scores
    weight = examples.weight.astype(np.float64) / len(examples.weight)
    return float((losses * weight).sum()), outer * weight[:, None]


def _pairs(
    scores: NDArray[np.float64], target: NDArray[np.float64], mask: Mask, gap: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean violation of the teacher's pairs per query, and its gradient by scores."""
    lead = target[:, :, None] - target[:, None, :]
    told = (lead > 0.0) & mask[:, :, None] & mask[:, None, :]
    short = gap * lead - (scores[:, :, None] - scores[:, None, :])
    violated = told & (short > 0.0)
    count = np.maximum(told.sum(axis=(1, 2)), 1)
    losses = np.where(violated, short, 0.0).sum(axis=(1, 2)) / count
    signs = violated.sum(axis=1) - violated.sum(axis=2)
    return losses, signs / count[:, None]


def _projections(
    by_column: NDArray[np.float64], passed: _Pass, examples: LightExamples
) -> dict[str, NDArray[Any]]:
    """Gradients by the projections of ``by_column``, the gradient by the scaled likeness."""
    by_column, mask = by_column[passed.heard], examples.mask[passed.heard]
    queries, vectors = examples.queries[passed.heard], examples.vectors[passed.heard]
    mean = (by_column * mask).sum(axis=1, keepdims=True) / mask.sum(axis=1, keepdims=True)
    by_alike = SPREAD * np.where(mask, by_column - mean, 0.0)
    by_query = _through_unit(
        np.einsum("qn,qnd->qd", by_alike, passed.passage), passed.query, passed.query_length
    )
    by_passage = _through_unit(
        by_alike[..., None] * passed.query[:, None, :], passed.passage, passed.passage_length
    )
    return {
        "query": queries.T @ by_query,
        "passage": vectors.reshape(-1, vectors.shape[-1]).T
        @ by_passage.reshape(-1, by_passage.shape[-1]),
    }


def _unit(rows: Floats) -> tuple[Floats, Floats]:
    length = np.sqrt((rows * rows).sum(axis=-1, keepdims=True) + _TINY * _TINY)
    return rows / length, length


def _through_unit(gradient: NDArray[Any], unit: Floats, length: Floats) -> NDArray[Any]:
    along = (gradient * unit).sum(axis=-1, keepdims=True)
    through: NDArray[Any] = (gradient - unit * along) / length
    return through


def _principal_axes(rows: Floats, count: int, chance: np.random.Generator) -> Floats:
    """The leading directions of ``rows`` (d, count), about the origin, by a sample of them."""
    sample = rows[chance.permutation(len(rows))[:20_000]].astype(np.float64)
    _, axes = np.linalg.eigh(sample.T @ sample)
    leading: Floats = axes[:, ::-1][:, :count].astype(np.float32)
    return leading
