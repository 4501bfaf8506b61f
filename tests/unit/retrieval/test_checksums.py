"""Checksums of the word index's files, and who looks at them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.retrieval import KbIndex, checksums
from forebay.retrieval.checksums import Checksums, committed_segments
from forebay.testing.index_feed import MemoryIndexFeed
from tests.unit.retrieval.test_damage import found, spoil, until


@pytest.fixture
def record() -> MemoryIndexFeed:
    record = MemoryIndexFeed()
    record.add(*[f"alpha 词语 {i}" for i in range(50)])
    return record


def damaged(folder: Path, checks: Checksums | None = None) -> Path | None:
    return (checks or Checksums()).damaged(folder, committed_segments(folder))


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("suffix", ["term", "idx", "fast", "fieldnorm", "store"])
def test_one_wrong_bit_of_a_file_is_seen(
    tmp_path: Path, record: MemoryIndexFeed, suffix: str
) -> None:
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    [folder], checks = tmp_path.glob("lexical-*"), Checksums()
    assert damaged(folder, checks) is None
    [path] = folder.glob(f"*.{suffix}")
    flip(path)
    assert damaged(folder, checks) == path
    assert damaged(folder) == path
    index.close()


def test_deletions_merges_and_touched_files_are_no_damage(
    tmp_path: Path, record: MemoryIndexFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    for number in range(12):
        added = record.add(f"beta {number}")
        record.remove(added[0] - 20)
        index.refresh()
        index.maintain()
    index.rest()
    [folder], checks = tmp_path.glob("lexical-*"), Checksums()
    assert folder.name == "lexical-000000" and damaged(folder, checks) is None
    read: list[Path] = []

    def whole(path: Path) -> bool:
        read.append(path)
        return True

    monkeypatch.setattr(checksums, "intact", whole)
    assert damaged(folder, checks) is None and not read
    path = next(folder.glob("*.term"))
    os.utime(path, ns=(1, 1))
    assert damaged(folder, checks) is None and read == [path]
    assert damaged(tmp_path / "absent") is None
    index.close()


def test_maintenance_heals_what_nobody_asked_for(tmp_path: Path, record: MemoryIndexFeed) -> None:
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    index.maintain()
    index.rest()
    before = found(index, "词语 7")
    spoil(tmp_path)
    index.maintain()
    until(lambda: [path.name for path in tmp_path.glob("lexical-*")] == ["lexical-000001"])
    until(lambda: not index._damage.is_set())
    assert found(index, "词语 7") == before
    index.close()
