"""One commit's statements: documents in and out inside an open write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from forebay.kernel.chunk_keys import document_digest
from forebay.kernel.documents import ChunkDraft, DocumentDraft, Outcome
from forebay.kernel.errors import InvalidRequest
from forebay.store.chunk_keys import KeyedDocument, KeyRegistry
from forebay.store.codec import pack_mapping, pack_strings, pack_text
from forebay.store.rows import KbRow
from forebay.store.sentences import keep_sentences, sentences_by_content

_HEAD = "content_hash, source, title, media_type, language, tags, groups, metadata"
_HEAD_GROUPS = 6
_INSERT_DOCUMENT = (
    "INSERT INTO document (kb, name, version, first_chunk, chunks, characters, updated_at, "
    f"{_HEAD}, warnings, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_CHUNK = "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Sequencer:
    """Chunk ids: from the record's own row, never lowered by a rollback, never reused."""

    def __init__(self) -> None:
        self._next = 1

    def load(self, connection: sqlite3.Connection) -> None:
        """Take up the record's mark; ids given to a rolled-back commit stay used."""
        [[value]] = connection.execute("SELECT value FROM meta WHERE key = 'next_chunk'")
        self._next = max(self._next, value)

    def take(self, count: int) -> int:
        """The first of ``count`` contiguous ids."""
        first = self._next
        self._next += count
        return first

    @property
    def mark(self) -> int:
        """Every id given so far is smaller."""
        return self._next

    def save(self, connection: sqlite3.Connection) -> None:
        """Write the mark; belongs into the transaction whose ids it covers."""
        connection.execute("UPDATE meta SET value = ? WHERE key = 'next_chunk'", (self._next,))


class _Stored(msgspec.Struct, frozen=True):
    id: int
    version: int
    first_chunk: int
    chunks: int
    characters: int
    digest: bytes
    head: tuple[str, ...]

    def keyed(self, name: str) -> KeyedDocument:
        """What its chunks' keys are made of."""
        groups = self.head[_HEAD_GROUPS]
        return KeyedDocument(name, self.version, self.digest, self.first_chunk, self.chunks, groups)

    @property
    def last_chunk(self) -> int:
        return self.first_chunk + self.chunks - 1


class DocumentChanges:
    """Applies puts and removes to one kb and keeps its counters."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        kb: KbRow,
        sequencer: Sequencer,
        now: float,
        retired_keys_s: float,
    ) -> None:
        self._connection = connection
        self._kb = kb
        self._sequencer = sequencer
        self._now = now
        self._version = kb.version + 1
        self._keys = KeyRegistry(connection, kb.id, self._version, now, retired_keys_s)
        self._documents = self._chunks = self._pending = self._characters = 0
        self._removed = False
        self.changed = False
        self._awaiting: set[str] = set()
        self.outcomes: list[tuple[str, Outcome]] = []

    @property
    def awaiting(self) -> bool:
        """Whether a document that was put lacks a vector."""
        return bool(self._awaiting)

    def remove(self, document_id: str) -> None:
        """Remove a document; no outcome when there is none."""
        stored = self._find(document_id)
        if stored is not None:
            self._keys.removed(self._keys.before(stored.keyed(document_id)))
            self._delete(stored)
            self.outcomes.append((document_id, "removed"))

    def put(self, draft: DocumentDraft) -> None:
        """Add, replace or leave a document."""
        if not draft.document_id:
            raise InvalidRequest("a document id cannot be empty.", param="id")
        head = _head(draft)
        stored = self._find(draft.document_id)
        if stored is not None and stored.head == head:
            self.outcomes.append((draft.document_id, "unchanged"))
            if self._lacks_vectors(stored):
                self._awaiting.add(draft.document_id)
            return
        if stored is None:
            self._insert(draft, head, None, self._now)
        else:
            self._replace(stored, draft, head)
        self.outcomes.append((draft.document_id, "replaced" if stored else "indexed"))

    def _replace(self, stored: _Stored, draft: DocumentDraft, head: tuple[str, ...]) -> None:
        before = self._keys.before(stored.keyed(draft.document_id))
        same = stored.head[2] == draft.title
        kept = self._vectors_by_content(stored) if same else {}
        span = (stored.first_chunk, stored.last_chunk)
        sentences = sentences_by_content(self._connection, *span) if same else {}
        self._delete(stored)
        vectors = [kept.get(_content(chunk)) for chunk in draft.chunks] if kept else None
        after = self._insert(draft, head, vectors, self._now)
        self._insert_sentences(after.first_chunk, draft.chunks, sentences)
        self._keys.replaced(before, after, draft.chunks, same=same)

    def restore(
        self, draft: DocumentDraft, vectors: Sequence[bytes | None], updated_at: float
    ) -> None:
        """Add a document of a backup with the stored vectors of its chunks."""
        if self._find(draft.document_id) is not None:
            raise InvalidRequest("the backup holds a document twice.")
        self._insert(draft, _head(draft), vectors, updated_at)

    def finish(self) -> None:
        """Write the counters and the new version of the kb."""
        self._sequencer.save(self._connection)
        if self._removed:
            note_removal(self._connection, self._now)
        self._connection.execute(
            "UPDATE kb SET version = ?, documents = documents + ?, chunks = chunks + ?, "
            "pending = pending + ?, characters = characters + ? WHERE id = ?",
            (
                self._version,
                self._documents,
                self._chunks,
                self._pending,
                self._characters,
                self._kb.id,
            ),
        )

    def _find(self, document_id: str) -> _Stored | None:
        row = self._connection.execute(
            f"SELECT id, version, first_chunk, chunks, characters, digest, {_HEAD} "
            "FROM document WHERE kb = ? AND name = ?",
            (self._kb.id, document_id),
        ).fetchone()
        if row is None:
            return None
        document, version, first, chunks, characters, digest, *head = row
        return _Stored(document, version, first, chunks, characters, digest, tuple(head))

    def _lacks_vectors(self, stored: _Stored) -> bool:
        return (
            self._connection.execute(
                "SELECT 1 FROM pending WHERE kb = ? AND chunk BETWEEN ? AND ? LIMIT 1",
                (self._kb.id, stored.first_chunk, stored.last_chunk),
            ).fetchone()
            is not None
        )

    def _vectors_by_content(self, stored: _Stored) -> dict[tuple[str, str, str], bytes]:
        """Vectors that fit a new chunk too: same title, headings, context and text."""
        rows = self._connection.execute(
            "SELECT c.heading_path, c.context, c.text, e.data FROM chunk c "
            "JOIN embedding e ON e.chunk = c.id WHERE c.id BETWEEN ? AND ?",
            (stored.first_chunk, stored.last_chunk),
        )
        return {(path, context, text): data for path, context, text, data in rows}

    def _delete(self, stored: _Stored) -> None:
        execute = self._connection.execute
        span = (stored.first_chunk, stored.last_chunk)
        execute("DELETE FROM embedding WHERE chunk BETWEEN ? AND ?", span)
        execute("DELETE FROM sentence WHERE chunk BETWEEN ? AND ?", span)
        cursor = execute(
            "DELETE FROM pending WHERE kb = ? AND chunk BETWEEN ? AND ?", (self._kb.id, *span)
        )
        self._pending -= cursor.rowcount
        execute("DELETE FROM chunk WHERE id BETWEEN ? AND ?", span)
        execute("DELETE FROM document_text WHERE document = ?", (stored.id,))
        execute("DELETE FROM document WHERE id = ?", (stored.id,))
        # What this very commit made and removed again never lived at any version.
        if stored.chunks and stored.version < self._version:
            execute(
                "INSERT INTO tombstone VALUES (?, ?, ?, ?, ?)",
                (self._kb.id, self._version, stored.first_chunk, stored.chunks, stored.version),
            )
        self._documents -= 1
        self._chunks -= stored.chunks
        self._characters -= stored.characters
        self.changed = self._removed = True

    def _insert(
        self,
        draft: DocumentDraft,
        head: tuple[str, ...],
        vectors: Sequence[bytes | None] | None,
        updated_at: float,
    ) -> KeyedDocument:
        execute = self._connection.execute
        count = len(draft.chunks)
        digest = document_digest(self._kb.name, draft.document_id, draft.title, draft.content_hash)
        first = self._sequencer.take(count)
        facts = (first, count, len(draft.text), updated_at)
        cursor = execute(
            _INSERT_DOCUMENT,
            (
                self._kb.id,
                draft.document_id,
                self._version,
                *facts,
                *head,
                pack_strings(draft.warnings),
                digest,
            ),
        )
        document = cursor.lastrowid
        execute("INSERT INTO document_text VALUES (?, ?)", (document, pack_text(draft.text)))
        rows = [_chunk(first + at, document, chunk) for at, chunk in enumerate(draft.chunks)]
        self._connection.executemany(_INSERT_CHUNK, rows)
        if self._insert_vectors(first, vectors or [None] * count):
            self._awaiting.add(draft.document_id)
        else:
            self._awaiting.discard(draft.document_id)  # put twice in one commit: the last counts
        self._documents += 1
        self._chunks += count
        self._characters += len(draft.text)
        self.changed = True
        return KeyedDocument(
            draft.document_id, self._version, digest, first, count, head[_HEAD_GROUPS]
        )

    def _insert_vectors(self, first: int, vectors: Sequence[bytes | None]) -> bool:
        """Store what there is; whether any chunk lacks its vector."""
        kb = self._kb.id
        lacking = [(kb, first + at) for at, data in enumerate(vectors) if data is None]
        kept = [
            (first + at, kb, self._version, data)
            for at, data in enumerate(vectors)
            if data is not None
        ]
        self._connection.executemany("INSERT INTO pending VALUES (?, ?)", lacking)
        self._connection.executemany("INSERT INTO embedding VALUES (?, ?, ?, ?)", kept)
        self._pending += len(lacking)
        return bool(lacking)

    def _insert_sentences(
        self,
        first: int,
        chunks: Sequence[ChunkDraft],
        kept: Mapping[tuple[str, str, str], tuple[int, bytes]],
    ) -> None:
        """What the sentences of chunks that stayed as they were had."""
        for at, chunk in enumerate(chunks if kept else ()):
            if (had := kept.get(_content(chunk))) is not None:
                keep_sentences(self._connection, self._kb.id, had[0], {first + at: had[1]})


def _content(chunk: ChunkDraft) -> tuple[str, str, str]:
    return pack_strings(chunk.heading_path), chunk.context, chunk.text


def note_removal(connection: sqlite3.Connection, now: float) -> None:
    """Leave word for upkeep that something was removed, and when the first time."""
    connection.execute(
        "UPDATE meta SET value = ? WHERE key = 'removals' AND value = 0", (max(1, int(now)),)
    )


def _head(draft: DocumentDraft) -> tuple[str, ...]:
    """The columns that decide between unchanged and replaced, in the order of ``_HEAD``."""
    return (
        draft.content_hash,
        draft.source,
        draft.title,
        draft.media_type,
        draft.language,
        pack_strings(draft.tags),
        pack_strings(draft.groups),
        pack_mapping(draft.metadata),
    )


def _chunk(chunk_id: int, document: int | None, chunk: ChunkDraft) -> tuple[int | str | None, ...]:
    return (
        chunk_id,
        document,
        chunk.ordinal,
        chunk.start,
        chunk.end,
        chunk.tokens,
        chunk.page,
        pack_strings(chunk.heading_path),
        chunk.context,
        chunk.text,
    )
