"""The indexes of one process by knowledge base: opened from the record, refreshed, closed."""

from __future__ import annotations

import logging
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from forebay.kernel.errors import ForebayError, NotFound
from forebay.retrieval import KbIndex

log = logging.getLogger("forebay.index")

_WRITERS_MAX = 8
"""Indexes that may keep what writing needs (threads, memory) between two changes."""


class IndexSet:
    """One ``KbIndex`` per knowledge base.

    ``get`` never blocks. ``refresh``, ``drop``, ``maintain`` and ``close`` block and belong into a
    worker thread. ``open_index`` opens the index of a kb that the record has.
    """

    def __init__(self, open_index: Callable[[str], KbIndex]) -> None:
        self._open = open_index
        self._indexes: dict[str, KbIndex] = {}
        self._changed: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def get(self, kb: str) -> KbIndex:
        """The open index of ``kb``; ``NotFound`` when there is none."""
        index = self._indexes.get(kb)
        if index is None:
            raise NotFound(f"there is no knowledge base {kb!r}.", param="kb")
        return index

    def version(self, kb: str) -> int | None:
        """The version that is searched now; None when the kb is not open."""
        index = self._indexes.get(kb)
        return None if index is None else index.snapshot().version

    def names(self) -> tuple[str, ...]:
        """The knowledge bases that are open."""
        return tuple(sorted(self._indexes))

    def embedded_share(self) -> float:
        """The share of all chunks that have a vector; 1 where there is no chunk."""
        snapshots = [index.snapshot() for index in tuple(self._indexes.values())]
        chunks = sum(one.lexical.chunks for one in snapshots)
        rows = sum(min(one.vectors.rows, one.lexical.chunks) for one in snapshots)
        return rows / chunks if chunks else 1.0

    def refresh(self, kb: str) -> int:
        """Bring one index up to the record, opening it when it is new; return its version."""
        with self._lock:
            index = self._indexes.get(kb)
            fresh = index is None
            if index is None:
                index = self._open(kb)
                self._indexes[kb] = index
        version = index.snapshot().version if fresh else index.refresh()
        self._rest_oldest(kb)
        return version

    def _rest_oldest(self, kb: str) -> None:
        """Let the index that was refreshed longest ago give up its writer."""
        with self._lock:
            self._changed[kb] = None
            self._changed.move_to_end(kb)
            oldest = None
            if len(self._changed) > _WRITERS_MAX:
                oldest = self._indexes.get(self._changed.popitem(last=False)[0])
        if oldest is not None:
            oldest.rest()

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
        """Background merges of every index; one that fails does not keep the others from it."""
        for kb in self.names():
            index = self._indexes.get(kb)
            if index is None:
                continue
            try:
                index.maintain()
            except ForebayError as error:
                log.warning("maintenance of %s: %s", kb, error.message)

    def close(self) -> None:
        """Close every index."""
        for kb in self.names():
            self.drop(kb)
