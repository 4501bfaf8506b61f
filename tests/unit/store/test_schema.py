"""Old stores are brought up to date step by step, newer ones are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forebay.kernel.documents import ChangeSet
from forebay.kernel.errors import StoreError, StoreTooNew
from forebay.store import StoreReader, StoreWriter
from forebay.store.schema import MIGRATIONS, migrate, require_current, schema_version
from forebay.testing.feed_suite import draft_of
from tests.unit.store import schema_v1


@pytest.fixture
def old(tmp_path: Path) -> Path:
    schema_v1.build(tmp_path)
    return tmp_path


@pytest.fixture
def connection(old: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(old / "record.sqlite3", isolation_level=None)) as opened:
        yield opened


def test_a_version_1_store_reads_as_it_was_written(old: Path) -> None:
    with closing(StoreWriter(old)) as store:
        assert (store.migrated_from, store.schema_version) == (1, len(MIGRATIONS))
        reader = store.reader
        assert reader.check() == ()
        info = reader.kb("handbook")
        assert (info.version, info.documents, info.chunks, info.embedded_chunks) == (3, 1, 2, 1)
        assert (info.embedder, info.created_at) == ("e5", 1764000000.5)
        assert reader.document_text("handbook", "leave.md") == schema_v1.TEXT
        assert reader.document("handbook", "leave.md").groups == ("staff",)
        assert reader.changes("handbook", 1) == ChangeSet(1, 3, (2, 3), (1,), (2,))
        rows = reader.rows("handbook", [3, 2])
        assert [row.text for row in rows] == ["年假十五天。", "Leave: 15 days."]
        assert [schema_v1.TEXT[row.start : row.end] for row in rows] == [row.text for row in rows]
        assert len(reader.vectors("handbook", [2]).data) == 8
        assert store.commit("handbook", [draft_of("new", "x")], []).version == 4
        assert reader.changes("handbook", 3).added == (4,)


def test_migrations_run_in_order_each_whole(connection: sqlite3.Connection) -> None:
    def second(target: sqlite3.Connection) -> None:
        target.execute("ALTER TABLE document ADD COLUMN note TEXT NOT NULL DEFAULT 'old'")

    def third(target: sqlite3.Connection) -> None:
        target.execute("UPDATE document SET note = note || 'er'")
        raise sqlite3.OperationalError("power went away")

    one = MIGRATIONS[:1]
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*one, second, third))
    assert schema_version(connection) == 2
    assert connection.execute("SELECT note FROM document").fetchone() == ("old",)
    assert migrate(connection, (*one, second)) == (2, 2)
    with pytest.raises(StoreError, match="start its writer once"):
        require_current(connection, 3)


def test_a_new_store_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    def killed(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("power went away")

    path = tmp_path / "record.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, (*MIGRATIONS, killed))
        assert schema_version(connection) == 0
        with pytest.raises(StoreError, match="ingest something first"):
            StoreReader(tmp_path)
        assert migrate(connection) == (0, len(MIGRATIONS))
    StoreReader(tmp_path).close()


def test_a_newer_store_is_refused_and_left_alone(old: Path) -> None:
    newer = len(MIGRATIONS) + 1
    with closing(sqlite3.connect(old / "record.sqlite3")) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (newer,))
        connection.commit()
    for opened in (StoreWriter, StoreReader):
        with pytest.raises(StoreTooNew, match="upgrade Forebay"):
            opened(old)
    with closing(sqlite3.connect(old / "record.sqlite3")) as connection:
        assert schema_version(connection) == newer
        connection.execute("UPDATE meta SET value = 1 WHERE key = 'schema_version'")
        connection.commit()
    StoreWriter(old).close()  # the refusal gave the lock back


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM meta WHERE key = 'schema_version'",
        "UPDATE meta SET value = 0 WHERE key = 'schema_version'",
        "UPDATE meta SET value = 'x' WHERE key = 'schema_version'",
    ],
)
def test_a_store_without_a_sensible_version_is_called_damaged(old: Path, damage: str) -> None:
    with closing(sqlite3.connect(old / "record.sqlite3")) as connection:
        connection.execute(damage)
        connection.commit()
    with pytest.raises(StoreError, match=r"damaged; restore the folder from a backup"):
        StoreWriter(old)
