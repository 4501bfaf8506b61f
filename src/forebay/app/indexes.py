"""The indexes of one process by knowledge base: opened from the record, refreshed, closed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from forebay.kernel.errors import NotFound
from forebay.retrieval import KbIndex


class IndexSet:
    """One ``KbIndex`` per knowledge base.

    ``get`` never blocks. ``refresh``, ``drop``, ``maintain`` and ``close`` block and belong into a
    worker thread. ``open_index`` opens the index of a kb that the record has.
    """

    def __init__(self, open_index: Callable[[str], KbIndex]) -> None:
        self._open = open_index
        self._indexes: dict[str, KbIndex] = {}
        self._lock = Lock()

    def get(self, kb: str) -> KbIndex:
        """The open index of ``kb``; ``NotFound`` when there is none."""
        index = self._indexes.get(kb)
        if index is None:
            raise NotFound(f"there is no knowledge base {kb!r}.", param="kb")
        return index

    def names(self) -> tuple[str, ...]:
        """The knowledge bases that are open."""
        return tuple(sorted(self._indexes))

    def refresh(self, kb: str) -> int:
        """Bring one index up to the record, opening it when it is new; return its version."""
        with self._lock:
            index = self._indexes.get(kb)
            if index is None:
                index = self._open(kb)
                self._indexes[kb] = index
                return index.snapshot().version
        return index.refresh()

    def drop(self, kb: str) -> None:
        """Close the index of a kb that is no more."""
        with self._lock:
            index = self._indexes.pop(kb, None)
        if index is not None:
            index.close()

    def forget(self, kb: str, folder: Path) -> None:
        """Close the index of a dropped kb and remove its files."""
        self.drop(kb)
        shutil.rmtree(folder, ignore_errors=True)

    def maintain(self) -> None:
        """Background merges of every index."""
        for kb in self.names():
            index = self._indexes.get(kb)
            if index is not None:
                index.maintain()

    def close(self) -> None:
        """Close every index."""
        for kb in self.names():
            self.drop(kb)
