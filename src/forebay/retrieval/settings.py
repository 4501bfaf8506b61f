"""Settings of retrieval: frozen, validated when built, units in the names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.retrieval.fusion import FusionSettings
from forebay.retrieval.relevance import RelevanceSettings

LightQueries = Literal["off", "spare", "first"]
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
    ] = 2
    stemming: Annotated[bool, Meta(description="Find English words by their stems too.")] = True
    spare_candidates: Annotated[
        int,
        Meta(
            description="Chunks the engine proposes beyond those wanted, for exact scoring.",
            ge=0,
            le=2000,
        ),
    ] = 16
    counts_cache_bytes: Annotated[
        int,
        Meta(description="Memory for term counts of chunks, of a knowledge base in use.", ge=0),
    ] = 128_000_000
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
    ] = 128
    common_from_chunks: Annotated[
        int,
        Meta(description="Below this many chunks no term is left out for being common.", ge=0),
    ] = 10_000
    common_share: Annotated[
        float,
        Meta(
            description="Terms in more than this share of chunks are left out if others remain.",
            gt=0.0,
            le=1.0,
        ),
    ] = 0.3
    common_worth_max: Annotated[
        float,
        Meta(
            description="The share of a query's worth that may be left out that way.",
            ge=0.0,
            lt=1.0,
        ),
    ] = 0.2
    unproposed_worth_max: Annotated[
        float,
        Meta(
            description="The share of a query's worth in its most frequent terms by which chunks "
            "are scored but not looked for, from common_from_chunks on.",
            ge=0.0,
            lt=1.0,
        ),
    ] = 0.1


class VectorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How vectors are searched and kept."""

    kind: Annotated[
        VectorKind,
        Meta(description="Structure of large segments: by size, or always this one."),
    ] = "auto"
    exact_rows_max: Annotated[
        int, Meta(description="Segments smaller than this are scanned exactly.", ge=1)
    ] = 8192
    hnsw_rows_max: Annotated[
        int, Meta(description="Segments from this size on use IVF-PQ when kind is auto.", ge=1000)
    ] = 1_000_000
    hnsw_m: Annotated[
        int, Meta(description="HNSW links per node (F3.5: 16 to 64).", ge=4, le=64)
    ] = 32
    hnsw_ef_construction: Annotated[
        int, Meta(description="HNSW build width (F0.4: at most 200).", ge=16, le=200)
    ] = 120
    hnsw_ef_search: Annotated[
        int, Meta(description="HNSW search width (F3.5: cache misses grow above 64).", ge=8)
    ] = 200
    ivfpq_lists: Annotated[int, Meta(description="IVF lists at most (F2.8).", ge=1)] = 4096
    ivfpq_parts: Annotated[int, Meta(description="PQ sub-vectors of 8 bits (F2.8).", ge=1)] = 32
    ivfpq_nprobe: Annotated[int, Meta(description="IVF lists probed (F2.8).", ge=1)] = 32
    ivfpq_refine: Annotated[
        int, Meta(description="IVF-PQ proposals per hit that the raw vectors decide.", ge=1)
    ] = 8
    filtered_scan_share: Annotated[
        float,
        Meta(
            description="Below this share of passing chunks a filter is scanned exactly.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.2
    fold_rows: Annotated[
        int, Meta(description="Rows in memory that make a new segment on disk due.", ge=16)
    ] = 2048
    tier_ratio: Annotated[
        int, Meta(description="Segments of one size tier that are merged together.", ge=2, le=16)
    ] = 4
    dead_share_max: Annotated[
        float,
        Meta(description="Share of removed rows at which a segment is rebuilt.", gt=0.0, lt=1.0),
    ] = 0.2
    inline_build_rows: Annotated[
        int,
        Meta(description="Larger builds run in a process of low priority.", ge=0),
    ] = 8192


class RetrievalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one process retrieves."""

    top_k_max: Annotated[
        int, Meta(description="The most hits one search may ask for.", ge=1, le=1000)
    ] = 100
    candidates: Annotated[
        int, Meta(description="Chunks each leg hands to fusion, at least.", ge=10, le=1000)
    ] = 30
    vector_timeout_ms: Annotated[
        int,
        Meta(description="Embedding and vector search together; then words alone (F2.10).", ge=1),
    ] = 300
    embed_in_line: Annotated[
        bool,
        Meta(
            description="Queries are embedded, and hits scored by the light reranker, by the "
            "threads that search, in the order of requests and without changes of threads, where "
            "the models run in this process: a shorter tail on one or two cores; a model that "
            "hangs holds these threads up."
        ),
    ] = False
    light_queries: Annotated[
        LightQueries,
        Meta(
            description="Vectors of queries by a light encoder, fitted in the background to the "
            "built-in embedder and the documents. spare: where the embedder is out of reach; "
            "first: in its place, too, wherever it would hardly find better; off: none is fitted."
        ),
    ] = "spare"
    words_timeout_ms: Annotated[
        int,
        Meta(description="Search by words; then a rung that goes without them.", ge=1),
    ] = 1000
    keyword_read_ms: Annotated[
        int,
        Meta(
            description="Longest reading of unread chunks before a search by keywords looks at "
            "what there is.",
            ge=1,
        ),
    ] = 100
    keyword_busy_share: Annotated[
        float,
        Meta(
            description="Share of a core that reading on for keywords may take, beside searches.",
            gt=0.0,
            le=1.0,
        ),
    ] = 0.25
    keyword_total_s: Annotated[
        float,
        Meta(
            description="Reading of one knowledge base for keywords until the rest, its oldest "
            "chunks, is left unread; coverage says so.",
            gt=0.0,
        ),
    ] = 20.0
    keyword_idle_s: Annotated[
        float,
        Meta(description="Keywords that nobody needed for so long are forgotten.", gt=0.0),
    ] = 300.0
    witness_confidence: Annotated[
        float,
        Meta(
            description="Probability that the best word hit is right from which vectors should "
            "have found it too: their hit rate is counted over such requests.",
            gt=0.0,
        ),
    ] = 0.8
    early_exit_confidence: Annotated[
        float,
        Meta(
            description="Probability that the best word hit is right which skips vectors (F2.10).",
            gt=0.0,
        ),
    ] = 0.92
    early_exit_foreign: Annotated[
        float,
        Meta(
            description="Of the best hit's words, what a chunk in another language is credited per "
            "nearness to that hit where vectors are skipped; 0: none is looked for then.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.9
    whole_share: Annotated[
        float,
        Meta(
            description="Share of chunks with a vector from which a search by meaning counts as "
            "whole; below it answers say so and are not kept.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.99
    distinct: Annotated[
        bool, Meta(description="Leave out hits that say nothing a better hit does not say.")
    ] = True
    in_flight_max: Annotated[
        int, Meta(description="Searches at once in this process; more are refused.", ge=1)
    ] = 256
    lexical: LexicalSettings = LexicalSettings()
    vector: VectorSettings = VectorSettings()
    fusion: FusionSettings = FusionSettings()
    relevance: RelevanceSettings = RelevanceSettings()
