"""Settings of the record: frozen, validated when built, units in the names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the record uses disk and memory."""

    synchronous: Annotated[
        Literal["full", "normal"],
        Meta(
            description="full syncs every commit to the disk; normal may lose the last commits "
            "in a power loss (never in a crash of the process), and is faster."
        ),
    ] = "full"
    writer_cache_bytes: Annotated[
        int, Meta(description="Page cache of the writing connection.", ge=1 << 20)
    ] = 32 << 20
    reader_cache_bytes: Annotated[
        int, Meta(description="Page cache of each reading connection.", ge=1 << 16)
    ] = 2 << 20
    max_readers: Annotated[
        int, Meta(description="Reading connections of one process at most.", ge=1, le=256)
    ] = 8
    read_wait_ms: Annotated[
        int, Meta(description="Longest wait of a read for a free connection.", ge=1)
    ] = 10_000
    busy_timeout_ms: Annotated[
        int, Meta(description="Longest wait for a lock of the database file.", ge=0)
    ] = 10_000
    wal_checkpoint_bytes: Annotated[
        int,
        Meta(
            description="A commit copies the write-ahead log into the file beyond this size, "
            "should maintenance not have done so before.",
            ge=1 << 20,
        ),
    ] = 64 << 20
    rewrite_always_bytes: Annotated[
        int,
        Meta(
            description="Upkeep rewrites a file up to this size after every removal; a larger one "
            "when half of it is free, or when rewrite_after_s has passed.",
            ge=0,
        ),
    ] = 8 << 20
    rewrite_after_s: Annotated[
        float,
        Meta(
            description="Longest time that traces of removed texts may stay between the rows of a "
            "large file; a rewrite holds up commits for seconds per gigabyte.",
            ge=0,
        ),
    ] = 6 * 3600.0
    retired_keys_s: Annotated[
        float,
        Meta(
            description="The key of a chunk that changed gives its old text for so long, and one "
            "of a removed document says that it is gone (F2.12); 0: neither.",
            ge=0,
        ),
    ] = 72 * 3600.0
    retired_keys_max: Annotated[
        int,
        Meta(description="Keys of changed or removed chunks that are kept at most.", ge=0),
    ] = 200_000
    max_bytes: Annotated[
        int,
        Meta(description="The record's file may not grow beyond this; 0 means no bound.", ge=0),
    ] = 0
