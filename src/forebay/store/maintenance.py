"""Background upkeep of the record: it changes no answer and no version."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from typing import Protocol

import msgspec

from forebay.kernel.errors import StoreFull
from forebay.store.changes import note_removal
from forebay.store.chunk_keys import forget_retired
from forebay.store.faults import translated
from forebay.store.settings import StoreSettings

log = logging.getLogger("forebay.store")

_PRUNE_ROWS = 5_000
_PURGE_DOCUMENTS = 64
_TRUNCATE_WAIT_MS = 50


class MaintenanceReport(msgspec.Struct, frozen=True):
    """What upkeep did. ``log_emptied`` False means a reader still needed the write-ahead log."""

    removals_pruned: int
    rewritten: bool
    log_emptied: bool


class Transactions(Protocol):
    """Where write access to the record comes from."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """One write transaction."""
        ...

    def outside_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """The writing connection, for statements that cannot run inside a transaction."""
        ...

    def open_second(self) -> sqlite3.Connection:
        """Another writing connection."""
        ...


class Upkeep:
    """One round of upkeep at the wall-clock time ``now``."""

    def __init__(self, store: Transactions, settings: StoreSettings, now: float) -> None:
        self._store = store
        self._settings = settings
        self._now = now

    def run(self, oldest_needed: Mapping[str, int], *, rewrite: bool) -> MaintenanceReport:
        """Finish drops, prune the change log, rewrite the file when due, empty the WAL."""
        purge_dropped(self._store, self._now)
        self._forget_keys()
        pruned = sum(self._prune(kb, version) for kb, version in oldest_needed.items())
        rewritten = self._rewrite(forced=rewrite)
        return MaintenanceReport(pruned, rewritten, self._empty_log())

    def _forget_keys(self) -> None:
        """Forget retired keys whose time is over, with the old texts."""
        before, most = self._now - self._settings.retired_keys_s, self._settings.retired_keys_max
        forgotten = _PRUNE_ROWS
        while forgotten >= _PRUNE_ROWS:
            with self._store.transaction() as connection:
                forgotten = forget_retired(connection, before, most, _PRUNE_ROWS)
                if forgotten:
                    note_removal(connection, self._now)

    def _prune(self, kb: str, version: int) -> int:
        """Forget removals up to ``version``: whoever asks from there on does not need them."""
        pruned = 0
        while True:
            with self._store.transaction() as connection:
                # The floor rises first: nobody may read a log that is half gone.
                connection.execute(
                    "UPDATE kb SET log_floor = min(version, max(log_floor, ?)) WHERE name = ?",
                    (version, kb),
                )
                cursor = connection.execute(
                    "DELETE FROM tombstone WHERE (kb, version, first_chunk) IN (SELECT t.kb, "
                    "t.version, t.first_chunk FROM tombstone t JOIN kb ON kb.id = t.kb "
                    "WHERE kb.name = ? AND t.version <= kb.log_floor LIMIT ?)",
                    (kb, _PRUNE_ROWS),
                )
            pruned += cursor.rowcount
            if cursor.rowcount < _PRUNE_ROWS:
                return pruned

    def _rewrite(self, *, forced: bool) -> bool:
        """Write the file anew where removals may have left traces.

        ``secure_delete`` overwrites deleted rows where they are. But when SQLite balances its
        pages it copies living rows to other pages without overwriting the old place; such a
        copy outlives the row's later deletion. Only ``VACUUM`` removes it.
        """
        with self._store.outside_transaction() as connection:
            if not self._rewrite_due(connection, forced=forced):
                return False
            try:
                connection.execute("VACUUM")
                connection.execute("UPDATE meta SET value = 0 WHERE key = 'removals'")
            except sqlite3.Error as error:
                # It needs room for a second copy; without that it stays due.
                log.warning("the record was not rewritten: %s", error)
                return False
        return True

    def _rewrite_due(self, connection: sqlite3.Connection, *, forced: bool) -> bool:
        [[since]] = connection.execute("SELECT value FROM meta WHERE key = 'removals'")
        [[free]] = connection.execute("PRAGMA freelist_count")
        [[pages]] = connection.execute("PRAGMA page_count")
        [[page_bytes]] = connection.execute("PRAGMA page_size")
        if not since:
            return False
        return (
            forced
            or pages * page_bytes <= self._settings.rewrite_always_bytes
            or free * 2 >= pages
            or self._now - since >= self._settings.rewrite_after_s
        )

    def _empty_log(self) -> bool:
        """Copy the WAL into the file and cut it to nothing: old pages in it would stay readable.

        Readers in old snapshots are not waited for; the next upkeep tries again.
        """
        try:
            return self._checkpoint()
        except StoreFull as error:  # it stays readable, and the next upkeep tries again
            log.warning("the write-ahead log could not be emptied: %s", error.message)
            return False

    def _checkpoint(self) -> bool:
        with translated(), closing(self._store.open_second()) as second:
            # The bulk is copied beside commits; what they add meanwhile is little.
            second.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        with self._store.outside_transaction() as connection:
            [[timeout]] = connection.execute("PRAGMA busy_timeout")
            connection.execute(f"PRAGMA busy_timeout = {_TRUNCATE_WAIT_MS}")
            try:
                [[busy, _, _]] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.execute(f"PRAGMA busy_timeout = {timeout}")
        return not busy


def purge_dropped(store: Transactions, now: float) -> None:
    """Remove what dropped kbs held, some documents a transaction, so that commits get between."""
    while True:
        with store.transaction() as connection:
            row = connection.execute("SELECT id FROM kb WHERE name IS NULL LIMIT 1").fetchone()
            if row is None:
                return
            if not _purge_some(connection, row[0]):
                connection.execute("DELETE FROM tombstone WHERE kb = ?", row)
                connection.execute("DELETE FROM kb WHERE id = ?", row)
            note_removal(connection, now)


def _purge_some(connection: sqlite3.Connection, kb: int) -> bool:
    """Remove some of what a kb held; whether there was anything. Old texts go first."""
    retired = connection.execute(
        "DELETE FROM retired_key WHERE id IN (SELECT id FROM retired_key WHERE kb = ? LIMIT ?)",
        (kb, _PRUNE_ROWS),
    )
    if retired.rowcount:
        return True
    documents = connection.execute(
        "SELECT id, first_chunk, first_chunk + chunks - 1 FROM document WHERE kb = ? LIMIT ?",
        (kb, _PURGE_DOCUMENTS),
    ).fetchall()
    spans = [(first, last) for _, first, last in documents]
    for table in ("embedding", "sentence"):
        connection.executemany(f"DELETE FROM {table} WHERE chunk BETWEEN ? AND ?", spans)
    connection.executemany(
        "DELETE FROM pending WHERE kb = ? AND chunk BETWEEN ? AND ?",
        [(kb, *span) for span in spans],
    )
    connection.executemany("DELETE FROM kept_key WHERE chunk BETWEEN ? AND ?", spans)
    connection.executemany("DELETE FROM chunk WHERE id BETWEEN ? AND ?", spans)
    ids = [(document,) for document, _, _ in documents]
    connection.executemany("DELETE FROM document_text WHERE document = ?", ids)
    connection.executemany("DELETE FROM document WHERE id = ?", ids)
    return bool(documents)
