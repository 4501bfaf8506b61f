"""Files of words that merging has made superfluous: let go of without waiting for a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.retrieval import KbIndex, lexical
from forebay.retrieval.checksums import committed_segments
from forebay.testing.index_feed import MemoryIndexFeed

STRAY = "0123456789abcdef0123456789abcdef.store"


def merged(path: Path, record: MemoryIndexFeed) -> tuple[KbIndex, Path]:
    """An index of eight batches, which the engine merges into one after the last."""
    index = KbIndex.open(path, "kb", record, writable=True)
    for batch in range(8):
        record.add(*[f"批次 batch{batch} alpha {i}" for i in range(200)])
        index.refresh()
    index.rest()
    return index, path / "lexical-000000"


def plant(folder: Path, *, managed: bool) -> Path:
    """A file as a merge leaves it that was cut off; the engine knows those that it manages."""
    stray = folder / STRAY
    stray.write_bytes(b"half a merge")
    if managed:
        register = folder / ".managed.json"
        register.write_text(json.dumps([*json.loads(register.read_text()), STRAY]))
    return stray


def comes_back(index: KbIndex) -> bool:
    """Whether upkeep sees something to remove."""
    return index._lexical._cluttered(index._lexical.committed())


def found(index: KbIndex, text: str) -> list[int]:
    view = index.snapshot().lexical
    ids: list[int] = view.search(view.parse(text), (), 2000).ids.tolist()
    return sorted(ids)


def test_searches_go_over_to_the_merged_segment_and_let_go_of_the_old_files(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    index, folder = merged(tmp_path, record)
    before = index.snapshot().lexical
    third = found(index, "批次 batch3")
    assert before.base.segments > len(committed_segments(folder)) == 1
    for _ in range(2):
        index.maintain()
    assert index.snapshot().lexical.base.segments == 1
    assert found(index, "批次 batch3") == third
    # A search that began before ends on what it began with.
    assert len(before.search(before.parse("alpha"), (), 2000).ids) == 1600
    [new] = record.add("capstan")
    index.refresh()
    assert found(index, "capstan") == [new]
    index.close()


def test_what_a_cut_off_merge_left_is_removed_without_a_change(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    index, folder = merged(tmp_path, record)
    index.close()
    stray = plant(folder, managed=True)
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    for _ in range(2):
        index.maintain()
    assert not stray.exists()
    assert len(found(index, "alpha")) == 1600
    index.close()


def test_a_round_of_upkeep_reads_once_which_segments_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, folder = merged(tmp_path, MemoryIndexFeed())
    for _ in range(2):
        index.maintain()
    read: list[Path] = []

    def counted(path: Path) -> frozenset[str]:
        read.append(path)
        return committed_segments(path)

    monkeypatch.setattr(lexical, "committed_segments", counted)
    index.maintain()
    assert read == [folder]
    index.close()


def test_a_file_of_another_hand_stays_and_does_no_harm(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    index, folder = merged(tmp_path, record)
    stray = plant(folder, managed=False)
    assert comes_back(index)
    for _ in range(2):
        index.maintain()
    assert stray.exists()
    assert not comes_back(index)
    assert len(found(index, "alpha")) == 1600
    index.close()
