"""One knowledge base's index: snapshots that readers never wait for, one writer."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import msgspec

from forebay.kernel.stages import IndexFeed
from forebay.retrieval.lexical import LexicalIndex
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.terms import Analyzer


class Snapshot(msgspec.Struct, frozen=True):
    """What one search sees, whatever is committed meanwhile."""

    version: int
    lexical: LexicalView


class KbIndex:
    """One knowledge base on disk; open one writable per folder, any number for reading.

    ``snapshot`` is a plain attribute read. ``refresh``, ``maintain`` and ``close`` block and
    belong into a worker thread; they exclude one another.
    """

    def __init__(self, kb: str, feed: IndexFeed, lexical: LexicalIndex, *, writable: bool) -> None:
        self._kb = kb
        self._feed = feed
        self._lexical = lexical
        self._writable = writable
        self._lock = Lock()
        self._snapshot = Snapshot(lexical.version, lexical.view)

    @classmethod
    def open(
        cls,
        path: Path,
        kb: str,
        feed: IndexFeed,
        *,
        writable: bool,
        settings: RetrievalSettings | None = None,
    ) -> KbIndex:
        """Open the index of ``kb`` under the folder ``path`` and catch up with ``feed``."""
        settings = settings or RetrievalSettings()
        analyzer = Analyzer(stemming=settings.lexical.stemming)
        lexical = LexicalIndex(path, settings.lexical, analyzer, writable=writable)
        index = cls(kb, feed, lexical, writable=writable)
        index.refresh()
        return index

    @property
    def feed(self) -> IndexFeed:
        """The record behind this index."""
        return self._feed

    def snapshot(self) -> Snapshot:
        """Return the newest published state."""
        return self._snapshot

    def refresh(self) -> int:
        """Catch up with the record (writer) or with the writer (reader); return the version."""
        with self._lock:
            if self._writable:
                self._lexical.apply(self._feed, self._kb)
            else:
                self._lexical.reload()
            self._snapshot = Snapshot(self._lexical.version, self._lexical.view)
            return self._snapshot.version

    def maintain(self) -> None:
        """Do the background work that is due: merges; no result changes by it."""
        with self._lock:
            self._lexical.merge()
            self._snapshot = Snapshot(self._lexical.version, self._lexical.view)

    def close(self) -> None:
        """Give up the writer; what was published stays."""
        with self._lock:
            self._lexical.close()
