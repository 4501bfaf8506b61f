"""Searches beside commits, folds and merges, in threads: no error, no leak, no stale id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest

from forebay.retrieval import KbIndex, RetrievalSettings, VectorSettings
from forebay.retrieval.keys import filter_keys
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 16
SECONDS = 3.0
SETTINGS = RetrievalSettings(
    vector=VectorSettings(exact_rows_max=128, fold_rows=32, tier_ratio=2, inline_build_rows=10**6)
)


class Race:
    """A writer and a reader index over one record, and what their threads do."""

    def __init__(self, folder: Path) -> None:
        self.record = MemoryIndexFeed(DIMENSIONS)
        self.index = self._open(folder, writable=True)
        self.reader = self._open(folder, writable=False)
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.searched = 0
        self.secret: set[int] = set()
        self._chance = np.random.default_rng(0)

    def _open(self, folder: Path, *, writable: bool) -> KbIndex:
        return KbIndex.open(
            folder, "kb", self.record, writable=writable, settings=SETTINGS,
            fingerprint=lambda: "e",
        )  # fmt: skip

    def thread(self, work: Callable[[], object]) -> threading.Thread:
        """Repeat ``work`` until the race ends; the first failure ends it."""

        def body() -> None:
            faiss.omp_set_num_threads(1)
            try:
                while not self.stop.is_set():
                    work()
            except BaseException as error:  # an engine's panic is no Exception
                self.failures.append(error)
                self.stop.set()

        return threading.Thread(target=body)

    def commit(self) -> None:
        """Add eight chunks, half the time secret ones; remove as many when there are enough."""
        hidden = bool(self._chance.integers(2))
        groups = ("hr",) if hidden else ()
        ids = self.record.add(*[f"alpha {i} beta" for i in range(8)], groups=groups)
        if hidden:
            self.secret.update(ids)
        vectors = self._chance.standard_normal((8, DIMENSIONS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.record.embed(dict(zip(ids, vectors, strict=True)))
        if len(self.record.live) > 400:
            gone = self._chance.choice(sorted(self.record.live), size=8, replace=False)
            self.record.remove(*gone.tolist())
        self.index.refresh()

    def maintain(self) -> None:
        """Merge what is due; a breath between, as commits would starve beside a busy loop."""
        self.index.maintain()
        self.stop.wait(0.005)

    def follow(self) -> None:
        """Take over what is published."""
        self.reader.refresh()
        self.stop.wait(0.002)

    def search(self, chosen: KbIndex, seed: int) -> None:
        """Search both legs as somebody without the right."""
        mine = np.random.default_rng((seed, self.searched))
        query = mine.standard_normal((1, DIMENSIONS)).astype(np.float32)
        snapshot = chosen.snapshot()
        demands = filter_keys({}, frozenset({"it"}))
        ids, _ = snapshot.search_vectors(query, 20, demands)
        again, _ = snapshot.search_vectors(query, 20, demands)
        assert ids.tolist() == again.tolist(), "a snapshot does not move"
        words = snapshot.lexical.search(snapshot.lexical.parse("alpha 3"), demands, 20)
        assert not self.secret & (set(ids.tolist()) | set(words.ids.tolist()))
        self.searched += 1
        # Threads that leave and take the interpreter lock all the time let no other one have it.
        self.stop.wait(0.001)


@pytest.mark.timeout(120)
def test_searches_race_commits_and_merges(tmp_path: Path) -> None:
    race = Race(tmp_path)
    threads = [
        race.thread(race.commit),
        race.thread(race.maintain),
        race.thread(race.follow),
        race.thread(lambda: race.search(race.index, 1)),
        race.thread(lambda: race.search(race.reader, 2)),
    ]
    for thread in threads:
        thread.start()
    race.stop.wait(SECONDS)
    race.stop.set()
    for thread in threads:
        thread.join(60)
    assert not race.failures, race.failures
    assert race.searched > 20
    assert race.index.statistics()["vector_segments"]
    version = race.index.refresh()
    deadline = time.monotonic() + 10
    while race.reader.refresh() < version and time.monotonic() < deadline:
        pass
    assert race.reader.snapshot().version == version
    race.index.close()
    race.reader.close()


def test_a_reader_behind_the_record_answers_nothing_rather_than_failing(tmp_path: Path) -> None:
    race = Race(tmp_path)
    ids = race.record.add("alpha", "beta", groups=("hr",))
    vectors = np.eye(DIMENSIONS, dtype=np.float32)[:2]
    race.record.embed(dict(zip(ids, vectors, strict=True)))
    race.reader.refresh()
    snapshot = race.reader.snapshot()
    for groups in (frozenset({"hr"}), frozenset[str]()):
        found, _ = snapshot.search_vectors(vectors[:1], 5, filter_keys({}, groups))
        assert not len(found)
    race.index.refresh()
    race.reader.refresh()
    demands = filter_keys({}, frozenset({"hr"}))
    found, _ = race.reader.snapshot().search_vectors(vectors[:1], 5, demands)
    assert set(found.tolist()) == set(ids), "what was unknown is not remembered as forbidden"
    race.index.close()
    race.reader.close()
