"""Connections to the record: how they are opened, and a bounded pool of them for reading."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from threading import Lock, Semaphore
from urllib.parse import quote

from forebay.kernel.clock import Clock, SystemClock
from forebay.kernel.errors import StoreError, Unavailable
from forebay.kernel.sizing import Sizing
from forebay.store.faults import translated
from forebay.store.schema import NO_STORE, require_current
from forebay.store.settings import StoreSettings

PAGE_BYTES = 4096
IDLE_S = 300.0
RECORD_FILE = "record.sqlite3"


def record_path(folder: Path) -> Path:
    """The database file of a store folder."""
    return folder / RECORD_FILE


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,  # each connection is used by one thread at a time, under a lock
        cached_statements=256,
    )


def open_writer(folder: Path, settings: StoreSettings) -> sqlite3.Connection:
    """A connection that may write, making the file when there is none.

    In WAL mode a commit is in the log before it is acknowledged, so ``kill -9`` loses nothing
    with either value of ``synchronous``: the log is in the kernel's page cache. A power loss
    loses nothing with ``full`` (the log is synced at each commit); with ``normal`` it may undo
    the last commits as a whole, and leaves a consistent store.
    ``secure_delete`` overwrites what is deleted, so a removed text does not stay in free pages.
    """
    connection = _open(record_path(folder), "rwc")
    try:
        connection.execute(f"PRAGMA busy_timeout = {settings.busy_timeout_ms}")
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        [[mode]] = connection.execute("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreError("the store's folder does not support write-ahead logging.")
        connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA cache_size = {-(settings.writer_cache_bytes // 1024)}")
        pages = settings.wal_checkpoint_bytes // PAGE_BYTES
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        connection.execute(f"PRAGMA journal_size_limit = {settings.wal_checkpoint_bytes}")
        if settings.max_bytes:
            limit = max(1, settings.max_bytes // PAGE_BYTES)
            connection.execute(f"PRAGMA max_page_count = {limit}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(folder: Path, settings: StoreSettings) -> sqlite3.Connection:
    """A connection that only reads an existing, current store."""
    path = record_path(folder)
    if not path.exists():
        raise StoreError(NO_STORE)
    connection = _open(path, "rw")  # a WAL reader writes to the shared-memory file
    try:
        connection.execute(f"PRAGMA busy_timeout = {settings.busy_timeout_ms}")
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = {-(settings.reader_cache_bytes // 1024)}")
        require_current(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class ReaderPool:
    """At most ``max_readers`` reading connections, opened as needed and shared by all threads.

    ``sizing`` says how many are worth keeping by the rates of late (F0.3); None: all. The one used
    last is used next, so that what is not needed grows old: it is closed after ``IDLE_S``.
    Connections do not survive ``fork``: a process opens its own pool.
    """

    def __init__(
        self,
        folder: Path,
        settings: StoreSettings,
        clock: Clock | None = None,
        sizing: Sizing | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._clock = clock or SystemClock()
        self._sizing = sizing
        self._busy = 0
        self._slots = Semaphore(settings.max_readers)
        self._idle: deque[tuple[sqlite3.Connection, float]] = deque()
        self._lock = Lock()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: every statement sees the same commit."""
        connection = self._take()
        try:
            with translated():
                if connection is None:
                    connection = open_reader(self._folder, self._settings)
                connection.execute("BEGIN")
                yield connection
        finally:
            self._give(connection)

    def _take(self) -> sqlite3.Connection | None:
        if self._closed:
            raise Unavailable("the store is closed.")
        self._count(1)
        if not self._slots.acquire(timeout=self._settings.read_wait_ms / 1000):
            self._count(-1)
            raise Unavailable("too many reads of the store are under way.")
        with self._lock:
            self._busy += 1
            return self._idle.pop()[0] if self._idle else None

    def _count(self, more: int) -> None:
        if self._sizing is not None:
            with self._lock:
                count = self._sizing.began if more > 0 else self._sizing.ended
                count(self._clock.now())

    def _give(self, connection: sqlite3.Connection | None) -> None:
        if connection is not None:
            try:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    connection.close()
                connection = None
        with self._lock:
            self._busy -= 1
            old = self._put_back(connection, self._clock.now())
        self._slots.release()
        self._count(-1)
        for one in old:
            one.close()

    def _put_back(
        self, connection: sqlite3.Connection | None, now: float
    ) -> list[sqlite3.Connection]:
        """Keep it for the next; those that are too many, or that nobody has used for long."""
        if connection is not None and self._closed:
            return [connection]
        if connection is not None:
            self._idle.append((connection, now))
        old = []
        # Those in use are about to come back: they count.
        room = inf if self._sizing is None else max(1, self._sizing.kept(now) - self._busy)
        while self._idle and (len(self._idle) > room or self._idle[0][1] <= now - IDLE_S):
            old.append(self._idle.popleft()[0])
        return old

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop()[0].close()
