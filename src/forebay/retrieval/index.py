"""One knowledge base's index: snapshots that readers never wait for, one writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from forebay.kernel.errors import StoreError
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.lexical import LexicalIndex
from forebay.retrieval.lexical_search import Demands, LexicalView
from forebay.retrieval.segment_build import BuildJob, BuildProcess, build
from forebay.retrieval.segments import Floats32, Ids, SegmentFile, choose_kind, concatenate
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.terms import Analyzer
from forebay.retrieval.tiers import SegmentSize, choose_merge
from forebay.retrieval.vector_view import LiveSegment, Rights, VectorView
from forebay.retrieval.vectors import VectorStore

_FINGERPRINT_ATTEMPTS = 3


class Snapshot(msgspec.Struct, frozen=True):
    """What one search sees, whatever is committed meanwhile."""

    version: int
    lexical: LexicalView
    vectors: VectorView

    def search_vectors(self, query: Floats32, limit: int, demands: Demands) -> tuple[Ids, Floats32]:
        """Return ids and cosines, best first, of at most ``limit`` chunks meeting ``demands``."""
        rights = Rights(demands, self.version, self.lexical.allowed_among)
        return self.vectors.search(query, limit, rights)


class KbIndex:
    """One knowledge base on disk; open one writable per folder, any number for reading.

    ``snapshot`` is an attribute read. ``refresh`` and ``close`` block for milliseconds,
    ``maintain`` for as long as its builds take: all belong into worker threads. ``refresh`` is
    not held up by a running ``maintain``.
    """

    def __init__(
        self,
        kb: str,
        lexical: LexicalIndex,
        vectors: VectorStore,
        *,
        feed: IndexFeed,
        writable: bool,
        fingerprint: Callable[[], str | None],
    ) -> None:
        self._kb = kb
        self._feed = feed
        self._lexical = lexical
        self._vectors = vectors
        self._writable = writable
        self._fingerprint = fingerprint
        self._lock = Lock()
        self._maintenance = Lock()
        self._builds = BuildProcess()
        self._closed = False
        self._snapshot = Snapshot(0, lexical.view, vectors.view)

    @classmethod
    def open(
        cls,
        path: Path,
        kb: str,
        feed: IndexFeed,
        *,
        writable: bool,
        settings: RetrievalSettings | None = None,
        fingerprint: Callable[[], str | None] = lambda: None,
    ) -> KbIndex:
        """Open the index of ``kb`` in the folder ``path`` and catch up with ``feed``.

        ``fingerprint`` answers whose vectors the record holds now (None: none yet). Anything
        missing or damaged on disk is built again from the feed. Raises ``StoreError`` when the
        folder cannot be written or another process writes it.
        """
        settings = settings or RetrievalSettings()
        analyzer = Analyzer(stemming=settings.lexical.stemming)
        try:
            if writable:
                path.mkdir(parents=True, exist_ok=True)
                _clear_leftovers(path)
            lexical = LexicalIndex(path, settings.lexical, analyzer, writable=writable)
        except (OSError, ValueError) as error:
            raise StoreError(f"The search index of '{kb}' cannot be opened.") from error
        vectors = VectorStore(path, kb, feed, settings.vector)
        index = cls(kb, lexical, vectors, feed=feed, writable=writable, fingerprint=fingerprint)
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
            self._check_open()
            try:
                if self._writable:
                    self._lexical.apply(self._feed, self._kb)
                else:
                    self._lexical.reload()
            except (OSError, ValueError) as error:
                raise StoreError(
                    f"The search index of '{self._kb}' could not be brought up to date."
                ) from error
            self._refresh_vectors()
            self._show()
            return self._snapshot.version

    def _refresh_vectors(self) -> None:
        """Take in vectors; again when the record changed its embedder meanwhile."""
        for _ in range(_FINGERPRINT_ATTEMPTS):
            fingerprint = self._fingerprint()
            if self._writable:
                self._vectors.catch_up(fingerprint)
            else:
                self._vectors.follow(fingerprint)
            if self._fingerprint() == fingerprint:
                return
        self._vectors.open(None)

    def _show(self) -> None:
        self._snapshot = Snapshot(self._lexical.version, self._lexical.view, self._vectors.view)

    def maintain(self, *, force: bool = False) -> bool:
        """Fold, merge and rebuild vector segments that are due; True when something was done.

        Changes no result. Blocking, for as long as a build takes; large builds run in a process
        of the lowest priority. ``force`` folds deltas however small. Only for the writer.
        """
        with self._maintenance:
            with self._lock:
                self._check_open()
                if not self._writable or self._vectors.view.fingerprint is None:
                    return False
                chosen = self._due(force=force)
                if not chosen:
                    return False
                self._vectors.seal()
                fingerprint, covered = self._vectors.view.fingerprint, self._covered(chosen)
            try:
                files = self._build(chosen)
                with self._lock:
                    self._check_open()
                    if self._vectors.view.fingerprint != fingerprint:
                        return False
                    self._vectors.replace(chosen, files, covered=covered)
                    self._show()
            except (OSError, RuntimeError, MemoryError) as error:
                raise StoreError(
                    f"Vector segments of '{self._kb}' could not be merged; search goes on."
                ) from error
            finally:
                with self._lock:
                    self._vectors.unseal()
            return True

    def _due(self, *, force: bool) -> tuple[LiveSegment, ...]:
        segments = self._vectors.view.segments
        sizes = [
            SegmentSize(len(each), each.dead_rows, each.segment.file is not None)
            for each in segments
        ]
        chosen = choose_merge(sizes, self._vectors.settings, force=force)
        return tuple(segments[i] for i in chosen)

    def _covered(self, chosen: Sequence[LiveSegment]) -> int:
        """The version whose vectors are all on disk after this merge."""
        deltas = {id(s.segment) for s in self._vectors.view.segments if s.segment.file is None}
        if deltas <= {id(each.segment) for each in chosen}:
            return self._vectors.view.version
        return self._vectors.covered

    def _build(self, chosen: Sequence[LiveSegment]) -> list[SegmentFile]:
        settings = self._vectors.settings
        alive = sum(len(each) for each in chosen)
        if not alive:
            return []
        kind = choose_kind(alive, settings)
        base = max(chosen, key=len)
        extends = (
            kind == "hnsw"
            and base.segment.kind == "hnsw"
            and base.dead_rows <= settings.dead_share_max / 2 * len(base.segment)
        )
        parts = [_alive(each) for each in chosen if not (extends and each is base)]
        dimensions = int(base.segment.flat.d)
        ids, vectors = concatenate(parts, dimensions)
        del parts
        job = BuildJob(
            folder=str(self._vectors.folder),
            name=self._next_name(),
            kind=kind,
            settings=settings,
            base=base.segment.file if extends else None,
        )
        if kind == "exact" or (alive <= settings.inline_build_rows and not extends):
            return [build(job, ids, vectors)]
        return [self._builds.build(job, ids, vectors)]

    def _next_name(self) -> str:
        used = [
            int(found.group(1))
            for path in self._vectors.folder.glob("segment-*")
            if (found := re.match(r"segment-(\d+)\.", path.name))
        ]
        return f"segment-{max(used, default=0) + 1:08d}"

    def close(self) -> None:
        """Give up the writer and end a running build; what was published stays."""
        self._builds.stop()
        with self._lock:
            self._closed = True
            self._lexical.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"The search index of '{self._kb}' is closed.")

    def statistics(self) -> dict[str, int | str | bool]:
        """Return sizes for telemetry and for people."""
        snapshot = self._snapshot
        segments = snapshot.vectors.segments
        on_disk = [each for each in segments if each.segment.file is not None]
        return {
            "version": snapshot.version,
            "chunks": snapshot.lexical.chunks,
            "lexical_segments": snapshot.lexical.segments,
            "vectors": snapshot.vectors.rows,
            "vector_segments": len(on_disk),
            "vector_deltas": len(segments) - len(on_disk),
            "vector_delta_rows": sum(len(e) for e in segments if e.segment.file is None),
            "dead_vectors": sum(each.dead_rows for each in segments),
            "fingerprint": snapshot.vectors.fingerprint or "",
            "maintenance_due": bool(self._writable and self._due(force=False)),
        }


def _alive(each: LiveSegment) -> tuple[Ids, Floats32]:
    ids, rows = each.alive()
    return ids, each.segment.vectors(rows)


def _clear_leftovers(folder: Path) -> None:
    """Remove what a crash left half-built; nothing published has these names."""
    for pattern in ("new-*", "input-*", "*.new"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
