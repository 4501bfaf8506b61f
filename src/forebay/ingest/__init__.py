"""Parsers, encoding detection, chunkers, and the worker processes they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.ingest.chunker import StructureChunker
from forebay.ingest.parts import TextSplitter
from forebay.ingest.registry import parse, supported_extensions
from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.ingest.tokens import EstimatedTokenCounter

if TYPE_CHECKING:
    from forebay.ingest.pool import ParsedDocument, ParsePool, PoolSettings

__all__ = [
    "ChunkSettings",
    "EstimatedTokenCounter",
    "IngestLimits",
    "ParsePool",
    "ParsedDocument",
    "PoolSettings",
    "StructureChunker",
    "TextSplitter",
    "parse",
    "supported_extensions",
]


def __getattr__(name: str) -> object:
    # The pool needs asyncio and psutil, which a worker process, importing this package, does not.
    if name in ("ParsePool", "ParsedDocument", "PoolSettings"):
        from forebay.ingest import pool

        value: object = getattr(pool, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
