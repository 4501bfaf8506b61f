"""Answers to questions that say the same in other words: vectors propose, the words decide.

One scope is everything but the question: whoever asks, the knowledge base, settings, model. In it
the questions that were answered lie side by side with their vectors; the nearest few are proposed
and let through only if nothing tells the two questions apart (``forebay.cache.gate``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from forebay.cache.gate import difference

Floats32 = npt.NDArray[np.float32]
PROPOSED = 4
"""Questions near enough that are looked at, best first."""
_GROWTH = 4


FALSE_HITS = {
    "multilingual-e5-small": {
        0.6: 0.191, 0.7: 0.158, 0.75: 0.139, 0.8: 0.112, 0.85: 0.083, 0.9: 0.063, 0.95: 0.01,
    },
}  # fmt: skip
"""By embedder and least cosine: of a million pairs of questions, so many of different meaning pass
cosine and words (303 million labelled pairs, benchmarks/caching/near.json)."""
UNKNOWN_COSINE = 0.95
"""For embedders without labelled pairs."""
NOTHING = 1.1
"""A cosine that no question has."""


class NearSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When an answer to another question will do."""

    enabled: Annotated[
        bool, Meta(description="Answer from kept answers to questions that say the same.")
    ] = False
    min_cosine: Annotated[
        float,
        Meta(
            description="Least cosine of two questions; 0: what keeps to the budget of false hits.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.0
    false_hits_per_million: Annotated[
        float,
        Meta(
            description="Of a million pairs of questions, so many of different meaning may pass "
            "for the same; known for the built-in embedder.",
            ge=0.0,
        ),
    ] = 0.12
    max_questions: Annotated[
        int, Meta(description="Questions remembered in each process.", ge=1, le=1_000_000)
    ] = 20_000


def least_cosine(settings: NearSettings, embedder: str) -> float:
    """From which cosine on a question is proposed as the same, for the embedder of that name.

    The least that keeps to the budget of false hits; above any cosine where none does.
    """
    if settings.min_cosine:
        return settings.min_cosine
    measured = FALSE_HITS.get(embedder)
    if measured is None:
        return UNKNOWN_COSINE
    budget = settings.false_hits_per_million
    return min((cosine for cosine, false in measured.items() if false <= budget), default=NOTHING)


class _Scope:
    """Questions of one scope: their texts and keys, and their vectors row by row."""

    __slots__ = ("keys", "rows", "texts")

    def __init__(self, dimensions: int) -> None:
        self.keys: list[bytes] = []
        self.texts: list[str] = []
        self.rows: Floats32 = np.empty((0, dimensions), np.float32)

    def add(self, key: bytes, text: str, vector: Floats32) -> None:
        if key in self.keys:
            return
        count = len(self.keys)
        if count == len(self.rows):
            grown = np.empty((max(_GROWTH, 2 * count), len(vector)), np.float32)
            grown[:count] = self.rows
            self.rows = grown
        self.rows[count] = vector
        self.keys.append(key)
        self.texts.append(text)

    def forget(self, count: int) -> None:
        """Let the questions go that were answered longest ago."""
        left = len(self.keys) - count
        self.rows[:left] = self.rows[count : count + left].copy()
        del self.keys[:count], self.texts[:count]

    def nearest(self, vector: Floats32, min_cosine: float) -> list[int]:
        # Row by row: BLAS takes several threads for a long product, and waits for them.
        cosines = np.vecdot(self.rows[: len(self.keys)], vector)
        near = np.flatnonzero(cosines >= min_cosine)
        if len(near) > PROPOSED:
            near = near[np.argpartition(-cosines[near], PROPOSED - 1)[:PROPOSED]]
        return sorted(near.tolist(), key=lambda at: (-cosines[at], at))


class NearQuestions:
    """Questions that were answered, by scope; the scope unused for longest goes first."""

    def __init__(self, settings: NearSettings) -> None:
        self._settings = settings
        self._scopes: OrderedDict[bytes, _Scope] = OrderedDict()
        self._count = 0
        self.proposed = self.refused = self.found = 0

    def add(self, scope: bytes, key: bytes, text: str, vector: Floats32) -> None:
        """Remember that ``text`` was answered under ``key``."""
        held = self._scopes.get(scope)
        if held is None:
            held = self._scopes[scope] = _Scope(len(vector))
        before = len(held.keys)
        held.add(key, text, vector)
        self._count += len(held.keys) - before
        self._scopes.move_to_end(scope)
        while self._count > self._settings.max_questions and len(self._scopes) > 1:
            _, oldest = self._scopes.popitem(last=False)
            self._count -= len(oldest.keys)
        if self._count > self._settings.max_questions:
            # Some at once: to move the rows for each would cost more than the question is worth.
            some = max(1, self._settings.max_questions // 16)
            held.forget(some)
            self._count -= some

    def seen(self, scope: bytes, text: str, vector: Floats32, min_cosine: float) -> list[bytes]:
        """What ``find`` would return, with nothing counted."""
        held = self._scopes.get(scope)
        if held is None:
            return []
        return [
            held.keys[at]
            for at in held.nearest(vector, min_cosine)
            if difference(text, held.texts[at]) is None
        ]

    def find(self, scope: bytes, text: str, vector: Floats32, min_cosine: float) -> list[bytes]:
        """Keys of answered questions that say the same, nearest first."""
        held = self._scopes.get(scope)
        if held is None:
            return []
        self._scopes.move_to_end(scope)
        found = []
        for at in held.nearest(vector, min_cosine):
            self.proposed += 1
            if difference(text, held.texts[at]) is None:
                found.append(held.keys[at])
            else:
                self.refused += 1
        return found

    def clear(self) -> None:
        """Forget every question."""
        self._scopes.clear()
        self._count = 0

    def statistics(self) -> dict[str, float]:
        """Questions held, proposals, and how many the words refused."""
        return {
            "questions": self._count,
            "proposed": self.proposed,
            "refused": self.refused,
            "near": self.found,
        }
