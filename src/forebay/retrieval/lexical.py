"""The lexical index: tantivy segments on disk, one writer, readers that never wait.

tantivy stores, finds and proposes; it counts deleted chunks in its statistics until it merges
them away. So each chunk keeps its term counts as a stored field, and the best proposals are
scored again here with statistics of the living chunks alone: neither a tombstone nor a merge
can be seen in a score.

A small change goes to memory (``Recent``) and is searchable at once; ``fold`` puts many into the
files together, which syncs them and takes tens of milliseconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np
import tantivy

from forebay.kernel.documents import ChangeSet, ChunkRow
from forebay.kernel.errors import Gone
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.checksums import committed_segments
from forebay.retrieval.counts import FactsCache, pack_facts
from forebay.retrieval.engine import GuardedSearcher, IndexDamaged, is_interrupt
from forebay.retrieval.files import read_struct, sync_folder, write_passing, write_struct
from forebay.retrieval.keys import row_keys
from forebay.retrieval.lexical_base import CHINESE, LexicalBase
from forebay.retrieval.lexical_files import (
    Applied,
    Fold,
    Shown,
    build_schema,
    format_tag,
    superfluous,
)
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.priority import giving_way
from forebay.retrieval.recent import Entry, Recent
from forebay.retrieval.settings import LexicalSettings
from forebay.retrieval.terms import Analyzer

_ROWS_PER_BATCH = 256
_CHANGE_CHUNKS_MAX = 128
"""A change of more chunks is written to the files at once."""
_RECENT_CHUNKS_MAX = 512
"""So many chunks in memory, searched one by one, cost a query a tenth of a millisecond."""


class LexicalIndex:
    """One knowledge base's words on disk and in memory.

    The writer calls ``apply``, and ``fold`` from time to time; readers call ``reload``; both hand
    out ``view``. Not safe for concurrent calls but for ``write`` (the owner serialises them);
    views are safe to share.

    The engine's writer has half a dozen threads and some megabytes: it is opened by the first
    write and kept until ``rest``. ``damaged`` is called, from any thread, with the generation
    whose files turn out to be unreadable.
    """

    def __init__(
        self,
        folder: Path,
        settings: LexicalSettings,
        analyzer: Analyzer,
        *,
        writable: bool,
        damaged: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._analyzer = analyzer
        self._facts = FactsCache(settings.counts_cache_bytes)
        self._format = format_tag(settings)
        self._writable = writable
        self._damaged = damaged
        self._writing = Lock()
        self._writer: tantivy.IndexWriter | None = None
        self._index: tantivy.Index | None = None
        self._generation = -1
        self._published = False
        self._caught_up = False
        self._folding: Fold | None = None
        self._last = 0
        self._beyond = Recent()
        self._foreign: frozenset[str] = frozenset()
        self.version = 0
        self.folded_version = 0
        if writable:
            folder.mkdir(parents=True, exist_ok=True)
        self.view = self._view_of(LexicalBase(None, build_schema(), self._facts), Recent())
        applied = read_struct(self._sidecar, Applied)
        if applied is not None and self._open(applied):
            self._published = True
        elif writable:
            self.start_over()

    @property
    def _sidecar(self) -> Path:
        return self._folder / "applied"

    @property
    def _shown(self) -> Path:
        return self._folder / "shown"

    def folder_of(self, generation: int) -> Path:
        """Return where the engine keeps the files of a generation."""
        return self._folder / f"lexical-{generation:06d}"

    @property
    def _files(self) -> Path:
        return self.folder_of(self._generation)

    def _base_of(self, index: tantivy.Index, generation: int) -> LexicalBase:
        guarded = GuardedSearcher(index.searcher(), partial(self._damaged, generation))
        return LexicalBase(guarded, index.schema, self._facts)

    def _view_of(self, base: LexicalBase, recent: Recent) -> LexicalView:
        return LexicalView(base, recent, self._settings, analyzer=self._analyzer, facts=self._facts)

    def _open(self, applied: Applied) -> bool:
        """Open what ``applied`` names; False when it is of another format or damaged."""
        if applied.format != self._format:
            return False
        try:
            index = tantivy.Index.open(str(self.folder_of(applied.generation)))
            index.config_reader("manual")
            base = self._base_of(index, applied.generation)
            self._beyond = applied.beyond(base)
        # tantivy reports a missing, torn or foreign directory with half a dozen error types
        # (ValueError, OSError and panics among them); each means the same: build it again.
        except BaseException as error:
            if is_interrupt(error):
                raise
            return False
        self._index, self._generation = index, applied.generation
        self.version = self.folded_version = applied.version
        self._last = max(0, applied.last)
        self.view = self._view_of(base, self._beyond)
        return True

    def start_over(self) -> None:
        """Begin an empty index in a folder of its own; the next ``apply`` fills and publishes it.

        ``view`` stays as it is until then. Only for the writer.
        """
        self._writer = self._index = None
        # What was read from damaged files may be kept there.
        self._facts = FactsCache(self._settings.counts_cache_bytes)
        self.version = self.folded_version = self._last = 0
        self._published = self._caught_up = False
        used = [int(p.name[8:]) for p in self._folder.glob("lexical-*") if p.name[8:].isdigit()]
        self._generation = max(used, default=-1) + 1
        folder = self.folder_of(self._generation)
        folder.mkdir()
        self._index = tantivy.Index(build_schema(), path=str(folder))
        self._index.config_reader("manual")

    def apply(self, feed: IndexFeed, kb: str) -> bool:
        """Catch up with the record and show it; True when anything changed.

        Safe to repeat: a chunk is deleted before it is added, so a crash between the engine's
        commit and the sidecar costs only the same work again.
        """
        if not self._writable:
            raise RuntimeError("this lexical index was opened for reading, or is closed")
        if self._index is None:
            self.start_over()
        try:
            changes = self._changes(feed, kb)
        except Gone:
            self.start_over()
            changes = self._changes(feed, kb)
        if changes.version == self.version and self._caught_up:
            return False
        recent = self._advanced(feed, kb, changes) if self._caught_up else None
        if recent is None:
            self._write_all(feed, kb, changes)
        else:
            self._show(recent, changes.version)
        return True

    def _changes(self, feed: IndexFeed, kb: str) -> ChangeSet:
        """Return what is to be done since ``version``.

        At first and after a failure the engine may hold more or less than it was published with:
        then what it holds is compared with what lives.
        """
        if self._caught_up or not self._published:
            return feed.changes(kb, self.version)
        assert self._index is not None
        feed.changes(kb, self.folded_version)  # numbers of another history mean other chunks
        everything = feed.changes(kb, 0)
        self._last = max(self._last, max(everything.added, default=0))
        self._index.reload()
        self.view = self._view_of(self._base_of(self._index, self._generation), Recent())
        living = np.array(everything.added, np.int64)
        held = self.view.base.all_ids()
        return msgspec.structs.replace(
            everything,
            added=tuple(np.setdiff1d(living, held).tolist()),
            removed=tuple(np.setdiff1d(held, living).tolist()),
        )

    def _advanced(self, feed: IndexFeed, kb: str, changes: ChangeSet) -> Recent | None:
        """Return what is in memory with ``changes``; None when that is too much."""
        if len(changes.added) + len(changes.removed) > _CHANGE_CHUNKS_MAX:
            return None
        before, removed = self.view.recent, frozenset(changes.removed)
        added = {i: entry for i, entry in before.added.items() if i not in removed}
        for row in feed.rows(kb, changes.added):
            added[row.chunk_id] = self._entry(row)
        # New chunks cannot be in the files; asking shows that the files can be read.
        asked = [i for i in (*changes.removed, *changes.added) if i not in before.added]
        recent = Recent(added, {**before.dead, **self.view.base.facts(asked)})
        return recent if len(recent) <= _RECENT_CHUNKS_MAX else None

    def _show(self, recent: Recent, version: int) -> None:
        view = self._view_of(self.view.base, recent)
        view.inherit(self.view)
        write_passing(self._shown, Shown(version, self._generation))
        self.view, self.version = view, version

    def _write_all(self, feed: IndexFeed, kb: str, changes: ChangeSet) -> None:
        """Write ``changes`` and what is in memory to the files, and publish them."""
        assert self._index is not None
        recent = self.view.recent if self._published else Recent()
        removed = frozenset((*changes.removed, *recent.dead))
        added = [i for i in (*recent.added, *changes.added) if i not in removed]
        self._caught_up = False
        fold, self._folding = self._folding, None
        if fold is not None:
            # What it has written may have been removed since; what it has not, it must not write.
            removed |= fold.recent.added.keys()
        if added or removed:
            with self._writing:
                base = self._write(self._index, removed, self._documents(feed, kb, added))
            self.view = self._view_of(base, Recent())
        elif not self._published:
            self.view = self._view_of(self._base_of(self._index, self._generation), Recent())
        self._last = max(self._last, max(added, default=0))
        self._publish(changes.version)
        self.version = changes.version
        self._caught_up = True

    def _documents(
        self, feed: IndexFeed, kb: str, chunk_ids: Sequence[int]
    ) -> Iterator[tuple[int, tantivy.Document]]:
        for start in range(0, len(chunk_ids), _ROWS_PER_BATCH):
            for row in feed.rows(kb, chunk_ids[start : start + _ROWS_PER_BATCH]):
                yield row.chunk_id, self._entry(row).document

    def _write(
        self,
        index: tantivy.Index,
        removed: Iterable[int],
        added: Iterable[tuple[int, tantivy.Document]],
    ) -> LexicalBase:
        """Needs ``_writing``."""
        writer: tantivy.IndexWriter | None
        writer, self._writer = self._writer, None
        if writer is None:
            heap_bytes = self._settings.writer_heap_bytes
            writer = giving_way(lambda: index.writer(heap_size=heap_bytes, num_threads=1))
        try:
            for chunk_id in removed:
                writer.delete_documents_by_term("chunk", chunk_id)
            for chunk_id, document in added:
                writer.delete_documents_by_term("chunk", chunk_id)
                writer.add_document(document)
            writer.commit()
        except BaseException:
            # A writer that failed (disk full) is not to be trusted again. The error's traceback
            # keeps this frame: without this line it would keep the folder's lock with it.
            writer = None
            raise
        if index is self._index:
            self._writer = writer
        index.reload()
        return self._base_of(index, self._generation)

    def _entry(self, row: ChunkRow) -> Entry:
        terms = self._analyzer.document(f"{row.context}\n{row.text}")
        heading = self._analyzer.document("\n".join((row.title, *row.heading_path)))
        terms += heading * self._settings.heading_repeats
        keys = row_keys(row)
        facts = pack_facts(terms, chinese=row.language == CHINESE)
        document = tantivy.Document()
        document.add_text("body", " ".join(terms))
        for key in keys:
            document.add_text("keys", key)
        document.add_integer("chunk", row.chunk_id)
        document.add_integer("length", len(terms))
        document.add_bytes("facts", facts)
        return Entry(facts, frozenset(keys), document)

    def begin_fold(self) -> Fold | None:
        """Return what is in memory, for ``write``; None when there is nothing.

        ``end_fold`` or ``abandon_fold`` must follow.
        """
        if not self._caught_up or self._index is None:
            return None
        if not len(self.view.recent):
            if self.version != self.folded_version:
                self._publish(self.version)
            return None
        self._folding = Fold(self.view.recent, self.version, self.view.base, self._index)
        return self._folding

    def write(self, fold: Fold) -> LexicalBase:
        """Put ``fold`` into the files; changes may be applied meanwhile."""
        documents = ((i, entry.document) for i, entry in fold.recent.added.items())
        with self._writing:
            # Who wrote everything meanwhile wrote this, too, or has seen it removed.
            if self._folding is not fold:
                return fold.base
            return self._write(fold.index, fold.recent.dead, documents)

    def end_fold(self, fold: Fold, base: LexicalBase) -> None:
        """Publish the files as ``base`` shows them, unless they were written again meanwhile."""
        stands, self._folding = self._folding is fold, None
        if not stands or not self._caught_up or fold.base is not self.view.base:
            return
        view = self._view_of(base, self.view.recent.after(fold.recent))
        view.inherit(self.view)
        self.view = view
        self._last = max(self._last, max(fold.recent.added, default=0))
        self._publish(fold.version)

    def abandon_fold(self) -> None:
        """After a failed ``write``: the next ``apply`` looks what the files hold."""
        self._folding = None
        self._caught_up = False

    def _publish(self, version: int) -> None:
        first = not self._published
        write_struct(self._sidecar, Applied(self._format, version, self._generation, self._last))
        if first:
            sync_folder(self._folder)
            self._remove_other_generations()
        self.folded_version = version
        self._published = True

    def _remove_other_generations(self) -> None:
        """Readers that still have an old generation mapped keep reading it."""
        for folder in self._folder.glob("lexical-*"):
            if folder != self.folder_of(self._generation):
                shutil.rmtree(folder, ignore_errors=True)

    def reload(self, feed: IndexFeed, kb: str) -> bool:
        """See what the writer has shown since; True when there is something new."""
        applied = read_struct(self._sidecar, Applied)
        if applied is None or applied.format != self._format:
            return False
        opened = applied.generation != self._generation
        if opened and not self._open(applied):
            return False
        base = self._newer_base(applied)
        shown = read_struct(self._shown, Shown)
        recent, version = self._beyond, applied.version
        known = shown.version if shown and shown.generation == self._generation else 0
        if max(known, self.version) > applied.version:
            found = self._recent_of(feed, kb, base, applied.version)
            if found is not None:
                recent, version = found
        if version < self.version or (version == self.version and base is self.view.base):
            return opened
        view = self._view_of(base, recent)
        if base is self.view.base:
            view.inherit(self.view)
        self.view, self.version, self.folded_version = view, version, applied.version
        return True

    def _newer_base(self, applied: Applied) -> LexicalBase:
        if applied.version == self.folded_version or self._index is None:
            return self.view.base
        try:
            self._index.reload()
            base = self._base_of(self._index, self._generation)
            self._beyond = applied.beyond(base)
            return base
        except BaseException as error:  # the engine panics, which Python sees as no Exception
            if is_interrupt(error):
                raise
            self._damaged(self._generation)
            raise IndexDamaged from error

    def _recent_of(
        self, feed: IndexFeed, kb: str, base: LexicalBase, since: int
    ) -> tuple[Recent, int] | None:
        """As a reader: what happened after ``since``, and up to when; None when that is too much
        or no longer known, and so on its way to the files.

        The engine may have more than was published by then: whatever changed is looked for there.
        """
        try:
            changes = feed.changes(kb, since)
        except Gone:
            return None
        touched = (*changes.removed, *changes.added)
        if len(touched) > 2 * _RECENT_CHUNKS_MAX:
            return None
        before = self.view.recent.added
        added = {i: before[i] for i in changes.added if i in before}
        for row in feed.rows(kb, [i for i in changes.added if i not in before]):
            added[row.chunk_id] = self._entry(row)
        return Recent(added, {**self._beyond.dead, **base.facts(touched)}), changes.version

    def reopen(self) -> bool:
        """As a reader whose files were damaged: open what the writer has built anew."""
        applied = read_struct(self._sidecar, Applied)
        if applied is None or applied.generation == self._generation:
            return False
        return self._open(applied)

    @property
    def caught_up(self) -> bool:
        """Whether it is known what the files hold; a write that failed leaves that open."""
        return self._caught_up

    @property
    def generation(self) -> int:
        """The number of the folder in use; each build from nothing has its own."""
        return self._generation

    @property
    def writing(self) -> bool:
        """Whether a writer is open."""
        return self._writer is not None

    def rest(self) -> None:
        """Give up the writer and its threads, after its merges; the next write opens another."""
        with self._writing:
            writer, self._writer = self._writer, None
            if writer is None:
                return
            try:
                writer.wait_merging_threads()
            # A merge that failed (a full disk, a panic of the engine) changes no result: what was
            # committed stays, and the writer is gone either way.
            except BaseException as error:
                if is_interrupt(error):
                    raise

    def committed(self) -> frozenset[str]:
        """The segments of the engine's last commit, read from its files."""
        return committed_segments(self._files)

    def untidy(self, segments: frozenset[str]) -> bool:
        """Whether merges have made other ``segments`` than ``view`` holds, or left files behind."""
        return self._outdated(segments) or self._cluttered(segments)

    def _outdated(self, segments: frozenset[str]) -> bool:
        if self._index is None or self._folding is not None or not self._caught_up:
            return False
        return len(segments) != self.view.base.segments

    def _cluttered(self, segments: frozenset[str]) -> bool:
        if self._index is None or self._writer is not None:
            return False
        return bool(superfluous(self._files, segments) - self._foreign)

    def renew(self) -> None:
        """Let ``view`` see the same chunks in the segments that merges have made."""
        if self._outdated(self.committed()):
            assert self._index is not None
            self._index.reload()
            view = self._view_of(self._base_of(self._index, self._generation), self.view.recent)
            view.inherit(self.view)
            self.view = view

    def clear(self) -> None:
        """Remove files that nothing needs; a running search keeps what it has opened."""
        with self._writing:
            if not self._cluttered(self.committed()):
                return
            assert self._index is not None
            heap_bytes = self._settings.writer_heap_bytes
            writer = self._index.writer(heap_size=heap_bytes, num_threads=1)
            writer.garbage_collect_files()
            # What the engine does not know as its own it leaves: nobody has to come back for it.
            self._foreign = superfluous(self._files, self.committed())

    def close(self) -> None:
        """Give up the writer; what was published stays."""
        self.rest()
        self._index, self._writable = None, False
