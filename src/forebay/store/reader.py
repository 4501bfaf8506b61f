"""The read side of the record: any thread of any process, every call one committed state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from forebay.kernel.chunk_keys import ChunkKey, KeyedChunk
from forebay.kernel.documents import ChangeSet, ChunkRow, DocumentInfo, KbInfo, Vectors
from forebay.kernel.errors import Gone, NotFound, ReembedNeeded, Unavailable
from forebay.kernel.sentences import SentenceScale
from forebay.kernel.sizing import Sizing
from forebay.kernel.stages import EmbedderSpec
from forebay.store.backup import write_backup
from forebay.store.chunk_keys import digests, find_chunk, keyed_document, keys_of
from forebay.store.codec import unpack_mapping, unpack_text, unpack_vectors
from forebay.store.database import ReaderPool, open_reader
from forebay.store.faults import translated
from forebay.store.integrity import problems
from forebay.store.rows import (
    KbRow,
    all_kbs,
    chunk_rows,
    document_info,
    document_page,
    get_kb,
    kb_number,
    vector_blobs,
    visible_info,
)
from forebay.store.sentences import (
    UnreadSentences,
    count_sentences,
    kept_sentences,
    lacking_sentences,
    scale_of,
)
from forebay.store.settings import StoreSettings


class EmbedderState(msgspec.Struct, frozen=True):
    """The embedder whose vectors a kb holds.

    ``since`` is the kb version at which its vectors began: vectors an index took from an
    earlier version are another embedder's. ``reembedding`` holds from ``begin_reembed`` until
    the last chunk has its vector.
    """

    spec: EmbedderSpec
    since: int
    reembedding: bool


class DocumentStamp(msgspec.Struct, frozen=True):
    """What decides whether a file has to be read again."""

    content_hash: str
    metadata: Mapping[str, str]


class Known(msgspec.Struct, frozen=True):
    """Names that mean something at a version: ids of documents, digests of chunks' keys."""

    version: int
    documents: tuple[str, ...]
    digests: tuple[bytes, ...]


class StoreReader:
    """Reads a store folder; safe to share between threads, blocking, never waits for a writer.

    Errors: ``NotFound`` for a kb or document that does not exist, ``StoreTooNew``,
    ``StoreError``, and ``Unavailable`` when no connection comes free in time. ``sizing`` says how
    many connections are worth keeping; None: all that there may be.
    """

    def __init__(
        self, folder: Path, settings: StoreSettings | None = None, sizing: Sizing | None = None
    ) -> None:
        self._folder = folder
        self._settings = settings or StoreSettings()
        self._pool = ReaderPool(folder, self._settings, sizing=sizing)
        self._versions = _Versions(folder, self._settings)
        with self._pool.snapshot():
            pass  # a folder that cannot be read is refused here, not at the first query

    @property
    def folder(self) -> Path:
        """The store folder."""
        return self._folder

    def close(self) -> None:
        """Close every connection; calls under way end first."""
        self._pool.close()
        self._versions.close()

    def check(self, *, deep: bool = True) -> tuple[str, ...]:
        """What is wrong with the record, one sentence each; empty when it is whole.

        Runs SQLite's check and the rules between the tables over the whole file: seconds per
        gigabyte, beside everything else.
        """
        with self._pool.snapshot() as connection:
            return problems(connection, deep=deep)

    def export_kb(self, kb: str, path: Path) -> None:
        """Write a backup of the kb as one file, whole or not at all; an old one is replaced.

        It is one committed state, read beside everything else in bounded memory.
        """
        with self._pool.snapshot() as connection:
            write_backup(connection, get_kb(connection, kb), path)

    # Knowledge bases and documents

    def kbs(self) -> tuple[KbInfo, ...]:
        """Every knowledge base, by name."""
        with self._pool.snapshot() as connection:
            return tuple(row.info() for row in all_kbs(connection))

    def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        """One knowledge base; with ``groups``, counted over the documents that these may read."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, name)
            return row.info() if groups is None else visible_info(connection, row, groups)

    def version(self, kb: str) -> int:
        """The kb's version; a few microseconds while nothing is committed, so fit for polling."""
        versions = self._versions.current()
        if kb not in versions:
            raise NotFound(f"there is no knowledge base {kb!r}.", param="kb")
        return versions[kb]

    def versions(self) -> Mapping[str, int]:
        """The version of every kb, as cheap as ``version``."""
        return self._versions.current()

    def identity(self) -> str:
        """What tells this store from every other, but for its own copies."""
        with self._pool.snapshot() as connection:
            [[value]] = connection.execute("SELECT value FROM meta WHERE key = 'identity'")
            return f"{value & 0xFFFFFFFFFFFFFFFF:016x}"

    def mark(self, kb: str, version: int) -> int | None:
        """What tells a version from others of its number in copies; None: too old, or none."""
        with self._pool.snapshot() as connection:
            rows = connection.execute(
                "SELECT l.mark FROM lineage l JOIN kb ON kb.id = l.kb "
                "WHERE kb.name = ? AND l.version = ?",
                (kb, version),
            ).fetchall()
            return int(rows[0][0]) if rows else None

    def document(self, kb: str, document_id: str) -> DocumentInfo:
        """One document without its text."""
        with self._pool.snapshot() as connection:
            return document_info(connection, get_kb(connection, kb).id, document_id)

    def document_text(self, kb: str, document_id: str) -> str:
        """A document's extracted text."""
        with self._pool.snapshot() as connection:
            row = connection.execute(
                "SELECT t.data FROM document d JOIN document_text t ON t.document = d.id "
                "WHERE d.kb = ? AND d.name = ?",
                (get_kb(connection, kb).id, document_id),
            ).fetchone()
        if row is None:
            raise NotFound(
                f"there is no document {document_id!r} in this knowledge base.", param="id"
            )
        return unpack_text(row[0])

    def documents(
        self, kb: str, *, after: str | None = None, limit: int = 100
    ) -> tuple[DocumentInfo, ...]:
        """A page of documents in id order (by UTF-8 bytes), beginning after ``after``."""
        with self._pool.snapshot() as connection:
            return tuple(document_page(connection, get_kb(connection, kb).id, after, limit))

    # Keys of chunks

    def chunk(self, kb: str, key: ChunkKey) -> KeyedChunk:
        """What a chunk's key stands for, whoever may read it; ``NotFound``: nothing."""
        with self._pool.snapshot() as connection:
            found = find_chunk(connection, get_kb(connection, kb).id, key)
        if found is None:
            raise NotFound(f"there is no chunk {str(key)!r} in this knowledge base.", param="key")
        return found

    def chunk_keys(self, kb: str, document_id: str) -> tuple[ChunkKey, ...]:
        """The keys of a document's chunks, in their order; empty when it does not exist."""
        with self._pool.snapshot() as connection:
            document = keyed_document(connection, get_kb(connection, kb).id, document_id)
            return () if document is None else tuple(keys_of(connection, document))

    def known(self, kb: str, since: int) -> Known:
        """What came after version ``since``: ids of documents, and what keys begin with."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
            names = connection.execute(
                "SELECT name FROM document WHERE kb = ? AND version > ?", (row.id, since)
            )
            ids = tuple(name for (name,) in names)
            return Known(row.version, ids, tuple(digests(connection, row.id, since)))

    def stamps(self, kb: str) -> dict[str, DocumentStamp]:
        """Hash and metadata of every document by id; empty when there is no such kb."""
        with self._pool.snapshot() as connection:
            rows = connection.execute(
                "SELECT d.name, d.content_hash, d.metadata FROM document d "
                "JOIN kb ON kb.id = d.kb WHERE kb.name = ?",
                (kb,),
            )
            return {
                name: DocumentStamp(content_hash, unpack_mapping(metadata))
                for name, content_hash, metadata in rows
            }

    # The index feed

    def changes(self, kb: str, since: int) -> ChangeSet:
        """What happened after version ``since``; 0 asks for everything that lives now.

        Raises ``Gone`` (code ``changes_pruned``) when ``since`` is older than the kept log, newer
        than the record, or of a kb that was dropped and made anew: index from 0 then.
        """
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
            if since and not row.log_floor <= since <= row.version:
                raise Gone(
                    "the changes since that version are not kept; index again from the beginning.",
                    code="changes_pruned",
                )
            return ChangeSet(
                since,
                row.version,
                _added(connection, row, since),
                _removed(connection, row, since),
                _embedded(connection, row, since),
            )

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> list[ChunkRow]:
        """The chunks that still exist, in the order asked."""
        with self._pool.snapshot() as connection:
            return chunk_rows(connection, kb_number(connection, kb), chunk_ids)

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors:
        """The vectors that exist among ``chunk_ids``, in the order asked."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
            dimensions = row.embedder.dimensions if row.embedder is not None else 0
            ids, blobs = vector_blobs(connection, row.id, chunk_ids)
        return Vectors(ids, dimensions, unpack_vectors(blobs, dimensions))

    # Embedding

    def embedder(self, kb: str) -> EmbedderState | None:
        """The kb's embedder, or None before its first vector."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
        if row.embedder is None:
            return None
        return EmbedderState(row.embedder, row.embedder_since, row.reembedding)

    def check_embedder(self, kb: str, spec: EmbedderSpec) -> None:
        """Raise ``ReembedNeeded`` unless queries embedded by ``spec`` fit the kb's vectors."""
        state = self.embedder(kb)
        if state is None:
            return
        if state.spec.fingerprint != spec.fingerprint:
            raise ReembedNeeded(
                f"re-embed needed: this knowledge base was embedded by {state.spec.name!r}, "
                f"not by {spec.name!r}."
            )
        if state.reembedding:
            raise ReembedNeeded("this knowledge base is being re-embedded; search goes by words.")

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> list[ChunkRow]:
        """Chunks without a vector of the current embedder, oldest first; of all or one document."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
            if document_id is None:
                ids = connection.execute(
                    "SELECT chunk FROM pending WHERE kb = ? ORDER BY chunk LIMIT ?", (row.id, limit)
                )
            else:
                ids = connection.execute(
                    "SELECT p.chunk FROM document d JOIN pending p ON p.kb = d.kb "
                    "AND p.chunk >= d.first_chunk AND p.chunk < d.first_chunk + d.chunks "
                    "WHERE d.kb = ? AND d.name = ? ORDER BY p.chunk LIMIT ?",
                    (row.id, document_id, limit),
                )
            return chunk_rows(connection, row.id, [chunk_id for (chunk_id,) in ids])

    # Sentences

    def sentences(
        self, kb: str | None, maker: int, chunk_ids: Sequence[int]
    ) -> Mapping[int, bytes]:
        """What ``maker`` made of the sentences of those among ``chunk_ids`` that have it.

        ``kb`` None: of any kb, for chunks that were found in theirs already.
        """
        with self._pool.snapshot() as connection:
            kb_id = None if kb is None else kb_number(connection, kb)
            return kept_sentences(connection, kb_id, maker, chunk_ids)

    def lacking_sentences(
        self, kb: str, maker: int, after: tuple[int, int], limit: int
    ) -> UnreadSentences:
        """Embedded chunks without vectors for their sentences, after a (version, chunk)."""
        with self._pool.snapshot() as connection:
            row = get_kb(connection, kb)
            return lacking_sentences(connection, row.id, maker, after, limit)

    def count_sentences(self, kb: str, maker: int) -> int:
        """Of how many chunks of ``kb`` ``maker`` made what it makes."""
        with self._pool.snapshot() as connection:
            return count_sentences(connection, get_kb(connection, kb).id, maker)

    def sentence_scale(self, maker: int) -> SentenceScale | None:
        """What cosines of unrelated sentences are under ``maker``; None: nobody measured."""
        with self._pool.snapshot() as connection:
            return scale_of(connection, maker)


def _added(connection: sqlite3.Connection, kb: KbRow, since: int) -> tuple[int, ...]:
    ranges = connection.execute(
        "SELECT first_chunk, chunks FROM document WHERE kb = ? AND version > ?", (kb.id, since)
    )
    return _ids(ranges.fetchall())


def _removed(connection: sqlite3.Connection, kb: KbRow, since: int) -> tuple[int, ...]:
    ranges = connection.execute(
        "SELECT first_chunk, chunks FROM tombstone WHERE kb = ? AND version > ? AND created <= ?",
        (kb.id, since, since),
    )
    return _ids(ranges.fetchall())


def _embedded(connection: sqlite3.Connection, kb: KbRow, since: int) -> tuple[int, ...]:
    rows = connection.execute(
        "SELECT chunk FROM embedding WHERE kb = ? AND version > ?", (kb.id, since)
    )
    return tuple(sorted(chunk_id for (chunk_id,) in rows))


def _ids(ranges: list[tuple[int, int]]) -> tuple[int, ...]:
    ranges.sort()
    return tuple(chunk_id for first, count in ranges for chunk_id in range(first, first + count))


class _Versions:
    """Versions of all kbs, read again only when SQLite says that somebody committed.

    ``PRAGMA data_version`` changes when another connection commits; this one never writes.
    """

    def __init__(self, folder: Path, settings: StoreSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._seen = -1
        self._versions: Mapping[str, int] = {}

    def current(self) -> Mapping[str, int]:
        with self._lock, translated():
            if self._closed:
                raise Unavailable("the store is closed.")
            if self._connection is None:
                self._connection = open_reader(self._folder, self._settings)
            [[seen]] = self._connection.execute("PRAGMA data_version")
            if seen != self._seen:
                # A commit between the two statements only means reading once more next time.
                rows = self._connection.execute(
                    "SELECT name, version FROM kb WHERE name IS NOT NULL"
                ).fetchall()
                self._versions = dict(rows)
                self._seen = seen
            return self._versions

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
