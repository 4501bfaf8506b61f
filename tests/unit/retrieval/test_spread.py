"""The spread of hits: the figure itself, and what is normal for a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import pstdev

import numpy as np
import numpy.typing as npt
import pytest

from forebay.retrieval import KbIndex, RetrievalSettings
from forebay.retrieval.spread import (
    LEAST_CHUNKS,
    SpreadCalibration,
    calibrate_spread,
    hit_spread,
    spread_of,
)
from forebay.retrieval.vector_view import VectorView
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 16


def unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    length: npt.NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / length


def test_the_figure_is_the_deviation_of_all_pairs() -> None:
    vectors = unit(np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32))
    expected = pstdev(float(a @ b) for a, b in combinations(vectors, 2))
    assert spread_of(vectors) == pytest.approx(expected, abs=1e-6)
    assert spread_of(vectors[:2]) is None
    assert spread_of(np.repeat(vectors[:1], 5, axis=0)) == pytest.approx(0, abs=1e-6)


def corpus(chance: np.random.Generator, topics: int, each: int) -> npt.NDArray[np.float32]:
    centres = np.repeat(unit(chance.standard_normal((topics, DIMENSIONS)).astype("f4")), each, 0)
    noise = chance.standard_normal((topics * each, DIMENSIONS)).astype(np.float32)
    return unit(centres + 0.15 * noise)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[KbIndex]:
    """Thirty topics of eight chunks each."""
    record = MemoryIndexFeed(DIMENSIONS)
    vectors = corpus(np.random.default_rng(2), 30, 8)
    ids = [record.add(f"text {number}")[0] for number in range(len(vectors))]
    record.embed(dict(zip(ids, vectors, strict=True)))
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=RetrievalSettings(),
        fingerprint=lambda: "mark",
    )  # fmt: skip
    yield index
    index.close()


def calibrated(index: KbIndex) -> tuple[VectorView, SpreadCalibration]:
    snapshot = index.snapshot()
    found = calibrate_spread(
        snapshot.vectors, lambda vector, limit: snapshot.search_vectors(vector, limit, ())[0]
    )
    assert found is not None
    return snapshot.vectors, found


def test_hits_of_two_topics_stand_out_among_a_corpuss_neighbourhoods(index: KbIndex) -> None:
    view, calibration = calibrated(index)
    ids = sorted(view.background_rows[0].tolist())
    one_topic, two_topics = ids[:5], [*ids[:3], *ids[16:18]]
    alike, apart = hit_spread(view, one_topic), hit_spread(view, two_topics)
    assert alike is not None and apart is not None
    assert alike <= calibration.at(99.5) < apart


def test_only_the_first_five_count_and_each_needs_a_vector(index: KbIndex) -> None:
    view, _ = calibrated(index)
    ids = sorted(view.background_rows[0].tolist())
    assert hit_spread(view, ids[:5]) == hit_spread(view, ids)
    assert hit_spread(view, [10**9, *ids[:4]]) is None
    assert hit_spread(view, [10**9]) is None
    assert hit_spread(view, []) is None


def test_a_calibration_holds_for_one_embedder_and_size(index: KbIndex) -> None:
    view, calibration = calibrated(index)
    assert calibration.holds(view)
    assert calibrated(index)[1] == calibration
    assert list(calibration.spreads) == sorted(calibration.spreads)
    other = SpreadCalibration("other", view.rows, (0.0, 100.0), (0.0, 1.0))
    small = SpreadCalibration("mark", view.rows // 3, (0.0, 100.0), (0.0, 1.0))
    assert not other.holds(view) and not small.holds(view)
    assert other.at(50.0) == 0.5


def test_a_small_corpus_has_no_normal(tmp_path: Path) -> None:
    record = MemoryIndexFeed(DIMENSIONS)
    vectors = corpus(np.random.default_rng(4), 1, LEAST_CHUNKS - 1)
    record.embed({record.add("text")[0]: vector for vector in vectors})
    index = KbIndex.open(tmp_path, "kb", record, writable=True, fingerprint=lambda: "mark")
    view = index.snapshot().vectors
    assert calibrate_spread(view, lambda vector, limit: np.empty(0, np.int64)) is None
    index.close()
