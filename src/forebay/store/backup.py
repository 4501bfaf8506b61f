"""A knowledge base as one file: a zip of JSON lines, half-precision vectors and a manifest.

``documents.jsonl`` has one document a line, oldest first; ``vectors.f16`` has the vectors of the
chunks that have one, in the order of their chunks, little-endian rows; ``manifest.json`` names
the format, its version, the counts and the SHA-256 of both.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Annotated, Protocol

import msgspec

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.errors import InvalidRequest, StoreFull
from forebay.kernel.stages import EmbedderSpec
from forebay.store.codec import unpack_mapping, unpack_strings, unpack_text
from forebay.store.rows import KbRow

FORMAT = "forebay-kb"
FORMAT_VERSION = 1
MAX_LINE_BYTES = 1 << 30
"""A longer document line is refused: no parser makes one, a hostile file may."""

_MANIFEST, _DOCUMENTS, _VECTORS = "manifest.json", "documents.jsonl", "vectors.f16"
_MAX_MANIFEST_BYTES = 1 << 20
_LEVEL = 3
_ZIP_START = b"PK\x03\x04"
_MAX_COUNT = 1 << 53
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]


class Manifest(msgspec.Struct, frozen=True):
    """What a backup says of itself."""

    format: str
    format_version: int
    kb: str = ""
    created_at: float = 0.0
    documents: int = 0
    chunks: int = 0
    vectors: int = 0
    embedder: EmbedderSpec | None = None
    reembedding: bool = False
    sha256: Mapping[str, str] = {}


class _Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """``text`` is left out where it is the span of the document's text, as it should be."""

    start: _Count
    end: _Count
    tokens: _Count
    ordinal: _Count
    page: Annotated[int, msgspec.Meta(ge=-_MAX_COUNT, le=_MAX_COUNT)] | None = None
    heading_path: tuple[str, ...] = ()
    context: str = ""
    text: str | None = None
    vector: bool = False


class _Line(msgspec.Struct, frozen=True):
    id: str
    source: str
    content_hash: str
    title: str
    media_type: str
    language: str
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    metadata: Mapping[str, str]
    warnings: tuple[str, ...]
    updated_at: float
    text: str
    chunks: tuple[_Chunk, ...]


class RestoredDocument(msgspec.Struct, frozen=True):
    """A document of a backup; one stored vector or None per chunk."""

    draft: DocumentDraft
    vectors: tuple[bytes | None, ...]
    updated_at: float


# Writing


class _HashingWriter:
    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.digest.update(data)
        self._target.write(data)


def write_backup(connection: sqlite3.Connection, kb: KbRow, path: Path) -> None:
    """Write the kb as ``connection``'s snapshot sees it; ``path`` appears whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=".forebay-export-", dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(connection, kb, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreFull("the disk is full, so no backup was written.") from error
        raise InvalidRequest(
            f"the backup cannot be written: {error.strerror}.", param="path"
        ) from error


def _write(connection: sqlite3.Connection, kb: KbRow, file: IO[bytes]) -> None:
    options = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": _LEVEL}
    with zipfile.ZipFile(file, "w", **options) as archive:  # type: ignore[call-overload]
        with archive.open(_DOCUMENTS, "w", force_zip64=True) as target:
            documents = _HashingWriter(target)
            for line in _lines(connection, kb.id):
                documents.write(msgspec.json.encode(line) + b"\n")
        with archive.open(_stored(_VECTORS), "w", force_zip64=True) as target:
            vectors = _HashingWriter(target)
            for (data,) in connection.execute(
                "SELECT e.data FROM document d JOIN chunk c ON c.id >= d.first_chunk AND "
                "c.id < d.first_chunk + d.chunks JOIN embedding e ON e.chunk = c.id "
                "WHERE d.kb = ? ORDER BY d.first_chunk, d.id, c.id",
                (kb.id,),
            ):
                vectors.write(data)
        digests = {_DOCUMENTS: documents.digest.hexdigest(), _VECTORS: vectors.digest.hexdigest()}
        manifest = Manifest(
            FORMAT,
            FORMAT_VERSION,
            kb.name,
            kb.created_at,
            kb.documents,
            kb.chunks,
            kb.chunks - kb.pending,
            kb.embedder,
            kb.reembedding,
            digests,
        )
        archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def _stored(name: str) -> zipfile.ZipInfo:
    """Vectors do not shrink: stored as they are."""
    return zipfile.ZipInfo(name)


def _lines(connection: sqlite3.Connection, kb: int) -> Iterator[_Line]:
    documents = connection.execute(
        "SELECT d.first_chunk, d.chunks, d.name, d.source, d.content_hash, d.title, d.media_type, "
        "d.language, d.tags, d.groups, d.metadata, d.warnings, d.updated_at, t.data "
        "FROM document d JOIN document_text t ON t.document = d.id WHERE d.kb = ? "
        "ORDER BY d.first_chunk, d.id",
        (kb,),
    )
    for first, count, *head in documents:
        text = unpack_text(head[11])
        chunks = connection.execute(
            "SELECT c.start, c.stop, c.tokens, c.ordinal, c.page, c.heading_path, c.context, "
            "c.text, e.chunk IS NOT NULL FROM chunk c LEFT JOIN embedding e ON e.chunk = c.id "
            "WHERE c.id >= ? AND c.id < ? ORDER BY c.id",
            (first, first + count),
        )
        yield _Line(
            head[0],
            head[1],
            head[2],
            head[3],
            head[4],
            head[5],
            unpack_strings(head[6]),
            unpack_strings(head[7]),
            unpack_mapping(head[8]),
            unpack_strings(head[9]),
            head[10],
            text,
            tuple(_chunk(text, row) for row in chunks),
        )


def _chunk(text: str, row: tuple[int, int, int, int, int | None, str, str, str, int]) -> _Chunk:
    start, end, tokens, ordinal, page, path, context, own, embedded = row
    differs = text[start:end] != own
    return _Chunk(
        start,
        end,
        tokens,
        ordinal,
        page,
        unpack_strings(path),
        context,
        own if differs else None,
        bool(embedded),
    )


# Reading


class _Reading(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...

    def readline(self, limit: int = -1, /) -> bytes: ...


class Backup:
    """An open backup; ``documents`` streams it and checks it on the way."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.manifest = _manifest(archive)

    def documents(self) -> Iterator[RestoredDocument]:
        """Every document; ``InvalidRequest`` at the latest after the last one if any byte is off.

        So the caller must be able to undo what it did with the earlier ones.
        """
        with _reading():
            yield from self._documents()

    def _documents(self) -> Iterator[RestoredDocument]:
        sums = {_DOCUMENTS: hashlib.sha256(), _VECTORS: hashlib.sha256()}
        row_bytes = self.manifest.embedder.dimensions * 2 if self.manifest.embedder else 0
        documents = chunks = vectors = 0
        with self._archive.open(_DOCUMENTS) as lines, self._archive.open(_VECTORS) as rows:
            for line in _read_lines(lines):
                sums[_DOCUMENTS].update(line)
                parsed = msgspec.json.decode(line, type=_Line)
                count = sum(chunk.vector for chunk in parsed.chunks)
                data = _exactly(rows, count * row_bytes)
                sums[_VECTORS].update(data)
                documents += 1
                chunks += len(parsed.chunks)
                vectors += count
                yield _restored(parsed, data, row_bytes)
            if rows.read(1):
                raise _damaged()
        found = {name: digest.hexdigest() for name, digest in sums.items()}
        head = self.manifest
        counts = (head.documents, head.chunks, head.vectors)
        if found != dict(head.sha256) or (documents, chunks, vectors) != counts:
            raise _damaged()


@contextmanager
def _reading() -> Iterator[None]:
    """What the zip and JSON readers raise on a damaged file, as ``InvalidRequest``.

    Wrapped around reading alone: an exception of the caller does not pass through here.
    """
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"the backup cannot be read: {error.strerror or 'input/output error'}.", param="path"
        ) from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        msgspec.MsgspecError,
        EOFError,
        LookupError,
        ValueError,
        RuntimeError,  # also NotImplementedError: an unknown compression or an encrypted member
        OverflowError,
    ) as error:
        raise _damaged() from error


@contextmanager
def open_backup(path: Path) -> Iterator[Backup]:
    """Open a backup for reading; foreign, damaged and newer files are ``InvalidRequest``."""
    with ExitStack() as stack:
        with _reading():
            with path.open("rb") as file:
                if not _ZIP_START.startswith(file.read(len(_ZIP_START))):
                    raise _no_backup()
            archive = stack.enter_context(zipfile.ZipFile(path))
            backup = Backup(archive)
        yield backup


def _manifest(archive: zipfile.ZipFile) -> Manifest:
    if _MANIFEST not in archive.namelist():
        raise _no_backup()
    with archive.open(_MANIFEST) as file:
        data = file.read(_MAX_MANIFEST_BYTES + 1)
    if len(data) > _MAX_MANIFEST_BYTES:
        raise _damaged()
    head = msgspec.json.decode(data, type=Manifest)
    if head.format != FORMAT:
        raise _no_backup()
    if head.format_version > FORMAT_VERSION:
        raise InvalidRequest(
            f"this backup has format {head.format_version}, this Forebay knows {FORMAT_VERSION}; "
            "upgrade Forebay to restore it.",
            param="path",
        )
    if head.vectors and head.embedder is None:
        raise _damaged()
    return head


def _read_lines(file: _Reading) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
            raise _damaged()
        yield line


def _exactly(file: _Reading, count: int) -> bytes:
    data = file.read(count) if count else b""
    if len(data) != count:
        raise _damaged()
    return data


def _restored(line: _Line, data: bytes, size: int) -> RestoredDocument:
    chunks, vectors, at = [], [], 0
    for chunk in line.chunks:
        text = line.text[chunk.start : chunk.end] if chunk.text is None else chunk.text
        chunks.append(
            ChunkDraft(
                chunk.ordinal,
                chunk.start,
                chunk.end,
                text,
                chunk.tokens,
                chunk.page,
                chunk.heading_path,
                chunk.context,
            )
        )
        vectors.append(data[at : at + size] if chunk.vector else None)
        at += size * chunk.vector
    draft = DocumentDraft(
        line.id,
        line.source,
        line.content_hash,
        line.title,
        line.text,
        tuple(chunks),
        line.media_type,
        line.language,
        line.tags,
        line.groups,
        line.metadata,
        line.warnings,
    )
    return RestoredDocument(draft, tuple(vectors), line.updated_at)


def _no_backup() -> InvalidRequest:
    return InvalidRequest(
        "this file is no export of a knowledge base; `forebay kb export` makes one.", param="path"
    )


def _damaged() -> InvalidRequest:
    return InvalidRequest(
        "this backup is damaged or cut short; nothing was restored.", param="path"
    )
