"""The guard before the record and the reading of chunks by key, put together for one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from forebay.app.runtime import Reading
from forebay.cache.guard import NameGuard, Names
from forebay.cache.heat import ChunkHeat
from forebay.kernel.clock import WallClock
from forebay.kernel.errors import first_error
from forebay.pipeline.chunk_keys import DIGEST, DOCUMENT, ChunkParts, ChunkService
from forebay.store import StoreReader


class Guarded(msgspec.Struct, frozen=True):
    """What knows of names, of how warm chunks are, and what reads by key with both."""

    guard: NameGuard
    heat: ChunkHeat
    chunks: ChunkService


def names_since(record: StoreReader, kb: str, since: int) -> Names:
    """Ids of documents and digests of keys that came after a version; blocking."""
    known = record.known(kb, since)
    ids = tuple(DOCUMENT + one for one in known.documents)
    return Names(known.version, ids + tuple(DIGEST + one.hex() for one in known.digests))


@asynccontextmanager
async def open_guarded(reading: Reading) -> AsyncIterator[Guarded]:
    """The guard of a process; filters are built beside the block."""
    settings, reader = reading.settings, reading.reader
    guard = NameGuard(reading.versions.announced, partial(names_since, reader), reading.threads.run)
    heat = ChunkHeat(settings.cache.chunks, reading.clock)
    keep_s = settings.store.record.retired_keys_s
    parts = ChunkParts(reader, guard, heat, WallClock(), keep_s)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(guard.run())
            try:
                yield Guarded(guard, heat, ChunkService(parts, reading.threads.run))
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
