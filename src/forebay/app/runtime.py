"""One process's parts, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from forebay.app.bearer_keys import embedding_keys
from forebay.app.counting import chunk_counter
from forebay.app.indexes import IndexSet
from forebay.app.leasing import History, LeaseParts, VersionLeases
from forebay.app.light import FittingParts, LightFitting, LightQueries, light_file
from forebay.app.reading_ahead import ReadingAhead
from forebay.app.records import BlockingPool, existing_kbs
from forebay.app.sentence_record import sentence_settings
from forebay.app.serving_versions import ProcessVersions
from forebay.app.settings import Settings, environment, model_cache
from forebay.app.writing import Writing, WritingParts
from forebay.coordination.redis_leases import RedisVersions
from forebay.embedding.opening import open_embedder, query_tokens
from forebay.kernel.clock import Clock, SystemClock
from forebay.kernel.errors import NotFound, first_error
from forebay.kernel.sizing import Sizing
from forebay.kernel.stages import Embedder
from forebay.pipeline.folders import FolderRequest
from forebay.pipeline.writer import alone
from forebay.policy.connections import ConnectionSettings, ConnectionSizer
from forebay.retrieval import KbIndex, search_executor
from forebay.store import StoreReader, StoreWriter
from forebay.store.announced import Announced


class Reading(msgspec.Struct, frozen=True):
    """What every process has: the record to read, the indexes, the embedder, threads."""

    settings: Settings
    reader: StoreReader
    indexes: IndexSet
    threads: BlockingPool
    embedder: Embedder | None
    clock: Clock
    versions: ProcessVersions
    leases: VersionLeases | None = None

    def embedded_share(self) -> float | None:
        """The share of all chunks that have a vector; None where no embedder makes any."""
        return None if self.embedder is None else self.indexes.embedded_share()


LEAST_READERS = 4
"""Of the record, kept however little is read: one for each thread that reads by default."""


class Process(msgspec.Struct, frozen=True):
    """A reading process, and its writing half where it holds the store's lock."""

    reading: Reading
    writing: Writing | None


def store_folder(settings: Settings) -> Path:
    """The store folder."""
    return Path(settings.store.path)


def index_folder(folder: Path, kb: str) -> Path:
    """Where the indexes of one kb are kept."""
    return folder / "indexes" / kb


@asynccontextmanager
async def open_process(
    settings: Settings, *, write: bool, serve: bool = False
) -> AsyncIterator[Process]:
    """Open the store and what works on it; ``StoreBusy`` when another process writes there.

    ``serve``: take leases of shared kbs, as whoever writes does, too.
    """
    folder = store_folder(settings)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        threads = BlockingPool(search_executor(settings.store.reader_threads))
        stack.callback(threads.close)
        thread = BlockingPool(search_executor(1))
        stack.callback(thread.close)
        writer: StoreWriter | None = None
        record = settings.store.record
        sizing = _sizing(record.max_readers)
        if write:
            writer = await thread.run(lambda: StoreWriter(folder, record, sizing=sizing))
            stack.callback(writer.close)
            reader = writer.reader
        else:
            if not await asyncio.to_thread(folder.exists):
                raise NotFound(
                    f"there is no store at {folder}; run `forebay ingest PATH` or `forebay serve`."
                )
            reader = await thread.run(lambda: StoreReader(folder, record, sizing))
            stack.callback(reader.close)
        indexes = IndexSet(partial(_open_index, settings, folder, reader, write))
        stack.callback(indexes.close)
        embedding = await asyncio.to_thread(embedding_keys, settings.embedding, environment())
        embedder = await open_embedder(embedding, cache=model_cache(settings), clock=clock)
        if embedder is not None:
            stack.push_async_callback(embedder.close)
        announced = await thread.run(lambda: Announced(folder, writable=write))
        stack.callback(announced.close)
        bringing_up = thread if write else threads
        versions = ProcessVersions(indexes, announced, reader, bringing_up.run)
        parts = Reading(settings, reader, indexes, threads, embedder, clock, versions)
        leases = await _leases(parts, stack, write=write, serve=serve)
        reading = msgspec.structs.replace(parts, leases=leases)
        kbs = await thread.run(lambda: existing_kbs(reader))
        for kb in kbs:
            await thread.run(partial(indexes.refresh, kb))
        if serve:
            ahead = ReadingAhead(indexes, threads)
            await stack.enter_async_context(_background(ahead.run()))
        if writer is None:
            async with _background(versions.follow(settings.store.poll_ms / 1000, thread.run)):
                yield Process(reading, None)
            return
        writing = _writing(reading, writer, announced, thread, stack)
        started = asyncio.Event()
        async with _background(writing.run(started)):
            await started.wait()
            yield Process(reading, writing)


def light_queries(reading: Reading) -> LightQueries | None:
    """What gives queries light vectors; None where it is off, or the embedder is not here."""
    tokens = query_tokens(reading.embedder)
    if reading.embedder is None or tokens is None:
        return None
    if reading.settings.retrieval.light_queries == "off":
        return None
    fingerprint = reading.embedder.spec.fingerprint
    path = light_file(store_folder(reading.settings), fingerprint)
    return LightQueries(path, fingerprint, tokens, reading.clock)


@asynccontextmanager
async def light_fitting(process: Process) -> AsyncIterator[None]:
    """Fit the light encoder beside the block, where it is wanted and this process writes."""
    reading, writing = process.reading, process.writing
    embedder, tokens = reading.embedder, query_tokens(reading.embedder)
    wanted = reading.settings.retrieval.light_queries != "off"
    if writing is None or embedder is None or tokens is None or not wanted:
        yield
        return
    path = light_file(store_folder(reading.settings), embedder.spec.fingerprint)
    parts = FittingParts(
        reading.reader, embedder, tokens, lambda: not writing.sentences_under_way()
    )
    fitting = LightFitting(parts, path)
    try:
        async with _background(fitting.run()):
            yield
    finally:
        fitting.close()


def _sizing(most: int) -> Sizing:
    """How many readers of the record are worth keeping, by the rates of late (F0.3)."""
    return ConnectionSizer(ConnectionSettings(least=min(LEAST_READERS, most), most=most))


def _writing(
    reading: Reading,
    writer: StoreWriter,
    announced: Announced,
    thread: BlockingPool,
    stack: AsyncExitStack,
) -> Writing:
    """The writing half beside ``reading``; ``thread`` is the one that writes."""
    upkeep = BlockingPool(search_executor(1))
    stack.callback(upkeep.close)
    settings, leases = reading.settings, reading.leases
    sentences = sentence_settings(settings.ingest.sentences, settings.embedding)
    return Writing(
        WritingParts(
            writer=writer,
            indexes=reading.indexes,
            announced=announced,
            changing=alone if leases is None else leases.changing,
            thread=thread,
            upkeep=upkeep,
            embedder=reading.embedder,
            settings=msgspec.structs.replace(settings.ingest, sentences=sentences),
            maintenance_s=settings.store.maintenance_s,
            reserve_bytes=settings.store.reserve_bytes,
            index_folder=partial(index_folder, store_folder(settings)),
            defaults=partial(upload_defaults, settings),
            counter=chunk_counter(settings.embedding, model_cache(settings)),
            clock=reading.clock,
        )
    )


async def _leases(
    reading: Reading, stack: AsyncExitStack, *, write: bool, serve: bool
) -> VersionLeases | None:
    """Leases of the shared kbs, kept until ``stack`` is closed; None where there are none."""
    settings, versions, reader = reading.settings, reading.versions, reading.reader
    shared = frozenset(name for name, each in settings.knowledge.items() if each.shared)
    if not shared:
        return None
    if not (write or serve):
        versions.leased = lambda kb, _version: kb not in shared
        return None
    authority = RedisVersions(settings.coordination)
    stack.push_async_callback(authority.close)
    history: History | None = None
    if write:
        history = History(
            store=await reading.threads.run(reader.identity),
            mark=lambda kb, version: reading.threads.run(partial(reader.mark, kb, version)),
            key=authority.key,
        )
    parts = LeaseParts(
        authority=authority,
        shared=shared,
        lease_s=settings.coordination.version_lease_ms / 1000,
        version=reading.indexes.version,
        clock=SystemClock(),
        history=history,
    )
    leases = VersionLeases(parts)
    versions.leased, versions.moved = leases.leased, leases.moved
    leases.behind = versions.poke
    stack.push_async_callback(leases.leave)
    await stack.enter_async_context(_background(leases.run()))
    return leases


@asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a coroutine beside the block; its failure ends the block, the block's end cancels it."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            try:
                yield
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


def upload_defaults(settings: Settings, kb: str) -> FolderRequest:
    """Tags and groups of documents of ``kb`` that declare none, however they come in."""
    known = settings.knowledge.get(kb)
    if known is None:
        return FolderRequest(kb, "")
    return FolderRequest(kb, "", known.tags, known.groups)


def _open_index(
    settings: Settings, folder: Path, reader: StoreReader, write: bool, kb: str
) -> KbIndex:
    return KbIndex.open(
        index_folder(folder, kb),
        kb,
        reader,
        writable=write,
        settings=settings.retrieval,
        fingerprint=partial(_fingerprint, reader, kb),
    )


def _fingerprint(reader: StoreReader, kb: str) -> str | None:
    """Whose vectors the record holds, None while there are none that serve."""
    try:
        state = reader.embedder(kb)
    except NotFound:
        return None
    return None if state is None or state.reembedding else state.spec.fingerprint
