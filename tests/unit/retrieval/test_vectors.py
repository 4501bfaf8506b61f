"""Vectors: what exact search finds is found, through commits, folds, merges and restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.kernel.errors import StoreError
from forebay.retrieval import KbIndex, RetrievalSettings, VectorSettings
from forebay.retrieval.keys import filter_keys
from forebay.retrieval.segment_build import BuildJob, build
from forebay.retrieval.segments import open_segment
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 16
EXACT = RetrievalSettings(
    vector=VectorSettings(kind="exact", exact_rows_max=1, fold_rows=16, tier_ratio=2)
)
GRAPH = RetrievalSettings(
    vector=VectorSettings(exact_rows_max=64, fold_rows=32, tier_ratio=3, inline_build_rows=10**6)
)
GROUPS: tuple[tuple[str, ...], ...] = ((), ("hr",), ("it",), ("hr", "it"))


def unit(chance: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
    vectors = chance.standard_normal((rows, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def exact(
    record: MemoryIndexFeed,
    query: npt.NDArray[np.float32],
    limit: int,
    groups: frozenset[str] | None = None,
) -> list[int]:
    """What comparing with every vector that may be seen finds."""
    ids = [
        i
        for i in sorted(record.stored)
        if groups is None or not record.live[i].groups or groups & set(record.live[i].groups)
    ]
    if not ids:
        return []
    cosines = np.stack([record.stored[i] for i in ids]) @ query[0]
    return [ids[i] for i in np.argsort(-cosines, kind="stable")[:limit]]


def found(
    index: KbIndex,
    query: npt.NDArray[np.float32],
    limit: int,
    groups: frozenset[str] | None = None,
) -> list[int]:
    ids, cosines = index.snapshot().search_vectors(query, limit, filter_keys({}, groups))
    assert (np.diff(cosines) <= 0).all()
    result: list[int] = ids.tolist()
    return result


def fill(record: MemoryIndexFeed, chance: np.random.Generator, rows: int, name: str) -> None:
    groups = GROUPS[int(chance.integers(len(GROUPS)))]
    ids = record.add(*[f"text {i}" for i in range(rows)], document=name, groups=groups)
    record.embed(dict(zip(ids, unit(chance, rows), strict=True)))


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 20)),
        st.tuples(st.just("add unembedded"), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.integers(1, 12)),
        st.tuples(st.just("embed again"), st.integers(1, 6)),
        st.tuples(st.just("maintain"), st.just(0)),
        st.tuples(st.just("fold"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=25,
)


def take(step: Step, record: MemoryIndexFeed, chance: np.random.Generator) -> None:
    """Commit one step to the record."""
    kind, count = step
    if kind == "add":
        fill(record, chance, count, f"d{record.version}")
    elif kind == "add unembedded":
        record.add(*["not yet"] * count)
    elif kind == "remove" and record.live:
        ids = chance.permutation(sorted(record.live))[:count]
        record.remove(*ids.tolist())
    elif kind == "embed again" and record.stored:
        ids = chance.permutation(sorted(record.stored))[:count]
        record.embed(dict(zip(ids.tolist(), unit(chance, len(ids)), strict=True)))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(STEPS, st.integers(0, 2**16))
def test_any_history_finds_what_exact_search_finds(steps: list[Step], seed: int) -> None:
    chance = np.random.default_rng(seed)
    record = MemoryIndexFeed(DIMENSIONS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def open_index(*, writable: bool = True) -> KbIndex:
            return KbIndex.open(
                folder, "kb", record, writable=writable, settings=EXACT, fingerprint=lambda: "e"
            )

        index = open_index()
        reader = open_index(writable=False)
        for step in steps:
            take(step, record, chance)
            index.refresh()
            if step[0] in ("maintain", "fold"):
                index.maintain(force=step[0] == "fold")
            if step[0] == "reopen":
                index.close()
                index = open_index()
            reader.refresh()
            query = unit(chance, 1)
            for groups in (None, frozenset[str](), frozenset({"hr"})):
                expected = exact(record, query, 7, groups)
                assert found(index, query, 7, groups) == expected
                assert found(reader, query, 7, groups) == expected
        index.close()
        reader.close()


def test_graph_segments_keep_their_recall_through_merges(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    record = MemoryIndexFeed(DIMENSIONS)
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=GRAPH, fingerprint=lambda: "e"
    )
    hits = wanted = 0
    kinds = set()
    for number in range(30):
        fill(record, chance, 40, f"d{number}")
        record.remove(*chance.choice(sorted(record.live), size=6, replace=False).tolist())
        index.refresh()
        index.maintain()
        kinds |= {each.segment.kind for each in index.snapshot().vectors.segments}
        for groups in (None, frozenset({"it"}), frozenset[str]()):
            query = unit(chance, 1)
            expected = exact(record, query, 10, groups)
            hits += len(set(expected) & set(found(index, query, 10, groups)))
            wanted += len(expected)
    assert {"exact", "hnsw"} <= kinds
    assert hits / wanted >= 0.99
    index.close()


def test_a_build_in_a_process_of_its_own(tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    record = MemoryIndexFeed(DIMENSIONS)
    chosen = RetrievalSettings(
        vector=VectorSettings(exact_rows_max=64, fold_rows=32, inline_build_rows=0)
    )
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=chosen, fingerprint=lambda: "e"
    )
    fill(record, chance, 200, "d")
    index.refresh()
    assert index.maintain()
    [live] = index.snapshot().vectors.segments
    assert live.segment.kind == "hnsw"
    query = unit(chance, 1)
    assert found(index, query, 5) == exact(record, query, 5)
    assert not list(tmp_path.glob("input-*"))
    index.close()


def test_a_graph_lies_in_the_order_of_its_links(tmp_path: Path) -> None:
    chance = np.random.default_rng(6)
    middles = unit(chance, 20)
    vectors = np.tile(middles, (30, 1)) + 0.02 * unit(chance, 600)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = np.arange(100, 700)
    file = build(BuildJob(str(tmp_path), "segment-1", "hnsw", GRAPH.vector), ids, vectors)
    segment = open_segment(tmp_path, file, 1)
    assert segment is not None
    rows = segment.positions(ids)
    assert sorted(rows.tolist()) == list(range(600))
    assert np.abs(segment.vectors(rows) - vectors).max() < 1e-3
    assert segment.positions(np.array([99, 700])).tolist() == [-1, -1]
    for middle in middles:
        hits, _ = segment.search(middle[None], 10, None, GRAPH.vector)
        assert len(set((hits % 20).tolist())) == 1
        # Each of its thirty neighbours lay twenty rows from the next.
        assert np.median(np.diff(np.sort(segment.positions(hits)))) < 10


def test_ivfpq_segments_are_refined_by_the_raw_vectors(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    record = MemoryIndexFeed(DIMENSIONS)
    chosen = RetrievalSettings(
        vector=VectorSettings(
            kind="ivfpq",
            exact_rows_max=64,
            ivfpq_lists=16,
            ivfpq_parts=8,
            ivfpq_nprobe=8,
            inline_build_rows=10**6,
        )
    )
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=chosen, fingerprint=lambda: "e"
    )
    for number in range(20):
        fill(record, chance, 100, f"d{number}")
    record.remove(*sorted(record.live)[:50])
    index.refresh()
    index.maintain(force=True)
    [live] = index.snapshot().vectors.segments
    assert live.segment.kind == "ivfpq"
    hits = 0
    for groups in (None, frozenset({"it"})):
        for _ in range(30):
            query = unit(chance, 1)
            hits += len(
                set(exact(record, query, 10, groups)) & set(found(index, query, 10, groups))
            )
    assert hits / 600 >= 0.9
    index.close()


@pytest.mark.parametrize("harm", ["ids.npy", "faiss", "cut", "manifest"])
def test_damaged_segments_are_read_from_the_record_again(tmp_path: Path, harm: str) -> None:
    chance = np.random.default_rng(6)
    record = MemoryIndexFeed(DIMENSIONS)
    fill(record, chance, 50, "d")

    def open_index() -> KbIndex:
        return KbIndex.open(
            tmp_path, "kb", record, writable=True, settings=EXACT, fingerprint=lambda: "e"
        )

    index = open_index()
    index.maintain(force=True)
    index.close()
    if harm == "manifest":
        (tmp_path / "vectors").write_bytes(b"{")
    for path in tmp_path.glob("segment-*"):
        if path.name.endswith(harm):
            path.unlink()
        elif harm == "cut":
            path.write_bytes(path.read_bytes()[:-10])
    index = open_index()
    query = unit(chance, 1)
    assert found(index, query, 5) == exact(record, query, 5)
    index.maintain(force=True)
    assert found(index, query, 5) == exact(record, query, 5)
    index.close()


def test_another_embedder_takes_the_place_of_the_old_vectors(tmp_path: Path) -> None:
    chance = np.random.default_rng(7)
    record = MemoryIndexFeed(DIMENSIONS)
    fill(record, chance, 40, "d")
    current: list[str | None] = ["old"]
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=EXACT, fingerprint=lambda: current[0]
    )
    index.maintain(force=True)
    assert index.snapshot().vectors.fingerprint == "old"
    current[0] = None
    index.refresh()
    assert index.snapshot().vectors.rows == 0, "while it is embedded anew no vector serves"
    record.embed(dict(zip(sorted(record.live), unit(chance, 40), strict=True)))
    current[0] = "new"
    index.refresh()
    query = unit(chance, 1)
    assert index.snapshot().vectors.fingerprint == "new"
    assert found(index, query, 5) == exact(record, query, 5)
    index.maintain(force=True)
    index.close()
    again = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=EXACT, fingerprint=lambda: "new"
    )
    assert again.statistics()["vector_segments"] == 1
    assert found(again, query, 5) == exact(record, query, 5)
    again.close()


def test_the_background_is_the_same_after_merges_and_restarts(tmp_path: Path) -> None:
    chance = np.random.default_rng(8)
    record = MemoryIndexFeed(DIMENSIONS)
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=EXACT, fingerprint=lambda: "e"
    )
    for number in range(20):
        fill(record, chance, 30, f"d{number}")
        record.remove(*chance.choice(sorted(record.live), size=5, replace=False).tolist())
        index.refresh()
        index.maintain()
    query = unit(chance, 1)
    before = index.snapshot().vectors.background(query)
    index.maintain(force=True)
    assert index.snapshot().vectors.background(query) == before
    index.close()
    again = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=EXACT, fingerprint=lambda: "e"
    )
    after = again.snapshot().vectors.background(query)
    assert after == pytest.approx(before, abs=1e-6)
    again.close()


def test_closing_ends_a_build(tmp_path: Path) -> None:
    chance = np.random.default_rng(9)
    record = MemoryIndexFeed(DIMENSIONS)
    chosen = RetrievalSettings(
        vector=VectorSettings(exact_rows_max=64, fold_rows=32, inline_build_rows=0)
    )
    index = KbIndex.open(
        tmp_path, "kb", record, writable=True, settings=chosen, fingerprint=lambda: "e"
    )
    fill(record, chance, 200, "d")
    index.refresh()
    index.close()
    with pytest.raises(StoreError):
        index.maintain()
