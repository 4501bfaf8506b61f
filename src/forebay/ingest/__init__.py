"""Parsers, encoding detection, chunkers, and the worker processes they run in."""

from forebay.ingest.chunker import StructureChunker
from forebay.ingest.registry import parse, supported_extensions
from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.ingest.tokens import EstimatedTokenCounter

__all__ = [
    "ChunkSettings",
    "EstimatedTokenCounter",
    "IngestLimits",
    "ParsePool",
    "ParsedDocument",
    "PoolSettings",
    "StructureChunker",
    "parse",
    "supported_extensions",
]


def __getattr__(name: str) -> object:
    # The pool needs asyncio and psutil, which a worker process, importing this package, does not.
    if name in ("ParsePool", "ParsedDocument", "PoolSettings"):
        from forebay.ingest import pool

        return getattr(pool, name)
    raise AttributeError(name)
