"""Changes in memory: whatever is folded, restarted or read elsewhere, no score tells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from forebay.retrieval import KbIndex, RetrievalSettings, lexical
from forebay.retrieval.keys import filter_keys
from forebay.retrieval.lexical import LexicalIndex
from forebay.retrieval.terms import Analyzer
from forebay.testing.index_feed import MemoryIndexFeed
from tests.unit.retrieval.bm25 import brute_force

WORDS = "alpha beta gamma delta 北京 大学 退货 running runs".split()
QUERIES = ("alpha", "beta 北京大学 runs unknown", "退货 the")
SETTINGS = RetrievalSettings().lexical


class Setup:
    """A record, and its words as a writer and a reader process see them."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.record = MemoryIndexFeed()
        self.chance = np.random.default_rng(seed)
        self.writer = self.open(writable=True)
        self.writer.apply(self.record, "kb")
        self.reader = self.open(writable=False)

    def open(self, *, writable: bool) -> LexicalIndex:
        analyzer = Analyzer(stemming=SETTINGS.stemming)
        return LexicalIndex(self.folder, SETTINGS, analyzer, writable=writable)

    def add(self, count: int) -> list[int]:
        """Commit chunks of one document, every third time for a group."""
        groups = ("hr",) if self.chance.integers(3) == 0 else ()
        texts = [
            " ".join(self.chance.choice(WORDS, size=self.chance.integers(1, 20)))
            for _ in range(count)
        ]
        return self.record.add(*texts, groups=groups)

    def remove(self, count: int) -> None:
        """Commit the removal of some chunks, old and new."""
        if len(self.record.live) > count + 3:
            gone = self.chance.choice(sorted(self.record.live), size=count, replace=False)
            self.record.remove(*gone.tolist())

    def fold(self) -> None:
        """Put what is in memory into the files."""
        fold = self.writer.begin_fold()
        if fold is not None:
            self.writer.end_fold(fold, self.writer.write(fold))

    def restart(self) -> None:
        """End the writer and begin again."""
        self.writer.close()
        self.writer = self.open(writable=True)
        self.writer.apply(self.record, "kb")

    def check(self, index: LexicalIndex) -> None:
        """Compare every score with the formula, for all rights and for some."""
        view = index.view
        assert (index.version, view.chunks) == (self.record.version, len(self.record.live))
        demands = filter_keys({}, frozenset({"it"}))
        open_to_all = {i for i, row in self.record.live.items() if not row.groups}
        everything = np.array(sorted(self.record.live))
        assert set(view.allowed(demands).tolist()) == open_to_all
        assert set(view.allowed_among(demands, everything).tolist()) >= open_to_all
        for text in QUERIES:
            query = view.parse(text)
            expected = brute_force(self.record, text, SETTINGS)
            hits = view.search(query, (), 1000)
            # Equal chunks score the same but for the order in which their terms are summed up.
            found = zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)
            assert _rounded(found) == _rounded(expected)
            mine = view.search(query, demands, 1000).ids.tolist()
            assert mine == [i for i in hits.ids.tolist() if i in open_to_all]
            again = view.score(query, hits.ids.tolist())
            assert np.allclose(again.scores, hits.scores, atol=1e-9)


def _rounded(scored: Iterable[tuple[int, float]]) -> list[tuple[float, int]]:
    return sorted((-round(score, 9), chunk_id) for chunk_id, score in scored)


@pytest.mark.parametrize("seed", range(6))
def test_no_score_tells_where_a_chunk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(lexical, "_CHANGE_CHUNKS_MAX", 6)
    monkeypatch.setattr(lexical, "_RECENT_CHUNKS_MAX", 15)
    setup = Setup(tmp_path, seed)
    steps = ["small", "small", "small", "remove", "remove", "big", "fold", "restart", "late"]
    for _ in range(40):
        step = setup.chance.choice(steps)
        fold = setup.writer.begin_fold() if step == "late" else None
        base = None if fold is None else setup.writer.write(fold)
        if step == "remove":
            setup.remove(2)
        elif step == "fold":
            setup.fold()
        elif step == "restart":
            setup.restart()
        else:
            setup.add(8 if step == "big" else 2)
        setup.writer.apply(setup.record, "kb")
        if fold is not None and base is not None:
            setup.remove(2)
            setup.add(int(setup.chance.integers(1, 8)))
            setup.writer.apply(setup.record, "kb")
            setup.writer.end_fold(fold, base)
        setup.check(setup.writer)
        if setup.chance.integers(2):
            setup.reader.reload(setup.record, "kb")
            setup.check(setup.reader)
    setup.writer.close()


@pytest.mark.parametrize("removed", [False, True])
def test_a_writer_killed_between_the_files_and_their_sidecar_counts_nothing_twice(
    tmp_path: Path, removed: bool
) -> None:
    setup = Setup(tmp_path)
    setup.add(5)
    setup.writer.apply(setup.record, "kb")
    setup.fold()
    new = setup.add(3)
    setup.writer.apply(setup.record, "kb")
    fold = setup.writer.begin_fold()
    assert fold is not None
    setup.writer.write(fold)
    if removed:
        setup.record.remove(new[0])
    setup.reader.reload(setup.record, "kb")
    setup.restart()
    setup.check(setup.writer)
    setup.reader.reload(setup.record, "kb")
    setup.check(setup.reader)
    setup.fold()
    setup.restart()
    setup.check(setup.writer)
    setup.writer.close()


@pytest.mark.parametrize("everything", [False, True])
def test_a_reader_that_meets_an_unpublished_fold_finds_nothing_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    setup = Setup(tmp_path)
    setup.add(5)
    setup.writer.apply(setup.record, "kb")
    setup.fold()
    new = setup.add(3)
    if everything:  # and the writer dies before it publishes
        monkeypatch.setattr(lexical, "_CHANGE_CHUNKS_MAX", 1)
        monkeypatch.setattr(setup.writer, "_publish", lambda version: None)
    setup.writer.apply(setup.record, "kb")
    fold = None if everything else setup.writer.begin_fold()
    if fold is not None:
        setup.writer.write(fold)
    setup.record.remove(*new[1:])
    if fold is not None:
        setup.writer.apply(setup.record, "kb")
        reader = setup.open(writable=False)
        reader.reload(setup.record, "kb")
        setup.check(reader)
    setup.writer.close()
    setup.restart()
    setup.reader.reload(setup.record, "kb")
    setup.check(setup.reader)


def test_a_failed_fold_loses_nothing(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.add(5)
    setup.writer.apply(setup.record, "kb")
    fold = setup.writer.begin_fold()
    assert fold is not None
    setup.writer.write(fold)
    setup.writer.abandon_fold()
    setup.check(setup.writer)
    setup.remove(1)
    setup.writer.apply(setup.record, "kb")
    setup.check(setup.writer)
    setup.writer.close()


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_fold_that_comes_after_a_write_of_everything_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuilt: bool
) -> None:
    monkeypatch.setattr(lexical, "_CHANGE_CHUNKS_MAX", 4)
    setup = Setup(tmp_path)
    setup.add(5)
    setup.writer.apply(setup.record, "kb")
    new = setup.add(3)
    setup.writer.apply(setup.record, "kb")
    fold = setup.writer.begin_fold()
    assert fold is not None
    setup.record.remove(*new)
    setup.add(6)
    if rebuilt:
        setup.writer.start_over()
    setup.writer.apply(setup.record, "kb")
    setup.writer.end_fold(fold, setup.writer.write(fold))
    setup.check(setup.writer)
    setup.add(1)
    setup.writer.apply(setup.record, "kb")
    setup.fold()
    setup.check(setup.writer)
    setup.reader.reload(setup.record, "kb")
    setup.check(setup.reader)
    setup.writer.close()


def test_a_small_change_is_searchable_without_a_write_to_the_files(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add("alpha")
    writer = KbIndex.open(tmp_path, "kb", record, writable=True)
    reader = KbIndex.open(tmp_path, "kb", record, writable=False)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("lexical-*/*")}
    sidecar = (tmp_path / "applied").read_bytes()
    record.add("beta")
    assert writer.refresh() == reader.refresh() == record.version
    for index in (writer, reader):
        view = index.snapshot().lexical
        assert view.search(view.parse("beta"), (), 5).ids.tolist() == [2]
        assert index.oldest_needed == 1
    assert before == {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("lexical-*/*")}
    assert (tmp_path / "applied").read_bytes() == sidecar
    writer.maintain()
    assert writer.oldest_needed == record.version
    assert reader.refresh() == record.version
    assert reader.oldest_needed == record.version
    writer.close()
    reader.close()


def test_versions_without_words_are_published_by_upkeep(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    [only] = record.add("alpha")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    record.embed({only: np.ones(16)})
    index.refresh()
    index.maintain()
    assert index.oldest_needed == index.snapshot().version == record.version
    index.close()
