"""Bounds and choices of parsing and chunking."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class IngestLimits(Struct, frozen=True):
    """What one file may cost before it is refused with a reason."""

    max_file_bytes: Annotated[
        int, Meta(description="Largest file that is read, in bytes.", ge=1)
    ] = 200_000_000
    max_characters: Annotated[
        int, Meta(description="Most characters of extracted text per document.", ge=1)
    ] = 20_000_000
    max_pages: Annotated[
        int, Meta(description="Most pages, slides or sheets read of one document.", ge=1)
    ] = 5_000
    max_archive_entries: Annotated[
        int, Meta(description="Most entries in a zip-based document.", ge=1)
    ] = 10_000
    max_archive_bytes: Annotated[
        int, Meta(description="Most bytes a zip-based document may unpack to.", ge=1)
    ] = 300_000_000
    max_archive_ratio: Annotated[
        int,
        Meta(description="Most unpacked bytes per packed byte of one entry over 1 MB.", ge=2),
    ] = 200
    fallback_encoding: Annotated[
        str,
        Meta(description="Encoding tried when nothing else decides; empty means refuse."),
    ] = "cp1252"


class ChunkSettings(Struct, frozen=True):
    """Sizes of chunks, in tokens of the injected counter."""

    max_tokens: Annotated[
        int, Meta(description="Most tokens of a chunk, repeated table header included.", ge=16)
    ] = 256
    min_tokens: Annotated[
        int, Meta(description="A section under this many tokens joins the next one.", ge=0)
    ] = 48
    overlap_tokens: Annotated[
        int, Meta(description="Tokens repeated from the chunk before, inside a section.", ge=0)
    ] = 32
    kind: Annotated[
        Literal["structure", "meaning"],
        Meta(
            description="Where chunks end: with paragraphs and sections, or also where the meaning "
            "of a text changes, which embeds every sentence once."
        ),
    ] = "structure"
    min_sentences: Annotated[
        int, Meta(description="Sentences a chunk by meaning has before it may end.", ge=1)
    ] = 3
    break_percentile: Annotated[
        float,
        Meta(
            description="Chunks by meaning end at this percentile of the likeness of a document's "
            "neighbouring sentences, and below.",
            gt=0,
            lt=100,
        ),
    ] = 25.0

    def __post_init__(self) -> None:
        if self.overlap_tokens * 2 > self.max_tokens or self.min_tokens > self.max_tokens:
            raise ValueError(
                "overlap_tokens may be at most half of max_tokens, min_tokens at most max_tokens"
            )
