"""The lexical index: tantivy segments on disk, one writer, readers that never wait.

tantivy stores, finds and proposes; it counts deleted chunks in its statistics until it merges
them away. So each chunk keeps its term counts as a stored field, and the best proposals are
scored again here with statistics of the living chunks alone: neither a tombstone nor a merge
can be seen in a score.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
import tantivy

from forebay.kernel.documents import ChunkRow
from forebay.kernel.errors import Gone
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.counts import FactsCache, pack_facts
from forebay.retrieval.engine import GuardedSearcher, IndexDamaged, is_interrupt
from forebay.retrieval.files import read_struct, sync_folder, write_struct
from forebay.retrieval.keys import row_keys
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.settings import LexicalSettings
from forebay.retrieval.terms import ANALYSIS_VERSION, Analyzer

_FORMAT = 2
CHINESE = "zh"
_ROWS_PER_BATCH = 256
_INHERITED_CHUNKS_MAX = 512


class Applied(msgspec.Struct, frozen=True):
    """What the lexical index holds: published by renaming this file into place."""

    format: str
    version: int
    generation: int


def build_schema() -> tantivy.Schema:
    """Fields: words, keys for filters, the chunk's number, its length, and facts for scoring."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("keys", tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("chunk", indexed=True, fast=True)
    builder.add_integer_field("length", fast=True)
    builder.add_bytes_field("facts", stored=True)
    return builder.build()


def format_tag(settings: LexicalSettings) -> str:
    """What must be equal for an index on disk to be readable; else it is rebuilt."""
    return (
        f"{_FORMAT}.{ANALYSIS_VERSION}.{version('tantivy')}"
        f".{int(settings.stemming)}.{settings.heading_repeats}"
    )


class LexicalIndex:
    """One knowledge base's words on disk.

    The writer calls ``apply``; readers call ``reload``; both hand out ``view``. Not safe for
    concurrent ``apply``/``reload`` (the owner serialises them); views are safe to share.

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
        self._schema = build_schema()
        self._format = format_tag(settings)
        self._writable = writable
        self._damaged = damaged
        self._writer: tantivy.IndexWriter | None = None
        self._index: tantivy.Index | None = None
        self._generation = -1
        self._published = False
        self._caught_up = False
        self.version = 0
        if writable:
            folder.mkdir(parents=True, exist_ok=True)
        self.view = self._view_of(None, self._schema, -1)
        applied = read_struct(self._sidecar, Applied)
        if applied is not None and self._open(applied):
            self._published = True
        elif writable:
            self.start_over()

    @property
    def _sidecar(self) -> Path:
        return self._folder / "applied"

    def _generation_folder(self, generation: int) -> Path:
        return self._folder / f"lexical-{generation:06d}"

    def _view_of(
        self, searcher: tantivy.Searcher | None, schema: tantivy.Schema, generation: int
    ) -> LexicalView:
        guarded = None
        if searcher is not None:
            guarded = GuardedSearcher(searcher, partial(self._damaged, generation))
        return LexicalView(
            guarded, schema, self._settings, analyzer=self._analyzer, facts=self._facts
        )

    def _open(self, applied: Applied) -> bool:
        """Open what ``applied`` names; False when it is of another format or damaged."""
        if applied.format != self._format:
            return False
        try:
            index = tantivy.Index.open(str(self._generation_folder(applied.generation)))
            index.config_reader("manual")
            view = self._view_of(index.searcher(), index.schema, applied.generation)
        # tantivy reports a missing, torn or foreign directory with half a dozen error types
        # (ValueError, OSError and panics among them); each means the same: build it again.
        except BaseException as error:
            if is_interrupt(error):
                raise
            return False
        self._index, self._schema = index, index.schema
        self._generation, self.version, self.view = applied.generation, applied.version, view
        return True

    def start_over(self) -> None:
        """Begin an empty index in a folder of its own; the next ``apply`` fills and publishes it.

        ``view`` stays as it is until then. Only for the writer.
        """
        self._writer = self._index = None
        # What was read from damaged files may be kept there.
        self._facts = FactsCache(self._settings.counts_cache_bytes)
        self.version = 0
        self._published = self._caught_up = False
        used = [int(p.name[8:]) for p in self._folder.glob("lexical-*") if p.name[8:].isdigit()]
        self._generation = max(used, default=-1) + 1
        folder = self._generation_folder(self._generation)
        folder.mkdir()
        self._schema = build_schema()
        self._index = tantivy.Index(self._schema, path=str(folder))
        self._index.config_reader("manual")

    def _new_writer(self, index: tantivy.Index) -> tantivy.IndexWriter:
        return index.writer(heap_size=self._settings.writer_heap_bytes, num_threads=1)

    def apply(self, feed: IndexFeed, kb: str) -> bool:
        """Catch up with the record and publish; True when anything changed.

        Safe to repeat: a chunk is deleted before it is added, so a crash between the engine's
        commit and the sidecar costs only the same work again.
        """
        if not self._writable:
            raise RuntimeError("this lexical index was opened for reading, or is closed")
        if self._index is None:
            self.start_over()
        try:
            changes = feed.changes(kb, self.version)
        except Gone:
            self.start_over()
            changes = feed.changes(kb, 0)
        if changes.version == self.version and self._published:
            return False
        if changes.added or changes.removed:
            # Not for a replay: there a chunk may be in the index already, and count twice.
            small = len(changes.added) + len(changes.removed) <= _INHERITED_CHUNKS_MAX
            inherits = small and self._caught_up
            before = self.view
            gone = before.hashes(changes.removed if inherits else ())
            view = self._write(changes.removed, _row_batches(feed, kb, changes.added))
            if inherits:
                view.inherit(before, gone, view.hashes(changes.added))
            self.view = view
        elif not self._published:
            self.view = self._new_view()
        self._caught_up = True
        self._publish(changes.version)
        return True

    def _write(self, removed: Iterable[int], added: Iterable[Sequence[ChunkRow]]) -> LexicalView:
        assert self._index is not None
        self._caught_up = False
        writer: tantivy.IndexWriter | None
        writer, self._writer = self._writer or self._new_writer(self._index), None
        try:
            for chunk_id in removed:
                writer.delete_documents_by_term("chunk", chunk_id)
            for batch in added:
                for row in batch:
                    writer.delete_documents_by_term("chunk", row.chunk_id)
                    writer.add_document(self._document(row))
            writer.commit()
        except BaseException:
            # A writer that failed (disk full) is not to be trusted again. The error's traceback
            # keeps this frame: without this line it would keep the folder's lock with it.
            writer = None
            raise
        self._writer = writer
        self._index.reload()
        return self._new_view()

    def _document(self, row: ChunkRow) -> tantivy.Document:
        terms = self._analyzer.document(f"{row.context}\n{row.text}")
        heading = self._analyzer.document("\n".join((row.title, *row.heading_path)))
        terms += heading * self._settings.heading_repeats
        document = tantivy.Document()
        document.add_text("body", " ".join(terms))
        for key in row_keys(row):
            document.add_text("keys", key)
        document.add_integer("chunk", row.chunk_id)
        document.add_integer("length", len(terms))
        document.add_bytes("facts", pack_facts(terms, chinese=row.language == CHINESE))
        return document

    def _publish(self, version: int) -> None:
        first = not self._published
        write_struct(self._sidecar, Applied(self._format, version, self._generation))
        if first:
            sync_folder(self._folder)
            self._remove_other_generations()
        self.version = version
        self._published = True

    def _remove_other_generations(self) -> None:
        """Readers that still have an old generation mapped keep reading it."""
        for folder in self._folder.glob("lexical-*"):
            if folder != self._generation_folder(self._generation):
                shutil.rmtree(folder, ignore_errors=True)

    def reload(self) -> bool:
        """See what the writer has published since; True when there is something new."""
        applied = read_struct(self._sidecar, Applied)
        if applied is None or applied.format != self._format:
            return False
        if applied.generation != self._generation:
            return self._open(applied)
        if applied.version == self.version or self._index is None:
            return False
        try:
            self._index.reload()
            self.view = self._new_view()
        except BaseException as error:  # the engine panics, which Python sees as no Exception
            if is_interrupt(error):
                raise
            self._damaged(self._generation)
            raise IndexDamaged from error
        self.version = applied.version
        return True

    def reopen(self) -> bool:
        """As a reader whose files were damaged: open what the writer has built anew."""
        applied = read_struct(self._sidecar, Applied)
        if applied is None or applied.generation == self._generation:
            return False
        return self._open(applied)

    @property
    def generation(self) -> int:
        """The number of the folder in use; each build from nothing has its own."""
        return self._generation

    def _new_view(self) -> LexicalView:
        assert self._index is not None
        return self._view_of(self._index.searcher(), self._schema, self._generation)

    @property
    def writing(self) -> bool:
        """Whether a writer is open."""
        return self._writer is not None

    def rest(self) -> None:
        """Give up the writer and its threads, after its merges; the next write opens another."""
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

    def close(self) -> None:
        """Give up the writer; what was published stays."""
        self.rest()
        self._index, self._writable = None, False


def _row_batches(
    feed: IndexFeed, kb: str, chunk_ids: Sequence[int]
) -> Iterable[Sequence[ChunkRow]]:
    for start in range(0, len(chunk_ids), _ROWS_PER_BATCH):
        yield feed.rows(kb, chunk_ids[start : start + _ROWS_PER_BATCH])
