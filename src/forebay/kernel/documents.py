"""Documents, blocks, chunks and hits: what flows from a file to a citation.

All offsets are **character** offsets (Python ``str`` indices) into a document's extracted text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

BlockKind = Literal["heading", "paragraph", "list_item", "code", "table_row", "table_header"]
Outcome = Literal["indexed", "unchanged", "replaced", "removed", "skipped", "failed"]


class Block(msgspec.Struct, frozen=True, gc=False):
    """One structural piece of an extracted text: ``text[start:end]``.

    ``level`` is 1-6 for headings, the nesting depth for list items, 0 elsewhere. ``page`` is
    1-based, or None where the format has no pages. ``table`` numbers the table a row or header
    belongs to, so that a chunker can repeat the header.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    page: int | None = None
    table: int | None = None


class Extracted(msgspec.Struct, frozen=True):
    """What a parser got out of a file's bytes.

    ``blocks`` are ordered and do not overlap. ``warnings`` are sentences a person can act on
    ("encoding guessed as GB18030 with low confidence"). ``encoding`` is None for binary formats.
    """

    text: str
    blocks: tuple[Block, ...]
    media_type: str
    title: str = ""
    language: str = ""
    encoding: str | None = None
    metadata: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()


class ChunkDraft(msgspec.Struct, frozen=True, gc=False):
    """A chunk before it is stored; ``text == document.text[start:end]`` always holds.

    ``context`` is what is not inside the span but belongs to reading it (a repeated table
    header): it is indexed and shown to models with the text, never counted in the span.
    """

    ordinal: int
    start: int
    end: int
    text: str
    tokens: int
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    context: str = ""


class DocumentDraft(msgspec.Struct, frozen=True):
    """A document on its way into the store.

    Identity is ``(kb, document_id)``; ``content_hash`` (SHA-256 hex of the source bytes plus
    whatever else would change the result) decides between unchanged and replaced. ``groups``
    empty means readable by every group of every tenant that may read the knowledge base.
    """

    document_id: str
    source: str
    content_hash: str
    title: str
    text: str
    chunks: tuple[ChunkDraft, ...]
    media_type: str = "text/plain"
    language: str = ""
    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()


class DocumentInfo(msgspec.Struct, frozen=True):
    """A stored document without its text; ``version`` is the kb version that wrote it."""

    document_id: str
    source: str
    content_hash: str
    title: str
    media_type: str
    language: str
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    metadata: Mapping[str, str]
    warnings: tuple[str, ...]
    chunks: int
    characters: int
    version: int
    updated_at: float
    embedded: bool


class ChunkRow(msgspec.Struct, frozen=True):
    """A stored chunk with what an index and a citation need of its document.

    ``chunk_id`` grows monotonically over the life of a store and is never reused.
    """

    chunk_id: int
    document_id: str
    ordinal: int
    start: int
    end: int
    text: str
    context: str
    tokens: int
    page: int | None
    heading_path: tuple[str, ...]
    title: str
    source: str
    language: str
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    metadata: Mapping[str, str]
    version: int


class Hit(msgspec.Struct, frozen=True):
    """A chunk found for a query.

    ``score`` orders the hits of one answer (higher is better; comparable inside one answer
    only). ``bm25`` and ``cosine`` are the raw leg scores, None where that leg did not see it.
    ``rerank`` is the relevance by which hits were ordered anew, and ``around`` the mean cosine of
    those that the search itself had third and after; None: it is the search's own order.
    """

    chunk: ChunkRow
    score: float
    bm25: float | None = None
    cosine: float | None = None
    rerank: float | None = None
    around: float | None = None


class SentenceCount(msgspec.Struct, frozen=True):
    """Of how many chunks single sentences get vectors, and of how many that is done."""

    chunks: int
    kept: int


class KbInfo(msgspec.Struct, frozen=True):
    """A knowledge base at one version; ``sentences`` None: nobody counted, or none are made."""

    name: str
    version: int
    documents: int
    chunks: int
    embedded_chunks: int
    characters: int
    embedder: str | None
    created_at: float
    sentences: SentenceCount | None = None


class CommitReceipt(msgspec.Struct, frozen=True):
    """What a change to a knowledge base answers: its version, and per document the outcome."""

    kb: str
    version: int
    outcomes: tuple[tuple[str, Outcome], ...] = ()
    embedded: bool = False


class ChangeSet(msgspec.Struct, frozen=True):
    """What differs between two versions of a kb, as chunk ids (ascending).

    ``added`` are chunks created after ``since`` that live at ``version``; ``removed`` are chunks
    that lived at ``since`` and do not any more; ``embedded`` are live chunks whose vector was
    stored after ``since`` (they may be in ``added`` too).
    """

    since: int
    version: int
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    embedded: tuple[int, ...] = ()


class Vectors(msgspec.Struct, frozen=True):
    """``len(ids)`` row vectors, float32 little-endian, row-major, L2-normalised.

    ``cached``: whether they were remembered rather than made; None: nobody remembers.
    ``worked_s``: how long making them took where they were made; None: nobody knows.
    """

    ids: tuple[int, ...]
    dimensions: int
    data: bytes
    cached: bool | None = None
    worked_s: float | None = None
