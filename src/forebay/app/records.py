"""Adapters between the record, the indexes and the pipeline's protocols."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forebay.kernel.documents import ChunkRow, CommitReceipt, DocumentDraft, Vectors
from forebay.kernel.errors import StoreFull, Unavailable
from forebay.pipeline.folders import ROOT_KEY, Known
from forebay.store import StoreReader, StoreWriter

T = TypeVar("T")


class BlockingPool:
    """Threads for calls that block: sized by their maker, closed by their owner."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.executor = executor
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread; a cancelled caller does not interrupt it."""
        if self._closed:
            raise Unavailable("the server is shutting down; try again shortly.")
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    def close(self) -> None:
        """Wait for what runs, drop what waits."""
        self._closed = True
        self.executor.shutdown(wait=True, cancel_futures=True)


class RecordWithReserve:
    """The write side of the record, which refuses before the disk is quite full.

    A commit writes the record, the search index and the log; were the disk to fill up between
    them, a change could be kept although it was answered as failed.
    """

    def __init__(self, writer: StoreWriter, reserve_bytes: int) -> None:
        self._writer = writer
        self._reserve_bytes = reserve_bytes

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """One transaction, one version; ``StoreFull`` when additions would eat the reserve."""
        if puts:
            self._check_space()
        return self._writer.commit(kb, puts, removes)

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> Sequence[ChunkRow]:
        """Chunks without a vector of the current embedder; of all or one document."""
        return self._writer.pending(kb, limit, document_id)

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int:
        """One transaction, one version; ``StoreFull`` like ``commit``."""
        self._check_space()
        return self._writer.store_vectors(kb, vectors, fingerprint)

    def store_sentences(self, kb: str, maker: int, made: Mapping[int, bytes]) -> int:
        """One transaction; ``StoreFull`` like ``commit``."""
        self._check_space()
        return self._writer.store_sentences(kb, maker, made)

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._writer.folder).free
        if free < self._reserve_bytes:
            raise StoreFull(
                f"the disk of the store has {free // 1_000_000} MB left, less than the reserve of "
                f"{self._reserve_bytes // 1_000_000} MB; free some space."
            )


class FolderRecords:
    """What a folder ingest needs: known documents, and commits that are published."""

    def __init__(
        self,
        writer: StoreWriter,
        record: RecordWithReserve,
        publish: Callable[[str], int],
        thread: BlockingPool,
        committed: Callable[[str], None],
        change: Callable[[str, Callable[[], CommitReceipt]], Awaitable[CommitReceipt]],
    ) -> None:
        self._writer = writer
        self._record = record
        self._publish = publish
        self._thread = thread
        self._committed = committed
        self._change = change

    async def known(self, kb: str) -> Mapping[str, Known]:
        """Every document of the kb by id; empty when the kb is new."""

        def read() -> dict[str, Known]:
            stamps = self._writer.reader.stamps(kb)
            return {
                name: Known(stamp.content_hash, stamp.metadata.get(ROOT_KEY, ""))
                for name, stamp in stamps.items()
            }

        return await self._thread.run(read)

    async def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """One commit, published lexically when it returns; nothing to do reports the version."""

        def write() -> CommitReceipt:
            receipt = self._record.commit(kb, puts, removes)
            self._publish(kb)
            return receipt

        def ensure() -> CommitReceipt:
            version = ensure_kb(self._writer, kb)
            self._publish(kb)
            return CommitReceipt(kb, version)

        if puts or removes:
            receipt = await self._change(kb, write)
        else:
            receipt = await self._thread.run(ensure)
        self._committed(kb)
        return receipt


def ensure_kb(writer: StoreWriter, kb: str) -> int:
    """The version of ``kb``, which is made empty when it does not exist; blocking."""
    versions = writer.reader.versions()
    if kb in versions:
        return versions[kb]
    return writer.create(kb).version


def existing_kbs(reader: StoreReader) -> tuple[str, ...]:
    """Names of the knowledge bases the record holds; blocking."""
    return tuple(sorted(reader.versions()))
