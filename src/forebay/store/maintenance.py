"""Background upkeep of the record: it changes no answer and no version."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from typing import Protocol

import msgspec

from forebay.store.faults import translated

_PRUNE_ROWS = 5_000
_VACUUM_PAGES = 1_024
_FREE_SHARE = 8  # so much of the file may be free pages, which new documents take up again


class MaintenanceReport(msgspec.Struct, frozen=True):
    """What upkeep did. ``log_emptied`` False means a reader still needed the write-ahead log."""

    tombstones_pruned: int
    pages_freed: int
    log_emptied: bool


class Transactions(Protocol):
    """Where write transactions of the record come from."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """One write transaction."""
        ...

    def outside_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """The writing connection, for statements that cannot run inside a transaction."""
        ...

    def open_second(self) -> sqlite3.Connection:
        """Another writing connection."""
        ...


def maintain(store: Transactions, oldest_needed: Mapping[str, int]) -> MaintenanceReport:
    """Prune the change log, give free pages back to the file system, empty the WAL."""
    pruned = sum(_prune(store, kb, version) for kb, version in oldest_needed.items())
    freed = _vacuum(store)
    return MaintenanceReport(pruned, freed, _empty_log(store))


def _prune(store: Transactions, kb: str, version: int) -> int:
    """Forget removals up to ``version``: whoever asks from there on does not need them."""
    pruned = 0
    while True:
        with store.transaction() as connection:
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


def _vacuum(store: Transactions) -> int:
    """Give free pages back, a bounded number at a time, so that commits wait briefly only."""
    freed = 0
    while True:
        with store.outside_transaction() as connection:
            [[free]] = connection.execute("PRAGMA freelist_count")
            [[pages]] = connection.execute("PRAGMA page_count")
            if free <= max(_VACUUM_PAGES, pages // _FREE_SHARE):
                return freed
            connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
            [[left]] = connection.execute("PRAGMA freelist_count")
        if left >= free:
            return freed
        freed += free - left


def _empty_log(store: Transactions) -> bool:
    """Copy the WAL into the file and cut it to nothing: old pages in it would stay readable.

    Readers in old snapshots are not waited for; the next upkeep tries again.
    """
    with translated(), closing(store.open_second()) as second:
        # The bulk is copied beside commits; what they add meanwhile is little.
        second.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    with store.outside_transaction() as connection:
        [[timeout]] = connection.execute("PRAGMA busy_timeout")
        connection.execute("PRAGMA busy_timeout = 50")
        try:
            [[busy, _, _]] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {timeout}")
    return not busy
