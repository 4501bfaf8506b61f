"""Files that go bad while they are in use, disks without room, and what writing costs at rest."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from forebay.app.indexes import IndexSet
from forebay.kernel.errors import StoreFull
from forebay.retrieval import KbIndex
from forebay.retrieval.engine import IndexDamaged, write_error
from forebay.retrieval.keys import filter_keys
from forebay.retrieval.lexical import LexicalIndex
from forebay.testing.index_feed import MemoryIndexFeed


def found(index: KbIndex, text: str) -> list[int]:
    view = index.snapshot().lexical
    ids: list[int] = view.search(view.parse(text), (), 10).ids.tolist()
    return ids


def spoil(folder: Path, fill: bytes = b"\xff") -> None:
    """Overwrite the index's files in place: truncating what is mapped would end the process."""
    for path in folder.glob("lexical-*/*.*"):
        if path.suffix not in (".json", ".lock"):
            with path.open("r+b") as file:
                file.write(fill * path.stat().st_size)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def healed(index: KbIndex, text: str, expected: int) -> bool:
    try:
        return expected in found(index, text)
    except IndexDamaged:
        return False


def test_words_damaged_in_use_are_unavailable_and_then_whole_again(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add(*[f"alpha {i}" for i in range(50)])
    [wanted] = record.add("词语 beta")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    index.rest()
    spoil(tmp_path)
    with pytest.raises(IndexDamaged, match="rebuilt"):
        found(index, "beta")
    until(lambda: healed(index, "词语", wanted))
    assert len(list(tmp_path.glob("lexical-*"))) == 1
    index.close()


@pytest.mark.parametrize("fill", [b"\xff", b"\0"])
@pytest.mark.parametrize("asked", ["词语", "beta", "never seen", "beta never", "alpha"])
def test_damage_after_the_first_query_is_noticed_by_whatever_is_asked_next(
    tmp_path: Path, asked: str, fill: bytes
) -> None:
    record = MemoryIndexFeed()
    record.add(*[f"alpha {i}" for i in range(50)])
    [wanted] = record.add("词语 beta")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    index.rest()
    assert found(index, "词语 beta") == [wanted]
    spoil(tmp_path, fill)
    with pytest.raises(IndexDamaged, match="rebuilt"):
        found(index, asked)
    for text in ("词语", "beta"):
        until(lambda text=text: healed(index, text, wanted))  # type: ignore[misc]
    index.close()


def test_damage_of_one_segment_is_noticed_though_others_answer(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add(*[f"alpha {i}" for i in range(50)])
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    older = set(tmp_path.glob("lexical-*/*.term"))
    [wanted] = record.add("alpha beta")
    index.refresh()
    index.maintain()
    index.rest()
    assert index.snapshot().lexical.segments == 2
    assert found(index, "beta") == [wanted]
    [path] = older
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    with pytest.raises(IndexDamaged):
        found(index, "beta")
    until(lambda: healed(index, "beta", wanted))
    index.close()


def test_rights_are_not_read_from_damaged_files(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    ids = record.add(*[f"alpha {i}" for i in range(50)])
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    index.rest()
    view, demands = index.snapshot().lexical, filter_keys({}, frozenset())
    assert view.allowed_among(demands, np.array(ids[:2])).tolist()[:2] == ids[:2]
    spoil(tmp_path)
    with pytest.raises(IndexDamaged):
        view.allowed_among(demands, np.array(ids[2:4]))
    index.close()


def test_an_index_without_files_is_not_damaged(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, "beta") == found(index, "词语") == []
    [only] = record.add("词语 beta")
    index.refresh()
    assert found(index, "beta") == found(index, "词语") == [only]
    assert found(index, "never seen") == []
    index.maintain()
    record.remove(only)
    index.refresh()
    assert found(index, "beta") == []
    index.maintain()
    assert found(index, "beta") == found(index, "词语") == []
    assert [path.name for path in tmp_path.glob("lexical-*")] == ["lexical-000000"]
    index.close()


def test_a_change_heals_damaged_words_before_it_is_acknowledged(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add(*[f"alpha {i}" for i in range(50)])
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    index.rest()
    spoil(tmp_path)
    [new] = record.add("beta")
    assert index.refresh() == 2
    assert found(index, "beta") == [new]
    assert index.snapshot().lexical.chunks == 51
    index.close()


def test_a_reader_tells_the_writer_of_damage_and_follows(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add(*[f"alpha {i}" for i in range(50)])
    [wanted] = record.add("beta")
    writer = KbIndex.open(tmp_path, "kb", record, writable=True)
    reader = KbIndex.open(tmp_path, "kb", record, writable=False)
    writer.rest()
    spoil(tmp_path)
    with pytest.raises(IndexDamaged):
        found(reader, "beta")
    until((tmp_path / "damaged").exists)
    writer.maintain()
    until(lambda: healed(reader, "beta", wanted))
    assert found(writer, "beta") == [wanted]
    assert reader.snapshot().version == writer.snapshot().version == 2
    reader.close()
    writer.close()


def test_lost_vector_segments_are_read_from_the_record(tmp_path: Path) -> None:
    record = MemoryIndexFeed(8)
    ids = record.add(*[f"alpha {i}" for i in range(8)])
    record.embed(dict(zip(ids, np.eye(8, dtype=np.float32), strict=True)))
    index = KbIndex.open(tmp_path, "kb", record, writable=True, fingerprint=lambda: "e")
    assert index.maintain(force=True)
    for path in tmp_path.glob("segment-*"):
        path.unlink()
    assert index.maintain(force=True)
    assert index.statistics()["vector_segments"] == 1
    assert len(list(tmp_path.glob("segment-*.faiss"))) == 1
    best, _ = index.snapshot().search_vectors(np.eye(8, dtype=np.float32)[3:4], 1, ())
    assert best.tolist() == [ids[3]]
    index.close()


@pytest.mark.parametrize(
    "words",
    [
        "An IO error occurred: 'No space left on device (os error 28)'",
        'IoError { io_error: Os { code: 28, kind: StorageFull, message: "No space" } }',
        "Disk quota exceeded (os error 122)",
    ],
)
def test_an_engine_without_room_is_a_full_store(words: str) -> None:
    assert isinstance(write_error(ValueError(words), "kb"), StoreFull)
    assert write_error(ValueError("Unsupported dictionary type"), "kb") is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_an_index_without_room_keeps_what_it_has_and_catches_up(small_disk: Path) -> None:
    record = MemoryIndexFeed()
    [first] = record.add("alpha one")
    index = KbIndex.open(small_disk / "kb", "kb", record, writable=True)
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    record.add(*[os.urandom(3000).hex() for _ in range(200)])
    for _ in range(2):
        with pytest.raises(StoreFull, match="free some space"):
            index.refresh()
        assert found(index, "alpha") == [first]
    assert [path.name for path in (small_disk / "kb").glob("lexical-*")] == ["lexical-000000"]
    ballast.unlink()
    index.refresh()
    assert index.snapshot().lexical.chunks == 201
    index.close()


class Full:
    """A disk without room, until it is cleared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts, self.cleared, write = 0, False, LexicalIndex._write

        def failing(index: LexicalIndex, *words: Any) -> Any:
            self.attempts += 1
            if not self.cleared:
                raise ValueError("An IO error occurred: 'No space left on device (os error 28)'")
            return write(index, *words)

        monkeypatch.setattr(LexicalIndex, "_write", failing)


def test_words_that_could_not_be_folded_are_tried_again_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = MemoryIndexFeed()
    record.add("alpha one")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    [second] = record.add("beta two")
    index.refresh()
    disk, tried = Full(monkeypatch), []
    for number in range(40):
        before = disk.attempts
        with suppress(StoreFull):
            index.maintain()
        tried += [number] * (disk.attempts - before)
        assert found(index, "beta") == [second]
    assert tried == [0, 2, 6, 14, 30], "each time it is left alone for longer"
    disk.cleared = True
    for _ in range(15):
        index.maintain()
    assert disk.attempts == 6 and index.oldest_needed == index.snapshot().version == 2
    assert found(index, "beta") == [second]
    index.close()


def test_an_index_that_fails_its_upkeep_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records = {name: MemoryIndexFeed() for name in ("a", "b")}
    indexes = IndexSet(lambda kb: KbIndex.open(tmp_path / kb, kb, records[kb], writable=True))
    for name, record in records.items():
        record.add("alpha")
        indexes.refresh(name)
        record.add("beta")
        indexes.refresh(name)
    disk = Full(monkeypatch)
    indexes.maintain()
    assert disk.attempts == 2
    assert [one.getMessage()[:16] for one in caplog.records] == [
        "maintenance of a",
        "maintenance of b",
    ]
    indexes.close()


@pytest.mark.skipif(os.name != "posix", reason="threads are counted by the system")
def test_many_indexes_share_a_few_writers(tmp_path: Path) -> None:
    records = {f"kb{i}": MemoryIndexFeed() for i in range(24)}
    for record in records.values():
        record.add("alpha")
    indexes = IndexSet(lambda kb: KbIndex.open(tmp_path / kb, kb, records[kb], writable=True))
    before = psutil.Process().num_threads()
    for kb in records:
        indexes.refresh(kb)
    # One thread an index watches its folder; a writer has six more.
    assert psutil.Process().num_threads() - before <= len(records) + 8 * 6 + 6
    indexes.maintain()
    indexes.maintain()
    until(lambda: psutil.Process().num_threads() - before <= len(records) + 6)
    [new] = records["kb0"].add("beta")
    indexes.refresh("kb0")
    assert found(indexes.get("kb0"), "beta") == [new]
    indexes.close()
    until(lambda: psutil.Process().num_threads() - before <= 6)
    assert not [t for t in threading.enumerate() if t.name == "index-heal"]
