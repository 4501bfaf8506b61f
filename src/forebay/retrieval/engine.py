"""The engines' errors, told apart once: damage on disk, a full disk, another writer."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import tantivy

from forebay.kernel.errors import ForebayError, StoreBusy, StoreError, StoreFull, Unavailable

_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)
_FULL_MARKS = (
    "No space left",
    "StorageFull",
    "QuotaExceeded",
    *(f"os error {code})" for code in _FULL_CODES),
    *(f"code: {code}," for code in _FULL_CODES),
)
_BUSY_MARK = "LockBusy"


class IndexDamaged(Unavailable):
    """The files of an index cannot be read; it is being built again from the record."""

    def __init__(self) -> None:
        super().__init__(
            "The search index is damaged and is being rebuilt; try again shortly.",
            retry_after_s=2.0,
        )


def is_interrupt(error: BaseException) -> bool:
    """Whether ``error`` is of the interpreter and not of an engine (whose panics are no
    ``Exception`` either).
    """
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def disk_full(error: BaseException) -> bool:
    """Whether the engine failed for want of room; it says so in words alone."""
    if isinstance(error, OSError) and error.errno in _FULL_CODES:
        return True
    return any(mark in str(error) for mark in _FULL_MARKS)


def write_error(error: BaseException, kb: str) -> ForebayError | None:
    """The kernel's error for a failed write that building anew cannot help; None for damage."""
    if isinstance(error, ForebayError) and not isinstance(error, IndexDamaged):
        return error
    if disk_full(error):
        return no_room()
    if _BUSY_MARK in str(error):
        return StoreBusy(f"another process writes the search index of '{kb}'.")
    return None


def no_room() -> StoreFull:
    """The kernel's error for an index that found no room."""
    return StoreFull(
        "the disk is full, so the search index could not take in the change; free some space."
    )


def rebuild_error(error: BaseException, kb: str) -> ForebayError:
    """The kernel's error for a build from the record that failed too."""
    return write_error(error, kb) or StoreError(
        f"The search index of '{kb}' could not be brought up to date."
    )


class GuardedSearcher:
    """An engine's searcher: whatever it raises becomes ``IndexDamaged``, and is told once more.

    A query is built by this package from a fixed schema, so that reading is all that can fail.
    """

    def __init__(self, searcher: tantivy.Searcher, damaged: Callable[[], None]) -> None:
        self._searcher = searcher
        self._damaged = damaged
        self.num_docs = searcher.num_docs
        self.num_segments = searcher.num_segments

    def search(
        self, query: tantivy.Query, *, limit: int, count: bool = True, offset: int = 0
    ) -> Any:
        """Return the engine's result, without its first ``offset`` hits."""
        return self._guarded(
            lambda: self._searcher.search(query, limit=limit, count=count, offset=offset)
        )

    def doc_freq(self, field: str, term: str) -> int:
        """Return how many chunks hold ``term``, dead ones included."""
        return int(self._guarded(lambda: self._searcher.doc_freq(field, term)))

    def confirm(self, field: str, term: str, held: int) -> None:
        """Raise ``IndexDamaged`` unless ``held`` chunks hold ``term``, as was seen before.

        What a searcher sees never changes, but a dictionary of terms that was spoiled after it
        was opened answers 0 for every term and raises nothing.
        """

        def look() -> None:
            seen = self._searcher.doc_freq(field, term)
            if seen != held:
                raise ValueError(f"{held} chunks of the files had a term that {seen} have now")

        self._guarded(look)

    def fast_field_values(self, field: str, addresses: list[tantivy.DocAddress]) -> list[Any]:
        """Return one value per address; every chunk has one."""

        def read() -> list[Any]:
            values = list(self._searcher.fast_field_values(field, addresses))
            if None in values:
                raise ValueError(f"a chunk of the files has no {field}")
            return values

        return list(self._guarded(read))

    def aggregate(self, query: tantivy.Query, wanted: dict[str, Any]) -> Any:
        """Return the engine's aggregation."""
        return self._guarded(lambda: self._searcher.aggregate(query, wanted))

    def doc(self, address: tantivy.DocAddress) -> tantivy.Document:
        """Return the stored fields of one chunk."""
        found: tantivy.Document = self._guarded(lambda: self._searcher.doc(address))
        return found

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        # The engine reports a torn file with several error types, panics among them.
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._damaged()
            raise IndexDamaged from error
