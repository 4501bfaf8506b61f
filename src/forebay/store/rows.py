"""From database rows to the kernel's values."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from forebay.kernel.documents import ChunkRow, DocumentInfo, KbInfo
from forebay.kernel.errors import NotFound
from forebay.kernel.stages import EmbedderSpec
from forebay.store.codec import unpack_mapping, unpack_strings

_GROUPS = (1, 8, 32, 128, 512)
"""Sizes of id lists a statement is prepared for; a shorter list is filled up with its last id."""

_KB = (
    "SELECT id, name, version, created_at, log_floor, documents, chunks, pending, characters, "
    "embedder, embedder_since, EXISTS (SELECT 1 FROM pending p WHERE p.kb = kb.id "
    "AND p.chunk < kb.reembed_below) FROM kb"
)
_CHUNKS = (
    "SELECT c.id, c.document, c.ordinal, c.start, c.stop, c.text, c.context, c.tokens, c.page, "
    "c.heading_path, d.name, d.title, d.source, d.language, d.tags, d.groups, d.metadata, "
    "d.version FROM chunk c JOIN document d ON d.id = c.document WHERE d.kb = ? AND c.id IN "
)
_DOCUMENTS = (
    "SELECT d.name, d.source, d.content_hash, d.title, d.media_type, d.language, d.tags, "
    "d.groups, d.metadata, d.warnings, d.chunks, d.characters, d.version, d.updated_at, "
    "NOT EXISTS (SELECT 1 FROM pending p WHERE p.kb = d.kb AND p.chunk >= d.first_chunk "
    "AND p.chunk < d.first_chunk + d.chunks) FROM document d WHERE d.kb = ? "
)
_TOTALS = (
    "SELECT d.groups, count(*), sum(d.chunks), sum(d.characters), "
    "sum((SELECT count(*) FROM pending p WHERE p.kb = d.kb AND p.chunk >= d.first_chunk "
    "AND p.chunk < d.first_chunk + d.chunks)) FROM document d WHERE d.kb = ? GROUP BY d.groups"
)


class KbRow(msgspec.Struct, frozen=True):
    """A knowledge base as its row says."""

    id: int
    name: str
    version: int
    created_at: float
    log_floor: int
    documents: int
    chunks: int
    pending: int
    characters: int
    embedder: EmbedderSpec | None
    embedder_since: int
    reembedding: bool

    def info(self) -> KbInfo:
        """What outsiders see of it."""
        return KbInfo(
            name=self.name,
            version=self.version,
            documents=self.documents,
            chunks=self.chunks,
            embedded_chunks=self.chunks - self.pending,
            characters=self.characters,
            embedder=self.embedder.name if self.embedder is not None else None,
            created_at=self.created_at,
        )


def _kb_row(row: Sequence[object]) -> KbRow:
    values = list(row)
    spec = values[9]
    values[9] = (
        msgspec.json.decode(spec, type=EmbedderSpec) if isinstance(spec, str | bytes) else None
    )
    values[11] = bool(values[11])
    return KbRow(*values)  # type: ignore[arg-type]


def find_kb(connection: sqlite3.Connection, name: str) -> KbRow | None:
    """The kb of that name, or None."""
    row = connection.execute(f"{_KB} WHERE name = ?", (name,)).fetchone()
    return None if row is None else _kb_row(row)


def get_kb(connection: sqlite3.Connection, name: str) -> KbRow:
    """The kb of that name; ``NotFound`` when there is none."""
    row = find_kb(connection, name)
    if row is None:
        raise NotFound(f"there is no knowledge base {name!r}.", param="kb")
    return row


def kb_number(connection: sqlite3.Connection, name: str) -> int:
    """The id of the kb of that name, in a fourth of the time; ``NotFound`` when there is none."""
    row = connection.execute("SELECT id FROM kb WHERE name = ?", (name,)).fetchone()
    return get_kb(connection, name).id if row is None else int(row[0])


def all_kbs(connection: sqlite3.Connection) -> list[KbRow]:
    """Every kb, by name."""
    return [
        _kb_row(row) for row in connection.execute(f"{_KB} WHERE name IS NOT NULL ORDER BY name")
    ]


def visible_info(connection: sqlite3.Connection, row: KbRow, groups: frozenset[str]) -> KbInfo:
    """The kb as if it held only the documents that ``groups`` may read; reads every document."""
    documents = chunks = characters = pending = 0
    for packed, *counted in connection.execute(_TOTALS, (row.id,)):
        readers = unpack_strings(packed)
        if not readers or not groups.isdisjoint(readers):
            documents += counted[0]
            chunks += counted[1]
            characters += counted[2]
            pending += counted[3]
    return msgspec.structs.replace(
        row, documents=documents, chunks=chunks, characters=characters, pending=pending
    ).info()


def _filled(ids: Sequence[int]) -> tuple[str, list[int]]:
    size = next(size for size in _GROUPS if size >= len(ids))
    marks = ",".join("?" * size)
    return f"({marks})", [*ids, *([ids[-1]] * (size - len(ids)))]


def chunk_rows(connection: sqlite3.Connection, kb: int, chunk_ids: Sequence[int]) -> list[ChunkRow]:
    """The chunks of ``kb`` that exist among ``chunk_ids``, in the order asked."""
    found: dict[int, ChunkRow] = {}
    shared: dict[int, _Shared] = {}
    for start in range(0, len(chunk_ids), _GROUPS[-1]):
        marks, ids = _filled(chunk_ids[start : start + _GROUPS[-1]])
        for row in connection.execute(_CHUNKS + marks, (kb, *ids)):
            document = shared.get(row[1])
            if document is None:
                document = shared[row[1]] = _Shared(*row[10:])
            found[row[0]] = document.chunk(row)
    return [found[chunk_id] for chunk_id in chunk_ids if chunk_id in found]


class _Shared:
    """What the chunks of one document have in common, decoded once."""

    __slots__ = (
        "groups",
        "language",
        "metadata",
        "name",
        "source",
        "tags",
        "title",
        "version",
    )

    def __init__(self, *row: str) -> None:
        self.name, self.title, self.source, self.language = row[0:4]
        self.tags = unpack_strings(row[4])
        self.groups = unpack_strings(row[5])
        self.metadata = unpack_mapping(row[6])
        self.version = int(row[7])

    def chunk(self, row: Sequence[object]) -> ChunkRow:
        chunk_id, _, ordinal, start, stop, text, context, tokens, page, heading_path = row[:10]
        return ChunkRow(
            chunk_id,  # type: ignore[arg-type]
            self.name,
            ordinal,  # type: ignore[arg-type]
            start,  # type: ignore[arg-type]
            stop,  # type: ignore[arg-type]
            text,  # type: ignore[arg-type]
            context,  # type: ignore[arg-type]
            tokens,  # type: ignore[arg-type]
            page,  # type: ignore[arg-type]
            unpack_strings(heading_path),  # type: ignore[arg-type]
            self.title,
            self.source,
            self.language,
            self.tags,
            self.groups,
            self.metadata,
            self.version,
        )


def vector_blobs(
    connection: sqlite3.Connection, kb: int, chunk_ids: Sequence[int]
) -> tuple[tuple[int, ...], list[bytes]]:
    """Ids and stored vectors that exist among ``chunk_ids``, in the order asked."""
    found: dict[int, bytes] = {}
    for start in range(0, len(chunk_ids), _GROUPS[-1]):
        marks, ids = _filled(chunk_ids[start : start + _GROUPS[-1]])
        statement = f"SELECT chunk, data FROM embedding WHERE +kb = ? AND chunk IN {marks}"
        found.update(connection.execute(statement, (kb, *ids)))
    ids_found = tuple(chunk_id for chunk_id in chunk_ids if chunk_id in found)
    return ids_found, [found[chunk_id] for chunk_id in ids_found]


def document_info(connection: sqlite3.Connection, kb: int, name: str) -> DocumentInfo:
    """One document; ``NotFound`` when there is none."""
    row = connection.execute(f"{_DOCUMENTS} AND d.name = ?", (kb, name)).fetchone()
    if row is None:
        raise NotFound(f"there is no document {name!r} in this knowledge base.", param="id")
    return _document(row)


def document_page(
    connection: sqlite3.Connection, kb: int, after: str | None, limit: int
) -> list[DocumentInfo]:
    """Documents in id order (by UTF-8 bytes) after ``after``."""
    statement = f"{_DOCUMENTS} AND d.name > ? ORDER BY d.name LIMIT ?"
    # every id sorts after the empty string, and an id is never empty
    rows = connection.execute(statement, (kb, after or "", limit))
    return [_document(row) for row in rows]


def _document(row: Sequence[object]) -> DocumentInfo:
    values = list(row)
    for position in (6, 7, 9):
        values[position] = unpack_strings(values[position])  # type: ignore[arg-type]
    values[8] = unpack_mapping(values[8])  # type: ignore[arg-type]
    values[14] = bool(values[14])
    return DocumentInfo(*values)  # type: ignore[arg-type]
