"""Fits the light encoder of queries: by texts, and the vectors that the embedder has for them.

Texts are sentences of the documents, and pieces of them with the words of a question around, for
queries are shorter than sentences and ask. A row begins as the mean of the vectors of the texts
that hold its token, a weight as the logarithm of how rare that is; both then follow the gradient of
1 - cosine (Adam, in numpy). No questions are needed: a store has none.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
LEAST_TEXTS = 64
"""Fewer fit nothing."""
_HAN = re.compile(r"[\u3400-\u9fff]")
_ASKED = (
    *("What is", "How many", "When did", "Who", "Where is", "Which", "How does", "Why did"),
    *("What does", "How much", "In what year", "What kind of", "Can I", "How do I", "Is"),
    *("What was the", "Who was"),
)
_ASKED_ZH = (
    *("是什么？", "是多少？", "什么时候？", "有多少？", "在哪里？", "是谁？", "为什么？"),
    *("怎么办？", "哪一个？", "可以吗？", "多久？", "何時？", "是誰？", "哪些？"),
)
_FLOOR, _TINY = 0.3, 1e-9


class LightTraining(msgspec.Struct, frozen=True):
    """How long and how fast rows follow the gradient."""

    epochs: int = 6
    batch: int = 256
    rate: float = 2e-3
    weight_rate: float = 1e-2
    seed: int = 7


class Fitted(msgspec.Struct, frozen=True):
    """Rows and weights by ascending token, and the mean cosine on texts that were held out."""

    ids: Ints
    rows: Floats
    weights: Floats
    cosine: float


def question_like(sentence: str, chance: random.Random) -> str:
    """A few words of a sentence as somebody might ask about them."""
    if 3 * len(_HAN.findall(sentence)) > len(sentence):
        length = chance.randint(4, 16)
        start = chance.randrange(max(1, len(sentence) - length))
        piece, asked = sentence[start : start + length], chance.choice(_ASKED_ZH)
        return piece + asked if chance.random() < 0.7 else asked.rstrip("？") + piece + "？"
    words, length = sentence.split(), chance.randint(2, 9)
    start = chance.randrange(max(1, len(words) - length))
    piece = " ".join(words[start : start + length]).strip(".,;")
    return f"{chance.choice(_ASKED)} {piece}" + ("?" if chance.random() < 0.8 else "")


def fit_light(
    tokens: Sequence[Sequence[int]],
    vectors: Floats,
    training: LightTraining,
    stopped: Callable[[], bool] = bool,
) -> Fitted | None:
    """Fit to the unit ``vectors`` (len(tokens), dimensions).

    None for fewer than 64 texts, and when ``stopped``, which is asked between batches. Blocks for a
    second per 2,000 texts. Deterministic by its arguments. One text in twenty is held out to be
    measured by.
    """
    if len(tokens) < LEAST_TEXTS:
        return None
    held = np.arange(len(tokens)) % 20 == 19
    learnt = [np.array(row, np.int64) for row, out in zip(tokens, held, strict=True) if not out]
    ids = np.unique(np.concatenate(learnt))
    fit = _Fit([np.searchsorted(ids, row) for row in learnt], vectors[~held], len(ids))
    chance = np.random.default_rng(training.seed)
    for epoch in range(training.epochs):
        order = chance.permutation(len(learnt))
        share = 1.0 - epoch / training.epochs
        for start in range(0, len(order), training.batch):
            batch = order[start : start + training.batch]
            if stopped():
                return None
            fit.step(batch, training.rate * share, training.weight_rate * share)
    weights: Floats = np.exp(fit.logs)
    measured = [np.array(row, np.int64) for row, out in zip(tokens, held, strict=True) if out]
    cosine = _cosine(ids, fit.rows, weights, measured, vectors[held])
    return Fitted(ids, fit.rows, weights, cosine)


class _Fit:
    """Rows, logarithms of weights, and how they have moved."""

    def __init__(self, texts: Sequence[Ints], vectors: Floats, tokens: int) -> None:
        self._texts, self._vectors = texts, vectors
        counts = np.zeros(tokens, np.float32)
        rows = np.zeros((tokens, vectors.shape[1]), np.float32)
        held = np.zeros(tokens, np.float32)
        for text, vector in zip(texts, vectors, strict=True):
            own = np.unique(text)
            rows[own] += vector / len(own)
            held[own] += 1.0 / len(own)
            counts[own] += 1.0
        rows /= np.maximum(held, _TINY)[:, None]
        self.rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
        rare = np.log((len(texts) + 1.0) / (counts + 0.5))
        self.logs = np.log(np.maximum(rare, _FLOOR)).astype(np.float32)
        self._moved_rows = _Adam(self.rows)
        self._moved_logs = _Adam(self.logs)

    def step(self, batch: Ints, rate: float, weight_rate: float) -> None:
        """One step down the gradient of the mean of 1 - cosine over a batch of texts."""
        texts = [self._texts[place] for place in batch]
        flat = np.concatenate(texts)
        lengths = np.array([len(text) for text in texts])
        starts = np.cumsum(lengths) - lengths
        weights = np.exp(self.logs[flat])
        totals = np.add.reduceat(weights, starts)
        held = self.rows[flat]
        means = np.add.reduceat(held * weights[:, None], starts, axis=0) / totals[:, None]
        length = np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _TINY)
        unit, wanted = means / length, self._vectors[batch]
        cosines = (unit * wanted).sum(axis=1, keepdims=True)
        slope = -(wanted - cosines * unit) / length / len(batch)
        owner = np.repeat(np.arange(len(batch)), lengths)
        share = weights / totals[owner]
        by_rows = slope[owner] * share[:, None]
        by_logs = ((held - means[owner]) * slope[owner]).sum(axis=1) * share
        order = np.argsort(flat, kind="stable")
        touched, firsts = np.unique(flat[order], return_index=True)
        self._moved_rows.step(touched, np.add.reduceat(by_rows[order], firsts, axis=0), rate)
        self._moved_logs.step(touched, np.add.reduceat(by_logs[order], firsts), weight_rate)


class _Adam:
    """Adam over the places that a step touches; changes ``values`` in place."""

    def __init__(self, values: Floats) -> None:
        self._values = values
        self._first, self._second = np.zeros_like(values), np.zeros_like(values)

    def step(self, places: Ints, slopes: Floats, rate: float) -> None:
        first = 0.9 * self._first[places] + 0.1 * slopes
        second = 0.99 * self._second[places] + 0.01 * slopes * slopes
        self._first[places], self._second[places] = first, second
        self._values[places] -= np.float32(rate) * first / (np.sqrt(second) + np.float32(1e-8))


def _cosine(
    ids: Ints, rows: Floats, weights: Floats, texts: Sequence[Ints], vectors: Floats
) -> float:
    found = []
    for text, vector in zip(texts, vectors, strict=True):
        known = np.searchsorted(ids, text[np.isin(text, ids)])
        mean = weights[known] @ rows[known]
        found.append(float(mean @ vector) / max(float(np.linalg.norm(mean)), _TINY))
    return float(np.mean(found)) if found else 0.0
