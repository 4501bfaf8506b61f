"""Searches beside commits, folds and merges, in threads: no error, no leak, no stale id."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import faiss
import numpy as np
import pytest

from forebay.retrieval import KbIndex, RetrievalSettings, VectorSettings
from forebay.retrieval.keys import filter_keys
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 16
SECONDS = 3.0


@pytest.mark.timeout(60)
def test_searches_race_commits_and_merges(tmp_path: Path) -> None:
    record = MemoryIndexFeed(DIMENSIONS)
    settings = RetrievalSettings(
        vector=VectorSettings(
            exact_rows_max=128, fold_rows=32, tier_ratio=2, inline_build_rows=10**6
        )
    )

    def open_index(*, writable: bool) -> KbIndex:
        return KbIndex.open(
            tmp_path, "kb", record, writable=writable, settings=settings, fingerprint=lambda: "e"
        )

    index, reader = open_index(writable=True), open_index(writable=False)
    stop = threading.Event()
    failures: list[BaseException] = []
    searched = [0]
    secret: set[int] = set()

    def guarded(work: object) -> threading.Thread:
        assert callable(work)

        def body() -> None:
            faiss.omp_set_num_threads(1)
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:  # the test reports it below
                failures.append(error)
                stop.set()

        return threading.Thread(target=body)

    chance = np.random.default_rng(0)

    def commit() -> None:
        hidden = bool(chance.integers(2))
        ids = record.add(*[f"alpha {i} beta" for i in range(8)], groups=("hr",) if hidden else ())
        if hidden:
            secret.update(ids)
        vectors = chance.standard_normal((8, DIMENSIONS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        record.embed(dict(zip(ids, vectors, strict=True)))
        if len(record.live) > 400:
            record.remove(*chance.choice(sorted(record.live), size=8, replace=False).tolist())
        index.refresh()

    def search_in(chosen: KbIndex, seed: int) -> None:
        mine = np.random.default_rng((seed, searched[0]))
        query = mine.standard_normal((1, DIMENSIONS)).astype(np.float32)
        snapshot = chosen.snapshot()
        demands = filter_keys({}, frozenset({"it"}))
        ids, _ = snapshot.search_vectors(query, 20, demands)
        again, _ = snapshot.search_vectors(query, 20, demands)
        assert ids.tolist() == again.tolist(), "a snapshot does not move"
        words = snapshot.lexical.search(snapshot.lexical.parse("alpha 3"), demands, 20)
        assert not secret & (set(ids.tolist()) | set(words.ids.tolist()))
        searched[0] += 1

    threads = [
        guarded(commit),
        guarded(index.maintain),
        guarded(reader.refresh),
        guarded(lambda: search_in(index, 1)),
        guarded(lambda: search_in(reader, 2)),
    ]
    for thread in threads:
        thread.start()
    stop.wait(SECONDS)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not failures, failures
    assert searched[0] > 50
    assert index.statistics()["vector_segments"]
    version = index.refresh()
    deadline = time.monotonic() + 10
    while reader.refresh() < version and time.monotonic() < deadline:
        pass
    assert reader.snapshot().version == version
    index.close()
    reader.close()
