"""Knowledge bases and documents: lists, one, and what a change answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from forebay.kernel.documents import Outcome, SentenceCount


class ModelCard(msgspec.Struct, frozen=True):
    """A knowledge base as an OpenAI model."""

    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: Literal["forebay"] = "forebay"


class ModelList(msgspec.Struct, frozen=True):
    """GET /v1/models."""

    data: tuple[ModelCard, ...]
    object: Literal["list"] = "list"


class KbBody(msgspec.Struct, frozen=True):
    """A knowledge base at its current version; meaning finds ``embedded_share`` of its chunks.

    ``sentences``: of how many chunks single sentences get vectors, and of how many that is done;
    null in lists, where none are made, and for who may read some of the documents only.
    """

    name: str
    kb_version: int
    documents: int
    chunks: int
    embedded_chunks: int
    characters: int
    embedder: str | None
    created_at: float
    embedded_share: float
    sentences: SentenceCount | None = None


class KbList(msgspec.Struct, frozen=True):
    """GET /v1/kb."""

    data: tuple[KbBody, ...]
    object: Literal["list"] = "list"


class DocumentBody(msgspec.Struct, frozen=True):
    """A document without its text."""

    id: str
    title: str
    source: str
    media_type: str
    language: str
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    metadata: Mapping[str, str]
    warnings: tuple[str, ...]
    chunks: int
    characters: int
    content_hash: str
    kb_version: int
    updated_at: float
    embedded: bool


class DocumentWithText(DocumentBody, frozen=True):
    """A document and the text extracted from it."""

    text: str = ""
    chunk_keys: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ChunkLabels(msgspec.Struct, frozen=True):
    """What a store outside may sort what it keeps by."""

    domain: str
    tags: tuple[str, ...]
    priority: Literal["low", "normal", "high"]


class ChunkBody(msgspec.Struct, frozen=True):
    """A chunk by its key; ``superseded``: another text took its place, ``successor`` if it has one.

    ``ttl_s`` says how long to keep what belongs to it: by ``heat``, its hits lately, while it
    lives, and until its key is forgotten when it is superseded.
    """

    key: str
    state: Literal["living", "superseded"]
    document_id: str | None
    text: str
    context: str
    heading_path: tuple[str, ...]
    heat: int
    ttl_s: float
    labels: ChunkLabels
    chunk_id: str | None = None
    successor: str | None = None


class DocumentList(msgspec.Struct, frozen=True):
    """A page of documents in id order; pass ``next_after`` as ``after`` for the next one."""

    data: tuple[DocumentBody, ...]
    next_after: str | None
    object: Literal["list"] = "list"


class ChangeAnswer(msgspec.Struct, frozen=True):
    """What became of a change, and the version it made."""

    kb: str
    id: str
    outcome: Outcome
    kb_version: int
    embedded: bool
