"""SQLite's and the file system's errors, translated once into the kernel's tree."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from forebay.kernel.errors import ForebayError, InvalidRequest, StoreBusy, StoreError, StoreFull

_PRIMARY = 0xFF  # SQLite keeps the primary result code in the low byte of an extended one.
_FULL = "the disk is full, so the change was refused; free some space and try again."


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of SQLite and the operating system as ``StoreError`` and its kin."""
    try:
        yield
    except sqlite3.Error as error:
        raise of_sqlite(error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(_FULL) from error
        raise StoreError(
            f"the store's folder cannot be used: {error.strerror or 'input/output error'}."
        ) from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the document holds half of a surrogate pair, which is not text; fix its encoding."
        ) from error


def of_sqlite(error: sqlite3.Error) -> ForebayError:
    """The kernel's error for one of SQLite, decided by its result code."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) or sqlite3.SQLITE_ERROR
    primary = code & _PRIMARY
    # Growing the shared-memory file fails in its own way when the disk is full.
    if primary == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull(_FULL)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy("the store is locked by another process; try again shortly.")
    if primary == sqlite3.SQLITE_READONLY:
        return StoreError("the store's folder is read-only; make it writable and try again.")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError("the store's file is damaged; restore the folder from a backup.")
    if primary == sqlite3.SQLITE_CANTOPEN:
        return StoreError("the store's file cannot be opened; check the folder and its rights.")
    if primary == sqlite3.SQLITE_IOERR:
        return StoreError("the disk reported an error; the last commit stands.")
    if primary == sqlite3.SQLITE_TOOBIG:
        return InvalidRequest("the document is too large to be stored.")
    return StoreError("the store could not do what was asked; the last commit stands.")
