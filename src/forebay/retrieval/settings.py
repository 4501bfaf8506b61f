"""Settings of retrieval: frozen, validated when built, units in the names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

VectorKind = Literal["auto", "exact", "hnsw", "ivfpq"]


class LexicalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How text becomes terms and how BM25 weighs them; a change rebuilds the lexical index."""

    k1: Annotated[float, Meta(description="BM25 term-frequency saturation.", ge=0.0, le=10.0)] = 1.2
    b: Annotated[float, Meta(description="BM25 length normalisation.", ge=0.0, le=1.0)] = 0.75
    heading_repeats: Annotated[
        int,
        Meta(
            description="How often title and heading words count, against 1 for body words.",
            ge=0,
            le=10,
        ),
    ] = 1
    stemming: Annotated[bool, Meta(description="Reduce English words to their stems.")] = True
    candidates: Annotated[
        int,
        Meta(description="How many chunks the engine proposes for exact scoring.", ge=10, le=2000),
    ] = 100
    writer_heap_bytes: Annotated[
        int,
        Meta(description="Memory of the index writer before it flushes a segment.", ge=15_000_000),
    ] = 32_000_000
    query_max_characters: Annotated[
        int,
        Meta(description="Query text beyond this many characters is not searched.", ge=16),
    ] = 4096
    query_max_terms: Annotated[
        int,
        Meta(description="At most this many terms, the rarest, are searched.", ge=8, le=1024),
    ] = 96


class RetrievalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one process retrieves."""

    top_k_max: Annotated[
        int, Meta(description="The most hits one search may ask for.", ge=1, le=1000)
    ] = 100
    lexical: LexicalSettings = LexicalSettings()
