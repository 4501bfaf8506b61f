"""Parsers, encoding detection, chunkers, and the worker processes they run in."""

from forebay.ingest.chunker import StructureChunker
from forebay.ingest.registry import parse
from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.ingest.tokens import EstimatedTokenCounter

__all__ = [
    "ChunkSettings",
    "EstimatedTokenCounter",
    "IngestLimits",
    "StructureChunker",
    "parse",
]
