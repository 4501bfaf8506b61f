"""The write side of the record: one process per folder, one transaction per version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

import msgspec

from forebay.kernel.clock import Clock, WallClock
from forebay.kernel.documents import ChunkRow, CommitReceipt, DocumentDraft, KbInfo, Vectors
from forebay.kernel.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ReembedNeeded,
    StoreError,
    StoreFull,
)
from forebay.kernel.sentences import SentenceScale
from forebay.kernel.sizing import Sizing
from forebay.kernel.stages import EmbedderSpec
from forebay.store.backup import open_backup
from forebay.store.changes import DocumentChanges, Sequencer, note_removal
from forebay.store.codec import pack_vectors
from forebay.store.database import open_writer
from forebay.store.faults import translated
from forebay.store.lock import WriterLock
from forebay.store.maintenance import MaintenanceReport, Upkeep, purge_dropped
from forebay.store.reader import StoreReader
from forebay.store.rows import KbRow, find_kb, get_kb
from forebay.store.schema import migrate
from forebay.store.sentences import keep_scale, keep_sentences
from forebay.store.settings import StoreSettings

_BATCH = 500


class StoreWriter:
    """The one writer of a store folder; holds the folder's lock until closed or killed.

    Methods block and exclude one another, so any thread may call them; reads go through
    ``reader``, beside a write. Every method is one transaction: it happens whole, or raises and
    leaves the last commit as it was, with the writer fit for the next call. Errors: ``StoreBusy``
    when another process writes here, ``StoreFull``, ``StoreTooNew``, ``StoreError``.
    """

    def __init__(
        self,
        folder: Path,
        settings: StoreSettings | None = None,
        clock: Clock | None = None,
        sizing: Sizing | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings or StoreSettings()
        self._clock = clock or WallClock()
        self._mutex = RLock()
        self._sequencer = Sequencer()
        self._closed = False
        with translated():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = WriterLock(folder)
        self._lock.acquire()
        try:
            with translated():
                self._connection = open_writer(folder, self._settings)
                try:
                    self.migrated_from, self.schema_version = migrate(self._connection)
                    self._sequencer.load(self._connection)
                except BaseException:
                    self._connection.close()
                    raise
            self.reader = StoreReader(folder, self._settings, sizing)
        except StoreFull as error:
            self._lock.release()
            raise StoreFull(
                "the disk of the store is full: not even opening it is possible, which takes "
                "about 1 MB; what it holds is safe. Free some space and start again."
            ) from error
        except BaseException:
            self._lock.release()
            raise

    @property
    def folder(self) -> Path:
        """The store folder."""
        return self._folder

    def close(self) -> None:
        """Close the files and give the lock back; safe to repeat."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self.reader.close()
            with suppress(sqlite3.Error):
                self._connection.close()
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction of the record: committed at the end, undone by any exception."""
        with self._mutex, translated():
            if self._closed:
                raise StoreError("the store is closed.")
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def outside_transaction(self) -> Iterator[sqlite3.Connection]:
        """The writing connection in autocommit mode, for checkpoints and the like."""
        with self._mutex, translated():
            if self._closed:
                raise StoreError("the store is closed.")
            yield self._connection

    def open_second(self) -> sqlite3.Connection:
        """A second writing connection, for what may run beside commits; the caller closes it."""
        if self._closed:
            raise StoreError("the store is closed.")
        return open_writer(self._folder, self._settings)

    def _undo(self) -> None:
        try:
            if self._connection.in_transaction:  # a full disk may have ended it already
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is of no use any more; a fresh one finds the last commit.
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = open_writer(self._folder, self._settings)

    # Knowledge bases

    def create(self, kb: str) -> KbInfo:
        """Make an empty kb; ``Conflict`` when it exists. ``commit`` makes it when needed."""
        with self.transaction() as connection:
            if find_kb(connection, kb) is not None:
                raise Conflict(f"there is a knowledge base {kb!r} already.", param="kb")
            return self._create(connection, kb).info()

    def _create(self, connection: sqlite3.Connection, kb: str) -> KbRow:
        if not kb:
            raise InvalidRequest("a knowledge base needs a name.", param="kb")
        [[floor]] = connection.execute("SELECT value FROM meta WHERE key = 'version_floor'")
        connection.execute(
            "INSERT INTO kb (name, version, created_at, log_floor) VALUES (?, ?, ?, ?)",
            (kb, floor, self._clock.now(), floor),
        )
        return get_kb(connection, kb)

    def drop(self, kb: str) -> None:
        """Remove a kb with all it holds; ``NotFound`` when there is none.

        It is gone for everybody with the first of several transactions; should the process die
        in between, the next upkeep removes the rest.

        A kb made later under any name starts at a higher version than this one ever had, so an
        index of the old one cannot be taken for an index of the new one.
        """
        with self.transaction() as connection:
            row = get_kb(connection, kb)
            connection.execute(
                "UPDATE meta SET value = max(value, ?) WHERE key = 'version_floor'",
                (row.version + 1,),
            )
            connection.execute("UPDATE kb SET name = NULL WHERE id = ?", (row.id,))
        purge_dropped(self, self._clock.now())

    def import_kb(self, path: Path, name: str | None = None) -> KbInfo:
        """Restore a backup as a new kb, under its own name or ``name``; one version.

        Chunks get new ids. ``Conflict`` when the kb exists, ``InvalidRequest`` when the file is
        damaged, cut, of a newer format or no backup; then nothing is left of it.
        """
        with open_backup(path) as backup, self.transaction() as connection:
            target = name or backup.manifest.kb
            if find_kb(connection, target) is not None:
                raise Conflict(f"there is a knowledge base {target!r} already.", param="kb")
            row = self._create(connection, target)
            changes = self._changes(connection, row)
            for document in backup.documents():
                changes.restore(document.draft, document.vectors, document.updated_at)
            if changes.changed:
                changes.finish()
            spec = backup.manifest.embedder
            if spec is not None:
                self._set_embedder(connection, row, spec)
            connection.execute(
                "UPDATE kb SET created_at = ?, reembed_below = ? WHERE id = ?",
                (
                    backup.manifest.created_at,
                    self._sequencer.mark if backup.manifest.reembedding else 0,
                    row.id,
                ),
            )
            return get_kb(connection, target).info()

    # Documents

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """Remove and put documents as one version; the kb is made when it does not exist.

        Removes come first, then puts in order. Outcomes: ``indexed``, ``replaced``,
        ``unchanged`` (hash, source, title, media type, language, tags, groups and metadata are
        as stored), ``removed``; a remove of a missing document has none. When nothing changed
        the version stays. ``embedded`` says that every document put has all its vectors; those
        of a replaced document are kept where title, headings, context and text are the same.
        """
        with self.transaction() as connection:
            row = find_kb(connection, kb)
            if row is None:
                if not puts:
                    raise NotFound(f"there is no knowledge base {kb!r}.", param="kb")
                row = self._create(connection, kb)
            changes = self._changes(connection, row)
            for document_id in removes:
                changes.remove(document_id)
            for draft in puts:
                changes.put(draft)
            if changes.changed:
                changes.finish()
            version = row.version + changes.changed
        return CommitReceipt(kb, version, tuple(changes.outcomes), not changes.awaiting)

    def _changes(self, connection: sqlite3.Connection, row: KbRow) -> DocumentChanges:
        now, keep_s = self._clock.now(), self._settings.retired_keys_s
        return DocumentChanges(connection, row, self._sequencer, now, keep_s)

    # Vectors

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> list[ChunkRow]:
        """Chunks without a vector of the current embedder, oldest first; of all or one document."""
        return self.reader.pending(kb, limit, document_id)

    def begin_reembed(self, kb: str, spec: EmbedderSpec) -> int:
        """Make ``spec`` the kb's embedder; return the version.

        Nothing happens when it is already. Else the old vectors go (one version), every chunk is
        pending again, and ``check_embedder`` raises for everybody until the last of these chunks
        has its vector.
        """
        with self.transaction() as connection:
            row = get_kb(connection, kb)
            if row.embedder is not None and row.embedder.fingerprint == spec.fingerprint:
                if row.embedder != spec:
                    self._set_embedder(connection, row, spec)
                return row.version
            if row.embedder is None:
                self._set_embedder(connection, row, spec)
                return row.version
            for table in ("embedding", "sentence"):
                connection.execute(f"DELETE FROM {table} WHERE kb = ?", (row.id,))
            note_removal(connection, self._clock.now())
            connection.execute(
                "INSERT OR IGNORE INTO pending SELECT d.kb, c.id FROM document d JOIN chunk c "
                "ON c.id >= d.first_chunk AND c.id < d.first_chunk + d.chunks WHERE d.kb = ?",
                (row.id,),
            )
            connection.execute(
                "UPDATE kb SET version = version + 1, pending = chunks, embedder_since = "
                "version + 1, reembed_below = ? WHERE id = ?",
                (self._sequencer.mark, row.id),
            )
            self._set_embedder(connection, row, spec)
            return row.version + 1

    def _set_embedder(self, connection: sqlite3.Connection, row: KbRow, spec: EmbedderSpec) -> None:
        encoded = msgspec.json.encode(spec).decode()
        connection.execute("UPDATE kb SET embedder = ? WHERE id = ?", (encoded, row.id))

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int:
        """Store vectors as one version and return it; chunks that vanished are skipped.

        The first vectors of a kb name its embedder (``begin_reembed`` beforehand gives it its
        full description). ``ReembedNeeded`` for vectors of another embedder,
        ``InvalidRequest`` for a wrong size or numbers that are not finite.
        """
        matrix = pack_vectors(vectors.data, len(vectors.ids), vectors.dimensions)
        with self.transaction() as connection:
            row = get_kb(connection, kb)
            if not vectors.ids:
                return row.version
            self._match_embedder(connection, row, vectors.dimensions, fingerprint)
            living = _living(connection, row.id, vectors.ids)
            version = row.version + 1
            values = {
                chunk_id: (chunk_id, row.id, version, vector.tobytes())
                for chunk_id, vector in zip(vectors.ids, matrix, strict=True)
                if chunk_id in living
            }
            if not values:
                return row.version
            connection.executemany(
                "INSERT OR REPLACE INTO embedding VALUES (?, ?, ?, ?)", values.values()
            )
            cursor = connection.executemany(
                "DELETE FROM pending WHERE kb = ? AND chunk = ?",
                [(row.id, chunk_id) for chunk_id in values],
            )
            connection.execute(
                "UPDATE kb SET version = version + 1, pending = pending - ? WHERE id = ?",
                (cursor.rowcount, row.id),
            )
            return version

    def store_sentences(self, kb: str, maker: int, made: Mapping[int, bytes]) -> int:
        """Keep what ``maker`` made of chunks' sentences; return of how many.

        No version has them. Chunks that vanished are skipped.
        """
        with self.transaction() as connection:
            return keep_sentences(connection, get_kb(connection, kb).id, maker, made)

    def store_scale(self, maker: int, scale: SentenceScale) -> None:
        """Keep what cosines of unrelated sentences are under ``maker``."""
        with self.transaction() as connection:
            keep_scale(connection, maker, scale)

    def _match_embedder(
        self, connection: sqlite3.Connection, row: KbRow, dimensions: int, fingerprint: str
    ) -> None:
        if row.embedder is None:
            self._set_embedder(
                connection, row, EmbedderSpec(fingerprint, fingerprint, dimensions, 0)
            )
            return
        if row.embedder.fingerprint != fingerprint:
            raise ReembedNeeded(
                f"re-embed needed: this knowledge base was embedded by {row.embedder.name!r}."
            )
        if row.embedder.dimensions != dimensions:
            raise InvalidRequest(
                f"these vectors have {dimensions} dimensions, the knowledge base's have "
                f"{row.embedder.dimensions}."
            )

    # Upkeep

    def maintain(
        self, oldest_needed: Mapping[str, int] | None = None, *, rewrite: bool = False
    ) -> MaintenanceReport:
        """Do background work: prune the change log, remove traces of removals, empty the WAL.

        ``oldest_needed`` is per kb the oldest version an index still catches up from; the log
        of a kb that is not named is kept. ``rewrite`` forces the rewrite that else comes when
        it is due (see ``StoreSettings``). Runs beside commits of other threads but for a rewrite.
        """
        upkeep = Upkeep(self, self._settings, self._clock.now())
        return upkeep.run(oldest_needed or {}, rewrite=rewrite)


def _living(connection: sqlite3.Connection, kb: int, chunk_ids: Sequence[int]) -> frozenset[int]:
    living: set[int] = set()
    for start in range(0, len(chunk_ids), _BATCH):
        part = chunk_ids[start : start + _BATCH]
        marks = ",".join("?" * len(part))
        rows = connection.execute(
            "SELECT c.id FROM chunk c JOIN document d ON d.id = c.document "
            f"WHERE d.kb = ? AND c.id IN ({marks})",
            (kb, *part),
        )
        living.update(chunk_id for (chunk_id,) in rows)
    return frozenset(living)
