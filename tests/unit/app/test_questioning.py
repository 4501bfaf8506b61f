"""How alike hits are, by a store's own vectors; the classifier fits the embedder or is not used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.app.questioning import Likenings, _calibrated, beyond, classifier_for
from forebay.app.settings import load_settings
from forebay.kernel.documents import Vectors as Asked
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Likeness
from forebay.query import KindClassifier, QuerySettings
from forebay.query.classifier import KINDS
from forebay.testing.generation import context


class Vectors:
    """A snapshot's vectors: ten directions of ten chunks each."""

    fingerprint = "f"

    def __init__(self, groups: int = 10) -> None:
        chance = np.random.default_rng(3)
        rows = np.eye(groups * 2)[np.repeat(np.arange(groups), 10)]
        rows = rows + 0.02 * chance.standard_normal(rows.shape)
        self.table = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        self.rows = len(self.table)
        self.calls = 0

    @property
    def background_rows(self) -> tuple[np.ndarray, np.ndarray]:
        self.calls += 1
        return np.arange(self.rows), self.table

    def stored(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = (ids >= 0) & (ids < self.rows)
        return self.table[np.where(known, ids, 0)], known


class Snapshot:
    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors


def likenings() -> Likenings:
    return Likenings(None)  # type: ignore[arg-type]


def test_percentiles_tell_one_topic_from_another() -> None:
    like = likenings()._of("k", Snapshot(Vectors()), (0, 1, 50), None)  # type: ignore[arg-type]
    assert like is not None
    same, other = like.percentiles[0][1], like.percentiles[0][2]
    assert same > 89.0 > other


def test_what_hits_share_with_the_question_is_left_out() -> None:
    question = np.eye(20, dtype=np.float32)[19]
    likening, vectors = likenings(), Vectors()
    # All speak of the asked word, so that all are alike; beside it there are ten topics.
    table = vectors.table + 3.0 * question
    vectors.table = table / np.linalg.norm(table, axis=1, keepdims=True)
    asked = Asked((0,), 20, question.tobytes())
    for _ in range(2):
        like = likening._of("k", Snapshot(vectors), (0, 1, 50), asked)  # type: ignore[arg-type]
        assert like is not None
        assert like.percentiles[0][1] > 89.0 > like.percentiles[0][2]
    rest = beyond(vectors.table, question)
    assert np.abs(rest @ question).max() < 1e-5
    assert np.linalg.norm(rest, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert not np.isnan(beyond(question[None], question)).any()
    # Another embedder's question says nothing here.
    other = Asked((0,), 8, b"\0" * 32)
    plain = likening._of("k", Snapshot(vectors), (0, 1, 50), None)  # type: ignore[arg-type]
    assert likening._of("k", Snapshot(vectors), (0, 1, 50), other) == plain  # type: ignore[arg-type]


def test_what_is_usual_beside_a_question_is_the_same_by_pairs_as_by_rows() -> None:
    chance = np.random.default_rng(5)
    rows = chance.standard_normal((60, 24)) + 1.5
    rows[7] = rows[3]
    table = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    asked = table[3] + 0.4 * table[9]
    question = (asked / np.linalg.norm(asked)).astype(np.float32)
    sample = likenings()._sample("k", table)
    assert sample is not None
    by_rows = _calibrated(beyond(table, question), "")
    by_pairs = sample.beyond(question)
    assert by_rows is not None and by_pairs is not None
    assert by_pairs.cosines == pytest.approx(by_rows.cosines, abs=5e-6)
    assert by_pairs.pairs == by_rows.pairs


async def test_likeness_is_worked_out_once_for_a_view_and_a_question() -> None:
    vectors, calls = Vectors(), 0

    async def run(work: Callable[[], Likeness | None]) -> Likeness | None:
        nonlocal calls
        calls += 1
        return work()

    index = SimpleNamespace(snapshot=lambda: Snapshot(vectors))
    reading = SimpleNamespace(
        indexes=SimpleNamespace(get=lambda _: index), threads=SimpleNamespace(run=run)
    )
    likening = Likenings(reading)  # type: ignore[arg-type]
    asked = Asked((0,), 20, np.eye(20, dtype=np.float32)[19].tobytes())
    first = await likening.of(context(), "k", (0, 1, 50), asked)
    assert first is not None and await likening.of(context(), "k", (0, 1, 50), asked) is first
    assert calls == 1
    await likening.of(context(), "k", (0, 1, 50), None)
    await likening.of(context(), "other", (0, 1, 50), asked)
    assert calls == 3
    vectors = Vectors()  # a commit shows another view
    await likening.of(context(), "k", (0, 1, 50), asked)
    assert calls == 4
    vectors = Vectors()
    vectors.rows = 0  # no vectors: nobody has to look
    assert await likening.of(context(), "k", (0, 1, 50), asked) is None and calls == 4


def test_a_kb_is_calibrated_once_until_it_has_grown() -> None:
    likening, vectors = likenings(), Vectors()
    for _ in range(3):
        likening._of("k", Snapshot(vectors), (0, 1), None)  # type: ignore[arg-type]
    assert vectors.calls == 1
    grown = Vectors(groups=20)
    likening._of("k", Snapshot(grown), (0, 1), None)  # type: ignore[arg-type]
    assert grown.calls == 1


def test_without_a_vector_nobody_can_tell() -> None:
    likening = likenings()
    assert likening._of("k", Snapshot(Vectors()), (0, 10_000), None) is None  # type: ignore[arg-type]
    few = Vectors()
    few.table, few.rows = few.table[:3], 3
    assert likening._of("few", Snapshot(few), (0, 1), None) is None  # type: ignore[arg-type]


def test_the_classifier_is_used_for_its_own_embedder_only(tmp_path: Path) -> None:
    shipped = KindClassifier.shipped()
    assert classifier_for(QuerySettings(), shipped.fingerprint) is not None
    assert classifier_for(QuerySettings(), "another") is None
    assert classifier_for(QuerySettings(), None) is None
    file = tmp_path / "kinds.npz"
    np.savez(file, fingerprint=np.array("own"), weights=np.ones((9, len(KINDS)), np.float16))
    own = QuerySettings(classifier_path=str(file))
    assert classifier_for(own, "own") is not None
    with pytest.raises(ConfigError, match="another embedder"):
        classifier_for(own, "another")


def test_contradictions_fail_at_start() -> None:
    for query in (
        {"hyde": True},
        {"engine_rewriting": True},
        {"lone_percentile": 99.9},
        {"related_percentile": 60.0},
    ):
        with pytest.raises(ConfigError, match=r"query\."):
            load_settings(None, {"query": query}, {})
