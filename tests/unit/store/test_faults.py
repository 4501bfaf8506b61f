"""Full disks, read-only folders, damaged and foreign files: one sentence, and the last commit."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from forebay.kernel.errors import ForebayError, InvalidRequest, StoreBusy, StoreError, StoreFull
from forebay.store import StoreReader, StoreSettings, StoreWriter
from forebay.store.database import record_path
from forebay.store.faults import of_sqlite
from forebay.testing.feed_suite import draft_of, unit_vectors


def fill(store: StoreWriter, error: type[ForebayError]) -> int:
    """Commit until refused; return how many documents were accepted."""
    for number in range(10_000):
        try:
            store.commit("kb", [draft_of(f"d{number}", f"{number} " + os.urandom(5000).hex())], [])
        except error:
            return number
    raise AssertionError("the disk never filled up")


def check_goes_on(store: StoreWriter, accepted: int) -> None:
    reader = store.reader
    assert reader.kb("kb").documents == accepted == reader.version("kb")
    assert reader.check() == ()
    assert len(reader.rows("kb", reader.changes("kb", 0).added)) == accepted
    version = store.commit("kb", [], ["d0"]).version
    assert version == accepted + 1
    assert reader.check() == ()


def test_a_record_at_its_bound_refuses_and_goes_on(tmp_path: Path) -> None:
    with closing(StoreWriter(tmp_path, StoreSettings(max_bytes=1 << 20))) as store:
        accepted = fill(store, StoreFull)
        assert accepted > 10
        check_goes_on(store, accepted)
        store.maintain()
        assert store.commit("kb", [draft_of("small", "x")], []).version == accepted + 2
    with closing(StoreWriter(tmp_path)) as reopened:
        assert reopened.reader.version("kb") == accepted + 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_and_goes_on(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (2 << 20))
    settings = StoreSettings(wal_checkpoint_bytes=1 << 20)
    with closing(StoreWriter(small_disk / "store", settings)) as store:
        accepted = fill(store, StoreFull)
        assert accepted > 10
        assert store.reader.version("kb") == accepted
        assert store.reader.check() == ()
        ids = store.reader.changes("kb", 0).added
        with pytest.raises(StoreFull):  # 100 MB of vectors cannot fit
            store.store_vectors("kb", unit_vectors(ids, 20_000), "f")
        store.maintain()  # does what there is room for
        assert store.reader.check() == ()
        ballast.unlink()
        check_goes_on(store, accepted)
        for number in range(1, accepted):
            store.commit("kb", [], [f"d{number}"])
            if number % 10 == 0:
                store.maintain()
        assert store.commit("kb", [draft_of("again", "x")], []).outcomes == (("again", "indexed"),)
    with closing(StoreWriter(small_disk / "store")) as reopened:
        assert reopened.reader.check() == ()
        assert reopened.reader.kb("kb").documents == 1


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)


def test_a_disk_without_any_room_says_what_opening_needs(small_disk: Path) -> None:
    folder = small_disk / "store"
    with closing(StoreWriter(folder)) as store:
        store.commit("kb", [draft_of("a", "alpha")], [])
    ballast = small_disk / "ballast"
    fill_up(ballast)
    with pytest.raises(StoreFull, match="start again"):
        StoreWriter(folder)
    ballast.unlink()
    with closing(StoreWriter(folder)) as store:
        assert store.reader.version("kb") == 1


def test_a_full_disk_refuses_a_new_store_and_a_backup(small_disk: Path, tmp_path: Path) -> None:
    with closing(StoreWriter(tmp_path / "store")) as store:
        store.commit("kb", [draft_of("a", os.urandom(4 << 20).hex())], [])
        with pytest.raises(StoreFull):
            store.reader.export_kb("kb", small_disk / "kb.zip")
    assert list(small_disk.iterdir()) == []
    fill_up(small_disk / "filler")
    with pytest.raises(StoreFull):
        StoreWriter(small_disk / "store")


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="folder cannot be used"):
        StoreWriter(tmp_path / "file")


@pytest.mark.parametrize(
    "content", [b"not a database " * 400, b"SQLite format 3\0" + b"\xff" * 9000]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    record_path(tmp_path).write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        StoreWriter(tmp_path)
    with pytest.raises(StoreError, match="damaged"):
        StoreReader(tmp_path)
    assert record_path(tmp_path).read_bytes() == content


def told(reader: StoreReader) -> bool:
    try:
        return reader.check() != ()
    except StoreError as error:
        return "damaged" in error.message


def test_damage_is_found_and_told(tmp_path: Path) -> None:
    with closing(StoreWriter(tmp_path)) as store:
        store.commit("kb", [draft_of(f"d{n}", "x" * 3000) for n in range(200)], [])
    data = bytearray(record_path(tmp_path).read_bytes())
    for at in range(40 * 4096, 60 * 4096):
        data[at] = 0xA5
    record_path(tmp_path).write_bytes(data)
    with closing(StoreReader(tmp_path)) as reader:
        assert told(reader)


def broken_rule(store: StoreWriter, statement: str) -> tuple[str, ...]:
    with store.transaction() as connection:
        connection.execute(statement)
    return store.reader.check()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE kb SET version = 1", "newer than its kb"),
        ("DELETE FROM document WHERE name = 'a'", "belongs to no document"),
        ("DELETE FROM document_text", "has no text"),
        ("DELETE FROM chunk WHERE id = 1", "lacks chunks"),
        ("UPDATE meta SET value = 2 WHERE key = 'next_chunk'", "beyond the sequence"),
        ("DELETE FROM pending", "neither embedded nor pending"),
        ("UPDATE embedding SET chunk = 99", "belongs to no chunk"),
        ("UPDATE kb SET chunks = chunks + 1", "counters"),
        ("UPDATE tombstone SET version = 99", "removal is newer"),
    ],
)
def test_each_broken_rule_is_found(store: StoreWriter, statement: str, said: str) -> None:
    store.commit("kb", [draft_of("a", "one", "two"), draft_of("b", "x"), draft_of("c", "y")], [])
    store.store_vectors("kb", unit_vectors([1]), "f")
    store.commit("kb", [draft_of("b", "z")], ["c"])
    assert store.reader.check() == ()
    assert any(said in problem for problem in broken_rule(store, statement))


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (sqlite3.SQLITE_FULL, StoreFull, "full"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull, "full"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy, "locked"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreError, "read-only"),
        (sqlite3.SQLITE_CORRUPT_VTAB, StoreError, "damaged"),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, StoreError, "opened"),
        (sqlite3.SQLITE_IOERR_READ, StoreError, "disk reported"),
        (sqlite3.SQLITE_TOOBIG, InvalidRequest, "too large"),
        (sqlite3.SQLITE_MISUSE, StoreError, "could not do"),
    ],
)
def test_every_code_has_its_sentence(code: int, kind: type[ForebayError], word: str) -> None:
    error = sqlite3.OperationalError("/secret/path is locked")
    error.sqlite_errorcode = code
    translated = of_sqlite(error)
    assert type(translated) is kind
    assert word in translated.message
    assert "secret" not in translated.message


def break_connection(store: StoreWriter) -> None:
    store._connection.close()


@pytest.mark.parametrize("breaking", [break_connection])
def test_a_connection_that_broke_is_opened_again(
    store: StoreWriter, breaking: Callable[[StoreWriter], None]
) -> None:
    store.commit("kb", [draft_of("a", "x")], [])

    def half_a_change() -> None:
        with store.transaction() as connection:
            connection.execute("DELETE FROM chunk")
            breaking(store)
            connection.execute("DELETE FROM document")

    with pytest.raises(StoreError):
        half_a_change()
    assert store.commit("kb", [draft_of("b", "x")], []).version == 2
    assert store.reader.check() == ()
