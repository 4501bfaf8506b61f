"""The writing half of a process: commits, folders, vectors, upkeep, and the folder's socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from forebay.app.indexes import IndexSet
from forebay.app.records import (
    BlockingPool,
    FolderRecords,
    RecordWithReserve,
    ensure_kb,
    existing_kbs,
)
from forebay.app.sentence_record import SentencesInRecord
from forebay.app.settings import IngestSettings
from forebay.ingest.frames import CounterChoice
from forebay.ingest.pool import ParsePool
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.documents import CommitReceipt, KbInfo
from forebay.kernel.errors import ForebayError, NotFound, ReembedNeeded, Unavailable
from forebay.kernel.stages import Embedder
from forebay.pipeline.embedding import EmbeddingFeeder, FeederParts
from forebay.pipeline.folders import (
    BatchParser,
    FileEvent,
    FolderIngest,
    FolderRequest,
    IngestSummary,
)
from forebay.pipeline.knowledge import LocalChanges, check_kb_name
from forebay.pipeline.meaning import MeaningParser
from forebay.pipeline.messages import Upload, WaitFor
from forebay.pipeline.sentences import SentenceFeeder, SentenceParts
from forebay.pipeline.writer import Changing, CommitQueue
from forebay.store import StoreWriter
from forebay.store.announced import Announced
from forebay.store.backup import open_backup

log = logging.getLogger("forebay.writing")
RESTART_S = 30.0
T = TypeVar("T")
Emit = Callable[[FileEvent], Awaitable[None]]


class WritingParts(msgspec.Struct, frozen=True):
    """What the writing half is made of; ``thread`` is the one thread that writes."""

    writer: StoreWriter
    indexes: IndexSet
    announced: Announced
    changing: Changing
    thread: BlockingPool
    upkeep: BlockingPool
    embedder: Embedder | None
    settings: IngestSettings
    maintenance_s: float
    reserve_bytes: int
    index_folder: Callable[[str], Path]
    defaults: Callable[[str], FolderRequest]
    counter: CounterChoice | None
    clock: Clock


class Writing:
    """Everything that changes a store; runs in the process that holds its lock."""

    def __init__(self, parts: WritingParts) -> None:
        self._parts = parts
        self._feeders: dict[str, EmbeddingFeeder] = {}
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, list[asyncio.Task[None]]] = {}
        self._sentences: dict[str, SentenceFeeder] = {}
        self.told: Callable[[], object] = _nobody
        settings = parts.settings
        self.pool = ParsePool(
            settings.pool, settings.limits, settings.chunks, counter=parts.counter
        )
        self._parser: BatchParser = self.pool
        if settings.chunks.kind == "meaning":
            self._parser = MeaningParser(
                self.pool, parts.embedder, settings.chunks.break_percentile, settings.meaning
            )
        self._record = RecordWithReserve(parts.writer, parts.reserve_bytes)
        self.queue = CommitQueue(
            self._record, self, parts.thread.run, settings.writer, parts.changing
        )
        records = FolderRecords(
            parts.writer, self._record, self.refresh, parts.thread, self.committed, self._change
        )
        self._folders = FolderIngest(self._parser, records, settings.folders, parts.clock)
        self._changes = LocalChanges(
            self._parser,
            self.queue,
            self.feeder,
            parts.writer.reader,
            parts.thread.run,
            parts.defaults,
        )

    # Publisher of the commit queue

    def refresh(self, kb: str) -> int:
        """Bring the index of ``kb`` up to the record and announce its version; blocking.

        What was done before may be acknowledged after this: no process answers from an older
        version any more. ``told`` is called then.
        """
        version = self._parts.indexes.refresh(kb)
        self._parts.announced.announce(kb, version)
        self.told()
        return version

    async def _change(self, kb: str, work: Callable[[], T]) -> T:
        """Run what changes ``kb``, publication included; return when it may be acknowledged."""
        async with self._parts.changing(kb) as change:
            found = await self._parts.thread.run(work)
        if change is not None:
            await change.settled()
        return found

    def committed(self, kb: str) -> None:
        """New chunks may lack vectors."""
        feeder = self.feeder(kb)
        if feeder is not None:
            feeder.kick()

    # Life

    async def run(self, started: asyncio.Event) -> None:
        """Commit, embed and maintain until cancelled; sets ``started`` when changes may come."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.queue.run())
                group.create_task(self._maintain_forever())
                for kb in await self._parts.thread.run(self._announce_all):
                    self.committed(kb)
                await asyncio.sleep(0)
                started.set()
        finally:
            self._group = None
            await self.pool.close()

    def _announce_all(self) -> tuple[str, ...]:
        """What the record holds when writing begins; a process before may have died in between."""
        kbs = existing_kbs(self._parts.writer.reader)
        for kb in kbs:
            self.refresh(kb)
        self._parts.announced.only(kbs)
        return kbs

    async def _maintain_forever(self) -> None:
        while True:
            await asyncio.sleep(self._parts.maintenance_s)
            try:
                await self._parts.upkeep.run(self.maintain)
            except ForebayError as error:
                log.warning("maintenance: %s", error.message)
            except Exception:  # upkeep that fails must not end serving; it is tried again
                log.exception("maintenance failed")

    def maintain(self) -> None:
        """Background merges of indexes and upkeep of the record; blocking."""
        self._parts.indexes.maintain()
        needed = {
            kb: self._parts.indexes.get(kb).oldest_needed for kb in self._parts.indexes.names()
        }
        self._parts.writer.maintain(needed)

    def feeder(self, kb: str) -> EmbeddingFeeder | None:
        """The feeder of ``kb``, started at first need; None without an embedder."""
        embedder, group = self._parts.embedder, self._group
        if embedder is None or group is None:
            return None
        if kb not in self._feeders:
            parts = FeederParts(
                self._record,
                embedder,
                self.refresh,
                self._parts.thread.run,
                self._parts.clock,
                partial(self._change, kb),
                partial(self._embedded, kb),
            )
            feeder = EmbeddingFeeder(kb, parts, self._parts.settings.vectors)
            self._feeders[kb] = feeder
            self._running[kb] = [group.create_task(self._feed(kb, embedder, feeder))]
        return self._feeders[kb]

    def _embedded(self, kb: str) -> None:
        """Chunks got their vectors; their sentences come next."""
        if kb in self._sentences:
            self._sentences[kb].kick()

    async def _feed(self, kb: str, embedder: Embedder, feeder: EmbeddingFeeder) -> None:
        """Embed unless the kb's vectors are another embedder's; then say what to do."""
        spec, writer = embedder.spec, self._parts.writer

        def adopt() -> None:
            state = writer.reader.embedder(kb)
            if state is None or state.spec.fingerprint == spec.fingerprint:
                writer.begin_reembed(kb, spec)
            else:
                writer.reader.check_embedder(kb, spec)

        while True:
            try:
                await self._parts.thread.run(adopt)
                self._begin_sentences(kb, embedder, feeder)
                await feeder.run()
            except ReembedNeeded as error:
                await feeder.fail(error.message)
                log.warning("%s: %s run `forebay kb reembed %s`.", kb, error.message, kb)
                return
            except NotFound:
                await feeder.fail("the knowledge base is gone.")
                return
            except Exception:  # search by words goes on, and so must the server
                await feeder.fail("embedding failed; the server's log says why.")
                log.exception("embedding of %s failed; it begins again in %g s", kb, RESTART_S)
                await asyncio.sleep(RESTART_S)

    def _begin_sentences(self, kb: str, embedder: Embedder, feeder: EmbeddingFeeder) -> None:
        """Sentences follow their chunks, unless that is off or has begun."""
        settings, group = self._parts.settings.sentences, self._group
        if group is None or kb in self._sentences or not settings.enabled:
            return
        writer, thread = self._parts.writer, self._parts.thread
        record = SentencesInRecord(writer, self._record, embedder.spec.fingerprint)
        parts = SentenceParts(record, embedder, thread.run, feeder.rest)
        self._sentences[kb] = SentenceFeeder(kb, parts, settings)
        self._running[kb].append(group.create_task(self._feed_sentences(kb, record, embedder)))

    async def _feed_sentences(self, kb: str, record: SentencesInRecord, embedder: Embedder) -> None:
        while True:
            try:
                await record.measure(embedder, self._parts.thread)
                await self._sentences[kb].run()
                return
            except Exception:  # answers go without, and so must everything else
                log.exception("sentences of %s failed; they begin again in %g s", kb, RESTART_S)
                await asyncio.sleep(RESTART_S)

    # What outsiders ask for

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        """Add or replace one document."""
        return await self._changes.put(kb, upload, wait, deadline)

    async def delete(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        """Remove one document."""
        return await self._changes.delete(kb, document_id, deadline)

    async def ingest(self, request: FolderRequest, emit: Emit) -> IngestSummary:
        """Bring a file or folder into a kb."""
        check_kb_name(request.kb)
        return await self._folders.run(request, emit)

    async def wait_embedded(self, kb: str) -> int:
        """Wait until every chunk of ``kb`` has a vector; return how many there are."""
        feeder = self.feeder(kb)
        info = await self._info(kb)
        if feeder is None:
            return info.embedded_chunks

        async def reached() -> bool:
            now = await self._info(kb)
            refused = feeder.statistics()["refused"]
            return now.embedded_chunks + refused >= now.chunks or feeder.error is not None

        await feeder.wait_until(reached)
        if feeder.error is not None:
            raise Unavailable(feeder.error)
        return (await self._info(kb)).embedded_chunks

    async def wait_sentences(self, kb: str, within_s: float) -> None:
        """Wait until the sentences of ``kb`` have their vectors, but no longer than so."""
        feeder = self._sentences.get(kb)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                if feeder is not None:
                    await feeder.settled()

    def sentences_under_way(self) -> int:
        """How many kbs have sentences that are still to get vectors."""
        return sum(feeder.busy for feeder in self._sentences.values())

    def shortcomings(self) -> tuple[str, ...]:
        """Why some searches go by words only, in sentences."""
        return tuple(
            f"{kb}: {feeder.error}" for kb, feeder in self._feeders.items() if feeder.error
        )

    async def _info(self, kb: str) -> KbInfo:
        return await self._parts.thread.run(lambda: self._parts.writer.reader.kb(kb))

    async def drop(self, kb: str) -> None:
        """Remove a kb and everything in it."""
        await self._stop_feeding(kb)

        def work() -> None:
            self._parts.writer.drop(kb)
            self._parts.indexes.forget(kb, self._parts.index_folder(kb))
            self._parts.announced.gone(kb)
            self.told()

        await self._change(kb, work)

    async def reembed(self, kb: str) -> KbInfo:
        """Begin to replace the vectors of ``kb`` by the configured embedder's."""
        embedder = self._parts.embedder
        if embedder is None:
            raise Unavailable('no embedder is configured (embedding.backend = "none").')
        await self._stop_feeding(kb)
        spec = embedder.spec

        def work() -> None:
            self._parts.writer.begin_reembed(kb, spec)
            self.refresh(kb)

        await self._change(kb, work)
        self.committed(kb)
        return await self._info(kb)

    async def restore(self, file: Path, name: str | None) -> KbInfo:
        """Import an export as one version."""

        def kb() -> str:
            with open_backup(file) as backup:
                return name or backup.manifest.kb

        def work() -> KbInfo:
            info = self._parts.writer.import_kb(file, name)
            self.refresh(info.name)
            return info

        info = await self._change(await self._parts.upkeep.run(kb), work)
        self.committed(info.name)
        return info

    async def ensure(self, kb: str) -> None:
        """Make ``kb`` when it does not exist, and open its index."""
        check_kb_name(kb)

        def work() -> None:
            ensure_kb(self._parts.writer, kb)
            self.refresh(kb)

        await self._parts.thread.run(work)

    async def tell_reading(self, kb: str, state: int) -> None:
        """Say to all processes how far the folders of ``kb`` were read; see ``Announced``."""
        await self._parts.thread.run(partial(self._parts.announced.tell_reading, kb, state))

    async def _stop_feeding(self, kb: str) -> None:
        self._feeders.pop(kb, None)
        self._sentences.pop(kb, None)
        tasks = self._running.pop(kb, [])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=30)


def _nobody() -> None:
    """Nobody follows."""
