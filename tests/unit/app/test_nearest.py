"""Hits are scored by their sentences where all have theirs, and as before where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from forebay.app.nearest import NearestScorer, NearestSentences, nearest_sentences
from forebay.app.runtime import Reading
from forebay.app.settings import IngestSettings, Settings
from forebay.embedding.sentence_vectors import maker_of, pack
from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import Unavailable
from forebay.kernel.stages import HitVectors
from forebay.pipeline.sentences import SentenceSettings
from forebay.testing.embedding import HashEmbedder
from forebay.testing.generation import passage

FOUND = HitVectors(np.array([1, 0], "<f4").tobytes(), np.eye(2, dtype="<f4").tobytes(), 2)
KEPT = {
    1: pack(["far", "near"], Vectors((0, 1), 2, np.array([[0, 1], [1, 0]], "<f4").tobytes())),
    2: b"",
    3: b"of another size",
}


def hits(*numbers: int) -> tuple[Hit, ...]:
    return tuple(passage(f"text {number}", number=number) for number in numbers)


class Scorer:
    """Remembers what it was told of sentences."""

    def __init__(self) -> None:
        self.told: list[Sequence[float]] = []

    def relevances(
        self, query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[Sequence[float], Sequence[float]]:
        self.told.append(vectors.nearest)
        return (0.0,) * len(hits), (0.5,) * len(hits)


def read(ids: Sequence[int]) -> Mapping[int, bytes]:
    return {one: KEPT[one] for one in ids if one in KEPT}


def test_the_scorer_is_told_the_nearest_of_each() -> None:
    scorer = Scorer()
    made = NearestScorer(scorer, NearestSentences(read)).relevances("q", hits(1, 2), FOUND)
    assert made == ((0.0, 0.0), (0.5, 0.5))
    assert scorer.told[0] == pytest.approx([1.0, np.nan], nan_ok=True)


@pytest.mark.parametrize("numbers", [(1, 9), (9,), (1, 3)])
def test_all_have_theirs_or_none_counts(numbers: tuple[int, ...]) -> None:
    assert not NearestSentences(read).of(hits(*numbers), FOUND).nearest


def test_a_record_that_cannot_be_read_costs_no_order() -> None:
    def fails(ids: Sequence[int]) -> Mapping[int, bytes]:
        raise Unavailable("too many reads of the store are under way.")

    assert NearestSentences(fails).of(hits(1), FOUND) is FOUND


def test_nothing_is_read_where_nothing_is_kept() -> None:
    asked: list[tuple[int, list[int]]] = []

    class Reader:
        def sentences(self, kb: None, maker: int, chunk_ids: Sequence[int]) -> Mapping[int, bytes]:
            asked.append((maker, list(chunk_ids)))
            return {}

    def reading(embedder: HashEmbedder | None, *, enabled: bool) -> Reading:
        ingest = msgspec.structs.replace(
            IngestSettings(), sentences=SentenceSettings(enabled=enabled)
        )
        settings = msgspec.structs.replace(Settings(), ingest=ingest)
        parts = SimpleNamespace(settings=settings, embedder=embedder, reader=Reader())
        return cast("Reading", parts)

    embedder = HashEmbedder()
    assert nearest_sentences(reading(None, enabled=True)) is None
    assert nearest_sentences(reading(embedder, enabled=False)) is None
    found = nearest_sentences(reading(embedder, enabled=True))
    assert found is not None and found.of(hits(4), FOUND) is FOUND
    assert asked == [(maker_of(embedder.spec.fingerprint), [4])]
