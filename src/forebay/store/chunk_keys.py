"""Keys of chunks in the record: given with the commit, kept by what did not change, retired.

A chunk's key is its document's digest, its place and its document's version, so new documents cost
one entry of an index. Only a chunk that outlived a change of its document has a row of its own
(``kept_key``), and so has every key whose chunk is gone (``retired_key``), for a while: with its
text where another took its place, without where the document was removed or a right withdrawn.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec

from forebay.kernel.chunk_keys import ChunkKey, KeyedChunk, KeyedText, parse_key
from forebay.kernel.documents import ChunkDraft
from forebay.store.codec import pack_strings, pack_text, unpack_strings, unpack_text
from forebay.store.rows import chunk_rows

_KEPT = msgspec.json.Decoder(KeyedText)
_RETIRE = (
    "INSERT INTO retired_key (kb, digest, ordinal, version, document, groups, retired, "
    "retired_at, successor, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class KeyedDocument(msgspec.Struct, frozen=True):
    """Where a document's chunks and keys are; ``groups`` as the record packs them."""

    name: str
    version: int
    digest: bytes
    first_chunk: int
    chunks: int
    groups: str

    @property
    def span(self) -> tuple[int, int]:
        """First and last chunk id."""
        return self.first_chunk, self.first_chunk + self.chunks - 1


class Before(msgspec.Struct, frozen=True):
    """A document's chunks and keys before it is replaced or removed, in order."""

    document: KeyedDocument
    keys: list[ChunkKey]
    texts: list[tuple[str, str, str]]


class KeyRegistry:
    """Keeps the keys of one knowledge base inside the transaction of a commit.

    ``version`` is the one being made; ``keep_s`` 0: no text outlives its chunk.
    """

    def __init__(
        self, connection: sqlite3.Connection, kb: int, version: int, now: float, keep_s: float
    ) -> None:
        self._connection = connection
        self._kb = kb
        self._version = version
        self._now = now
        self._keep_s = keep_s

    def before(self, document: KeyedDocument) -> Before:
        """What there is, read before anything is removed."""
        texts = self._connection.execute(
            "SELECT heading_path, context, text FROM chunk WHERE id BETWEEN ? AND ? ORDER BY id",
            document.span,
        ).fetchall()
        return Before(document, keys_of(self._connection, document), texts)

    def removed(self, before: Before) -> None:
        """The document is gone: its keys say so for a while, and nothing else stays of it."""
        name = before.document.name
        self._forget_texts(name)
        self._connection.execute(
            "UPDATE retired_key SET document = NULL, successor = NULL "
            "WHERE kb = ? AND document = ?",
            (self._kb, name),
        )
        rows = [
            self._row(key, None, before.document.groups, None, None)
            for key in before.keys
            if key.version < self._version  # what this very commit made never lived
        ]
        self._connection.executemany(_RETIRE, rows)
        self._connection.execute(
            "DELETE FROM kept_key WHERE chunk BETWEEN ? AND ?", before.document.span
        )

    def replaced(
        self, before: Before, after: KeyedDocument, chunks: Sequence[ChunkDraft], *, same: bool
    ) -> None:
        """Chunks with the same text and headings keep their keys where ``same`` titles; the others
        are retired. The text of those stays readable, unless somebody lost the right to it.
        """
        self._connection.execute(
            "DELETE FROM kept_key WHERE chunk BETWEEN ? AND ?", before.document.span
        )
        matched = _matched(before.texts, chunks if same else ())
        self._connection.executemany(
            "INSERT INTO kept_key VALUES (?, ?, ?, ?)",
            [
                (after.first_chunk + new, *msgspec.structs.astuple(before.keys[old]))
                for old, new in matched.items()
            ],
        )
        withdrawn = _withdrawn(before.document.groups, after.groups)
        if withdrawn:
            self._forget_texts(after.name)
        taken, shift = set(matched.values()), 0
        rows = []
        for old, key in enumerate(before.keys):
            if old in matched:
                shift = matched[old] - old
            elif key.version < self._version:  # else this very commit made it, and it never lived
                # What stands as far behind the last common chunk took its place, if it is new.
                place = old + shift
                fresh = place < len(chunks) and place not in taken
                successor = str(ChunkKey(after.digest, place, self._version)) if fresh else None
                data = None if withdrawn or not self._keep_s else _packed(*before.texts[old])
                rows.append(self._row(key, after.name, before.document.groups, successor, data))
        self._connection.executemany(_RETIRE, rows)

    def _row(
        self,
        key: ChunkKey,
        name: str | None,
        groups: str,
        successor: str | None,
        data: bytes | None,
    ) -> tuple[object, ...]:
        parts = (self._kb, key.digest, key.ordinal, key.version)
        return (*parts, name, groups, self._version, self._now, successor, data)

    def _forget_texts(self, name: str) -> None:
        self._connection.execute(
            "UPDATE retired_key SET data = NULL WHERE kb = ? AND document = ?", (self._kb, name)
        )


def _matched(texts: Sequence[tuple[str, str, str]], chunks: Sequence[ChunkDraft]) -> dict[int, int]:
    """Old place to new place of chunks that say the same, in order among equal ones."""
    places: dict[tuple[str, str, str], deque[int]] = defaultdict(deque)
    for place, chunk in enumerate(chunks):
        places[pack_strings(chunk.heading_path), chunk.context, chunk.text].append(place)
    found = {}
    for old, content in enumerate(texts):
        if waiting := places.get(content):
            found[old] = waiting.popleft()
    return found


def _withdrawn(before: str, after: str) -> bool:
    """Whether a group that could read a document cannot any more; no groups: everybody can."""
    readers, wanted = set(unpack_strings(after)), set(unpack_strings(before))
    return bool(readers) and (not wanted or not wanted <= readers)


def _packed(path: str, context: str, text: str) -> bytes:
    kept = KeyedText(text, context, unpack_strings(path))
    return pack_text(msgspec.json.encode(kept).decode())


def keys_of(connection: sqlite3.Connection, document: KeyedDocument) -> list[ChunkKey]:
    """The keys of a document's chunks, in their order."""
    keys = [ChunkKey(document.digest, at, document.version) for at in range(document.chunks)]
    rows = connection.execute(
        "SELECT chunk, digest, ordinal, version FROM kept_key WHERE chunk BETWEEN ? AND ?",
        document.span,
    )
    for chunk, *parts in rows:
        keys[chunk - document.first_chunk] = ChunkKey(*parts)
    return keys


def keyed_document(connection: sqlite3.Connection, kb: int, name: str) -> KeyedDocument | None:
    """Where the keys of a document are; None when there is no such document."""
    row = connection.execute(
        "SELECT name, version, digest, first_chunk, chunks, groups FROM document "
        "WHERE kb = ? AND name = ?",
        (kb, name),
    ).fetchone()
    return None if row is None else KeyedDocument(*row)


def find_chunk(connection: sqlite3.Connection, kb: int, key: ChunkKey) -> KeyedChunk | None:
    """What the record says of a key, readable or not; None: it never was, or was forgotten."""
    rows = chunk_rows(connection, kb, _living(connection, kb, key))
    if not rows:
        return _retired(connection, kb, key)
    chunk = rows[0]
    kept = KeyedText(chunk.text, chunk.context, chunk.heading_path)
    return KeyedChunk(key, "living", chunk.document_id, (chunk.groups,), kept, chunk)


def _living(connection: sqlite3.Connection, kb: int, key: ChunkKey) -> list[int]:
    """Ids of the chunk that has the key, its own or its document's; of any kb, where kept."""
    found = connection.execute(
        "SELECT chunk FROM kept_key WHERE digest = ? AND ordinal = ? AND version = ?",
        (key.digest, key.ordinal, key.version),
    ).fetchall()
    found += connection.execute(
        "SELECT d.first_chunk + ?1 FROM document d WHERE d.kb = ?2 AND d.digest = ?3 "
        "AND d.version = ?4 AND d.chunks > ?1 AND NOT EXISTS "
        "(SELECT 1 FROM kept_key k WHERE k.chunk = d.first_chunk + ?1)",
        (key.ordinal, kb, key.digest, key.version),
    ).fetchall()
    return [chunk for (chunk,) in found]


def _retired(connection: sqlite3.Connection, kb: int, key: ChunkKey) -> KeyedChunk | None:
    row = connection.execute(
        "SELECT r.groups, d.groups, r.document, r.retired_at, r.successor, r.data "
        "FROM retired_key r LEFT JOIN document d ON d.kb = r.kb AND d.name = r.document "
        "WHERE r.kb = ? AND r.digest = ? AND r.ordinal = ? AND r.version = ?",
        (kb, key.digest, key.ordinal, key.version),
    ).fetchone()
    if row is None:
        return None
    *groups, name, retired_at, successor, data = row
    return KeyedChunk(
        key,
        "deprecated" if data is None else "superseded",
        name,
        # Whoever asks must have had the right to the old text and have it to the document still.
        tuple(unpack_strings(each) for each in groups if each is not None),
        None if data is None else _KEPT.decode(unpack_text(data)),
        retired_at=retired_at,
        successor=None if successor is None else parse_key(successor),
    )


def digests(connection: sqlite3.Connection, kb: int, since: int) -> list[bytes]:
    """What keys begin with that came or were retired after version ``since``; 0: all there are."""
    rows = connection.execute(
        "SELECT digest FROM document WHERE kb = ?1 AND version > ?2 UNION "
        "SELECT k.digest FROM document d JOIN kept_key k ON k.chunk >= d.first_chunk "
        "AND k.chunk < d.first_chunk + d.chunks WHERE d.kb = ?1 AND d.version > ?2 UNION "
        "SELECT digest FROM retired_key WHERE kb = ?1 AND retired > ?2",
        (kb, since),
    )
    return [digest for (digest,) in rows]


def forget_retired(connection: sqlite3.Connection, before: float, keep: int, limit: int) -> int:
    """Forget up to ``limit`` keys retired before a time, or beyond the ``keep`` latest of all."""
    cursor = connection.execute(
        "DELETE FROM retired_key WHERE id IN (SELECT id FROM retired_key "
        "WHERE retired_at < ?1 OR id <= (SELECT max(id) FROM retired_key) - ?2 "
        "ORDER BY id LIMIT ?3)",
        (before, keep, limit),
    )
    return cursor.rowcount
