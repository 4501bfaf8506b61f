"""A small judge: a logistic model of what question and passage share, learnt from a judge.

No model is asked and nothing is embedded, so it judges ten passages in about two milliseconds, in
Chinese and English. score = logistic(weights . standardised features + bias), fitted to the
teacher's scores as shares (cross-entropy with L2, by Newton's method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.answers import tokens
from forebay.lab.evaluate.datasets import Question, language_of
from forebay.lab.evaluate.intervals import Floats
from forebay.lab.evaluate.judging.bias import importances
from forebay.lab.evaluate.judging.verdicts import Judgement, Verdict
from forebay.lab.evaluate.target import Passage

FEATURES = (
    "coverage",
    "rare_coverage",
    "pair_coverage",
    "title_coverage",
    "numbers_missing",
    "lead",
    "closeness",
    "length",
    "repeats",
    "rank",
    "score",
    "foreign",
)
"""What a passage is judged by; all in about 0..1 but ``length`` (logarithm of tokens)."""
SCHEMA = 1
_STEPS = 50
_ENOUGH = 1e-8
_WINDOW = 12
"""Tokens within which words of a question stand close together."""


class SmallModel(msgspec.Struct, frozen=True):
    """A fitted model and what it was fitted on, as its file holds it."""

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    trained_on: dict[str, int] = {}
    features: tuple[str, ...] = FEATURES
    kind: str = "small_judge"
    schema: int = SCHEMA


class SmallJudge:
    """Judges by a fitted model; every passage in the light of the others."""

    def __init__(self, model: SmallModel) -> None:
        self._model = model
        self._means, self._scales = np.array(model.means), np.array(model.scales)
        self._weights = np.array(model.weights)

    def scores(self, question: Question, passages: Sequence[Passage]) -> Floats:
        """One score in 0..1 for each passage."""
        if not passages:
            return np.empty(0)
        table = (features(question.text, passages) - self._means) / self._scales
        found: Floats = logistic(table @ self._weights + self._model.bias)
        return found

    async def judge(self, question: Question, passages: Sequence[Passage]) -> Judgement:
        """Verdicts in the order of the passages; it has no bias of place to correct."""
        scores = self.scores(question, passages).tolist()
        order = sorted(range(len(scores)), key=lambda at: -scores[at])
        shares = importances(scores).tolist() if scores else []
        return Judgement(
            tuple(
                Verdict(score, score, share, relevance=score, place=order.index(at) + 1)
                for at, (score, share) in enumerate(zip(scores, shares, strict=True))
            )
        )


def features(question: str, passages: Sequence[Passage]) -> Floats:
    """A row of ``FEATURES`` for each passage, best first as they were found."""
    asked = list(dict.fromkeys(tokens(question)))
    read = [tokens(passage.text) for passage in passages]
    held = [set(words) for words in read]
    # How rare a word is among these passages tells what the question is really about.
    rarity = np.array(
        [math.log(1 + len(held) / (0.5 + sum(word in words for words in held))) for word in asked]
    )
    found = np.array([[word in words for word in asked] for words in held], dtype=float)
    found = found.reshape(len(passages), len(asked))
    coverage = found.mean(axis=1) if asked else np.zeros(len(passages))
    rare = found @ rarity / rarity.sum() if asked else coverage
    best = np.array([_lead(rare, at) for at in range(len(passages))])
    scores = np.array([passage.score for passage in passages])
    top = scores.max() if len(scores) and scores.max() > 0 else 1.0
    language = language_of(question)
    numbers = [word for word in asked if word[0].isdigit()]
    pairs = set(pairwise(asked))
    rows = [
        (
            coverage[at],
            rare[at],
            _share(pairs, set(pairwise(words))),
            _share(set(asked), set(tokens(passage.title))),
            sum(number not in held[at] for number in numbers) / max(1, len(numbers)),
            best[at],
            _closeness(asked, words),
            math.log(1 + len(words)),
            max((_alike(held[at], held[before]) for before in range(at)), default=0.0),
            1 / (1 + at),
            max(0.0, passage.score) / top,
            float(language_of(passage.text) != language),
        )
        for at, (passage, words) in enumerate(zip(passages, read, strict=True))
    ]
    return np.array(rows, dtype=np.float64)


def fit(table: Floats, targets: Floats, trained_on: dict[str, int], l2: float = 1.0) -> SmallModel:
    """The model that explains ``targets`` (0..1) best from rows of features."""
    means, scales = table.mean(axis=0), table.std(axis=0)
    scales = np.where(scales > 1e-9, scales, 1.0)
    rows = np.hstack([(table - means) / scales, np.ones((len(table), 1))])
    penalty = np.full(rows.shape[1], l2)
    penalty[-1] = 1e-6  # the bias is free
    weights = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        said = logistic(rows @ weights)
        slope = rows.T @ (said - targets) + penalty * weights
        curve = (rows * np.maximum(said * (1 - said), 1e-6)[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        # Far from the optimum a whole Newton step overshoots.
        step *= min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        weights -= step
        if float(np.abs(step).max()) < _ENOUGH:
            break
    return SmallModel(
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(weights[:-1].tolist()),
        bias=float(weights[-1]),
        trained_on=trained_on,
    )


def load_small(path: Path) -> SmallModel:
    """A model from a file; ``ConfigError`` when it is none of this version's."""
    try:
        model = msgspec.json.decode(path.read_bytes(), type=SmallModel)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a small judge.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no small judge ({error}); make one with forebay eval distill-judge."
        ) from error
    sizes = {len(part) for part in (model.means, model.scales, model.weights)}
    if model.schema != SCHEMA or model.features != FEATURES or sizes != {len(FEATURES)}:
        raise ConfigError(f"{path} is a small judge of another version; distill it again.")
    return model


def logistic(values: Floats) -> Floats:
    """1 / (1 + e^-x), without overflow."""
    found: Floats = 1 / (1 + np.exp(-np.clip(values, -60, 60)))
    return found


def _lead(values: Floats, at: int) -> float:
    """How far one stands above the best of the others; negative below."""
    others = np.delete(values, at)
    return float(values[at] - others.max()) if len(others) else 0.0


def _share(wanted: AbstractSet[object], there: AbstractSet[object]) -> float:
    return len(wanted & there) / len(wanted) if wanted else 0.0


def _alike(one: set[str], other: set[str]) -> float:
    together = len(one | other)
    return len(one & other) / together if together else 0.0


def _closeness(asked: Sequence[str], words: Sequence[str]) -> float:
    """The largest share of the question's words that stand within ``_WINDOW`` tokens."""
    wanted = set(asked)
    places = [at for at, word in enumerate(words) if word in wanted]
    most = 0
    for start, at in enumerate(places):
        near = {words[place] for place in places[start:] if place < at + _WINDOW}
        most = max(most, len(near))
        if most == len(wanted):
            break
    return most / len(wanted) if wanted else 0.0
