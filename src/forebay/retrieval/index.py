"""One knowledge base's index: snapshots that readers never wait for, one writer."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from weakref import WeakMethod

import msgspec

from forebay.kernel.errors import ForebayError, StoreError, StoreFull
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.change_log import ChangeLog, LoggedChanges
from forebay.retrieval.checksums import Checksums
from forebay.retrieval.engine import (
    disk_full,
    is_interrupt,
    no_room,
    rebuild_error,
    write_error,
)
from forebay.retrieval.files import clear_leftovers, read_struct, write_struct
from forebay.retrieval.healing import Healer
from forebay.retrieval.lexical import LexicalIndex
from forebay.retrieval.lexical_base import Demands
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.segment_build import BuildJob, BuildProcess, build
from forebay.retrieval.segments import Floats32, Ids, SegmentFile, choose_kind, concatenate
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.terms import Analyzer
from forebay.retrieval.tiers import SegmentSize, choose_merge
from forebay.retrieval.vector_view import LiveSegment, Rights, VectorView
from forebay.retrieval.vectors import VectorStore

log = logging.getLogger(__name__)

_FINGERPRINT_ATTEMPTS = 3
_ROOM_BYTES = 16_000_000
"""Less free space than this, and a failed write is taken for a full disk."""
_FOLD_RESTS_MAX = 15
"""Rounds of maintenance, a bit over a minute by default."""


class DamageReport(msgspec.Struct, frozen=True):
    """A reader's word to the writer: this generation of the lexical index cannot be read."""

    generation: int


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

    Files that are damaged while they are in use make searches raise ``IndexDamaged`` (503): the
    writer builds them again from the record at once, in a thread of its own; a reader tells the
    writer and takes over what it has built.
    """

    def __init__(
        self,
        kb: str,
        vectors: VectorStore,
        *,
        settings: RetrievalSettings,
        writable: bool,
        fingerprint: Callable[[], str | None],
    ) -> None:
        self._kb = kb
        self._feed = vectors.feed
        self._vectors = vectors
        self._writable = writable
        self._fingerprint = fingerprint
        # Until all is in place nobody has to be told of damage: opening meets it by itself.
        self._closed = True
        self._damage = Event()
        self._healer = Healer(self._heal)
        self._lexical = LexicalIndex(
            vectors.folder,
            settings.lexical,
            Analyzer(stemming=settings.lexical.stemming),
            writable=writable,
            damaged=_weakly(self._note_damage),
        )
        self._busy = False
        self._fold_failures = self._fold_rests = 0
        self._lock = Lock()
        self._maintenance = Lock()
        self._builds = BuildProcess()
        self._log = ChangeLog(self._feed, kb)
        self._checksums = Checksums()
        self._closed = False
        self._snapshot = Snapshot(0, self._lexical.view, vectors.view)

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
        folder cannot be written, ``StoreBusy`` when something has to be written and another
        process does that, ``StoreFull`` when there is no room for it.
        """
        settings = settings or RetrievalSettings()
        vectors = VectorStore(path, kb, feed, settings.vector)
        try:
            if writable:
                path.mkdir(parents=True, exist_ok=True)
                clear_leftovers(path)
            index = cls(kb, vectors, settings=settings, writable=writable, fingerprint=fingerprint)
        except (OSError, ValueError) as error:
            if disk_full(error):
                raise rebuild_error(error, kb) from error
            raise StoreError(f"The search index of '{kb}' cannot be opened.") from error
        try:
            index.refresh()
        except BaseException:
            index.close()
            raise
        return index

    @property
    def feed(self) -> IndexFeed:
        """The record behind this index."""
        return self._feed

    def snapshot(self) -> Snapshot:
        """Return the newest published state."""
        return self._snapshot

    def logged_changes(self) -> LoggedChanges | None:
        """Return what is remembered of the changes up to now; None: nothing yet."""
        return self._log.view

    @property
    def oldest_needed(self) -> int:
        """The version from which the words on disk catch up with the record after a restart."""
        return self._lexical.folded_version

    def refresh(self) -> int:
        """Catch up with the record (writer) or with the writer (reader); return the version."""
        with self._lock:
            self._check_open()
            if self._writable:
                self._apply()
            else:
                self._lexical.reload(self._feed, self._kb)
            self._refresh_vectors()
            # First the log, so that of every version that is seen it is known what comes after.
            self._log.note(self._lexical.version, self._lexical.view, self._vectors.view)
            self._show()
            return self._snapshot.version

    def _apply(self) -> None:
        """Bring the words up to the record; from nothing when the files prove damaged."""
        self._busy = True
        if not self._damage.is_set():
            try:
                self._lexical.apply(self._feed, self._kb)
                return
            # The engine meets damage with several error types, panics among them; what is none
            # (no room, another writer, the record's own errors) is told apart.
            except BaseException as error:
                if is_interrupt(error):
                    raise
                known = write_error(error, self._kb) or self._room_error()
                if known is not None:
                    raise known from error
                log.warning("%s: the lexical index is damaged (%s)", self._kb, error)
        self._rebuild()

    def _room_error(self) -> StoreFull | None:
        """Why an unclear failure of writing may be the disk's: the engine's own threads hide it.

        Building anew would need more room still.
        """
        with suppress(OSError):
            if shutil.disk_usage(self._vectors.folder).free < _ROOM_BYTES:
                return no_room()
        return None

    def _rebuild(self) -> None:
        """Build the words anew from the record; meanwhile the snapshot stays as it is."""
        log.warning("%s: the lexical index is built again from the record", self._kb)
        try:
            self._lexical.start_over()
            self._lexical.apply(self._feed, self._kb)
        except BaseException as error:  # the engine panics, which Python sees as no Exception
            if is_interrupt(error):
                raise
            # The next attempt must not trust what this one left.
            self._damage.set()
            raise rebuild_error(error, self._kb) from error
        self._damage.clear()

    def _note_damage(self, generation: int) -> None:
        """Called by whatever search or reload meets unreadable files, in its own thread."""
        if self._closed or generation != self._lexical.generation:
            return
        self._damage.set()
        self._healer.wake()

    def _heal(self) -> bool:
        """One attempt to serve whole files again; True when there is nothing left to do."""
        with self._lock:
            if self._closed or not self._damage.is_set():
                return True
            try:
                if self._writable:
                    self._rebuild()
                elif self._lexical.reopen():
                    self._damage.clear()
                else:
                    self._report_damage()
                    return False
            except ForebayError as error:
                log.warning("%s: %s", self._kb, error.message)
                return False
            self._show()
            return True

    @property
    def _report_path(self) -> Path:
        return self._vectors.folder / "damaged"

    def _report_damage(self) -> None:
        # Without the right to write here the reader can only wait for the writer's own finding.
        with suppress(OSError):
            write_struct(self._report_path, DamageReport(self._lexical.generation))

    def _take_report(self) -> None:
        """As the writer: heed what a reader process found."""
        report = read_struct(self._report_path, DamageReport)
        if report is not None:
            self._report_path.unlink(missing_ok=True)
            self._note_damage(report.generation)

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

    def _show_vectors(self) -> None:
        """Publish vectors alone: the words may be on their way to another version."""
        self._snapshot = msgspec.structs.replace(self._snapshot, vectors=self._vectors.view)

    def rest(self) -> None:
        """Give up the threads and memory of writing; the next change takes them again."""
        with self._lock:
            self._lexical.rest()

    def _look_after(self) -> None:
        """Rest when nothing was written since the last time; replace segments that were harmed.

        Looks without the lock, so that changes never wait for mere looking.
        """
        if not self._busy and self._lexical.writing:
            self.rest()
        segments = self._lexical.committed()
        if not self._busy and self._lexical.untidy(segments):
            self._clear()
        self._busy = False
        self._take_report()
        generation = self._lexical.generation
        if self._checksums.damaged(self._lexical.folder_of(generation), segments) is not None:
            self._note_damage(generation)
        if self._vectors.harmed():
            with self._lock:
                self._check_open()
                if self._vectors.harmed():
                    log.warning("%s: vector segments are damaged; read from the record", self._kb)
                    self._vectors.open(self._vectors.view.fingerprint)
                    self._show_vectors()

    def _clear(self) -> None:
        """Let go of the files of words that merging has made superfluous; changes no result."""
        try:
            with self._lock:
                self._check_open()
                self._lexical.renew()
                self._show()
            self._lexical.clear()
        except BaseException as error:  # the engine panics, which Python sees as no Exception
            if is_interrupt(error):
                raise
            log.warning("%s: merged files of words could not be removed (%s)", self._kb, error)

    def maintain(self, *, force: bool = False) -> bool:
        """Fold, merge and rebuild vector segments that are due; True when something was done.

        Changes no result. Blocking, for as long as a build takes; large builds run in a process
        of the lowest priority. ``force`` folds deltas however small. Only for the writer.
        """
        with self._maintenance:
            if self._writable:
                self._look_after()
                self._fold_when_due(force=force)
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
                    self._show_vectors()
            except (OSError, RuntimeError, MemoryError) as error:
                raise StoreError(
                    f"Vector segments of '{self._kb}' could not be merged; search goes on."
                ) from error
            finally:
                with self._lock:
                    self._vectors.unseal()
            return True

    def _fold_when_due(self, *, force: bool) -> None:
        """Fold words; after failures in a row leave it for 1, 3, 7 … rounds of maintenance."""
        if self._fold_rests and not force:
            self._fold_rests -= 1
            return
        try:
            self._fold_words()
        except ForebayError:
            self._fold_failures += 1
            self._fold_rests = min(_FOLD_RESTS_MAX, 2**self._fold_failures - 1)
            raise
        self._fold_failures = self._fold_rests = 0

    def _fold_words(self) -> None:
        """Put changes of words from memory into the files; changes go on meanwhile."""
        if not self._lexical.caught_up and not self._damage.is_set():
            # An earlier attempt failed; to catch up with the record is to write all that is new.
            self.refresh()
        with self._lock:
            self._check_open()
            fold = self._lexical.begin_fold()
        if fold is None:
            return
        try:
            base = self._lexical.write(fold)
        except BaseException as error:  # the engine panics, which Python sees as no Exception
            with self._lock:
                self._lexical.abandon_fold()
            if is_interrupt(error):
                raise
            known = write_error(error, self._kb) or self._room_error()
            raise known or StoreError(
                f"Changes of '{self._kb}' could not be put into the search index; search goes on."
            ) from error
        with self._lock:
            self._check_open()
            self._lexical.end_fold(fold, base)
            self._show()

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
        self._healer.close()

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


def _weakly(method: Callable[[int], None]) -> Callable[[int], None]:
    """Call ``method`` while its object lives: a view must not keep a closed index, and its
    engine's thread, alive through a cycle.
    """
    reference = WeakMethod(method)

    def call(generation: int) -> None:
        alive = reference()
        if alive is not None:
            alive(generation)

    return call


def _alive(each: LiveSegment) -> tuple[Ids, Floats32]:
    ids, rows = each.alive()
    return ids, each.segment.vectors(rows)
