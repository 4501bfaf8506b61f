"""Worker processes that parse and chunk, so that a hostile file costs one error and no more."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Protocol

import msgspec
import psutil
from msgspec import Meta

from forebay.ingest.frames import Batch, CounterChoice, Setup, Task
from forebay.ingest.process import Worker, WorkerDied
from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.ingest.worker import memory_reason
from forebay.kernel.documents import ChunkDraft, Extracted
from forebay.kernel.errors import ForebayError, Overloaded, UnsupportedDocument

# Raised when the same bytes begin to come out differently.
PARSER_REVISION = "2"
ESTIMATED_COUNTER = CounterChoice("forebay.ingest.tokens:EstimatedTokenCounter")
_WATCH_S = 0.2


class PoolSettings(msgspec.Struct, frozen=True):
    """How many worker processes there are and what each may use."""

    workers: Annotated[int, Meta(description="Worker processes that parse.", ge=1)] = 2
    task_timeout_s: Annotated[
        float, Meta(description="Longest time one file may take, in seconds.", gt=0)
    ] = 120.0
    task_cpu_s: Annotated[
        int, Meta(description="Most processor time one file may take, in seconds.", ge=1)
    ] = 100
    worker_memory_bytes: Annotated[
        int, Meta(description="Most memory of one worker process, in bytes.", ge=100_000_000)
    ] = 1_000_000_000
    recycle_memory_bytes: Annotated[
        int,
        Meta(description="A worker over this memory is replaced after its batch, in bytes.", ge=1),
    ] = 250_000_000
    batch_bytes: Annotated[
        int, Meta(description="Bytes of small files sent to a worker together.", ge=1)
    ] = 1_000_000
    batch_files: Annotated[
        int, Meta(description="Small files sent to a worker together, at most.", ge=1)
    ] = 64
    max_waiting: Annotated[
        int, Meta(description="Calls that may wait for a worker before refusal.", ge=1)
    ] = 256
    wait_timeout_s: Annotated[
        float, Meta(description="Longest wait for a free worker, in seconds.", gt=0)
    ] = 600.0
    nice: Annotated[
        int, Meta(description="How far workers stand back behind serving (Unix nice).", ge=0, le=19)
    ] = 5


class Job(Protocol):
    """A file in memory; ``name`` guides format detection."""

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def media_type(self) -> str | None: ...


class ParsedDocument(msgspec.Struct, frozen=True):
    """A file's text (without its blocks, which chunking has used up) and its chunks.

    ``sentences`` are spans whose likeness to their neighbours ``recut_many`` asks for; empty where
    chunks end by structure alone. ``provisional``: cut another way than the settings say.
    """

    extracted: Extracted
    chunks: tuple[ChunkDraft, ...]
    sentences: tuple[tuple[int, int], ...] = ()
    provisional: bool = False


class _Slot:
    """A place for one worker, empty until it is needed or after a death."""

    def __init__(self) -> None:
        self.worker: Worker | None = None


class ParsePool:
    """Parses and chunks in worker processes; one owner, ``close`` leaves no process.

    ``counter`` is the token counter made in each worker; None: the estimate.
    """

    def __init__(
        self,
        settings: PoolSettings | None = None,
        limits: IngestLimits | None = None,
        chunks: ChunkSettings | None = None,
        *,
        counter: CounterChoice | None = None,
    ) -> None:
        self._settings = settings or PoolSettings()
        self._setup = Setup(
            limits or IngestLimits(),
            chunks or ChunkSettings(),
            counter or ESTIMATED_COUNTER,
            self._settings.worker_memory_bytes,
            self._settings.task_cpu_s,
            self._settings.nice,
        )
        self._slots = [_Slot() for _ in range(self._settings.workers)]
        self._free: asyncio.Queue[_Slot] = asyncio.Queue()
        for slot in self._slots:
            self._free.put_nowait(slot)
        self._waiting = 0
        self._started = 0
        self._failed = 0
        self._parsed = 0
        self._closed = False

    @property
    def revision(self) -> str:
        """Changes when the same bytes would come out differently."""
        what = (
            PARSER_REVISION,
            self._setup.limits,
            self._setup.chunks,
            self._setup.counter.factory,
        )
        return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]

    def statistics(self) -> dict[str, int]:
        """Workers running, processes started, files parsed and failed, calls waiting."""
        return {
            "workers": sum(slot.worker is not None for slot in self._slots),
            "started": self._started,
            "parsed": self._parsed,
            "failed": self._failed,
            "waiting": self._waiting,
        }

    def process_ids(self) -> tuple[int, ...]:
        """The worker processes that run now."""
        return tuple(slot.worker.pid for slot in self._slots if slot.worker is not None)

    async def __aenter__(self) -> ParsePool:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start every worker now, so that the first document does not wait for one."""
        for _ in self._slots:
            async with self._slot() as slot:
                await self._worker(slot)

    async def close(self) -> None:
        """End every worker process, in use or not."""
        self._closed = True
        for slot in self._slots:
            worker, slot.worker = slot.worker, None
            if worker is not None:
                await worker.kill()

    async def parse_file(
        self, path: str, *, name: str | None = None, media_type: str | None = None
    ) -> ParsedDocument:
        """Read, parse and chunk a file in a worker; raise ``UnsupportedDocument`` with a reason."""
        return _raised(await self._run([Task(name or path, media_type, None, path)]))

    async def parse_bytes(
        self, data: bytes, *, name: str, media_type: str | None = None
    ) -> ParsedDocument:
        """Parse and chunk ``data`` in a worker; raise ``UnsupportedDocument`` with a reason."""
        return _raised(await self._run([Task(name, media_type, data, None)]))

    async def parse_many(self, jobs: Sequence[Job]) -> list[ParsedDocument | ForebayError]:
        """One result or error per job, in order; small files share a trip to a worker."""
        tasks = [Task(job.name, job.media_type, job.data, None) for job in jobs]
        return await self._run_many(tasks)

    async def recut_many(
        self, jobs: Sequence[Job], breaks: Sequence[tuple[int, ...]]
    ) -> list[ParsedDocument | ForebayError]:
        """The same files again, their chunks ending where ``breaks`` says that meaning changes."""
        pairs = zip(jobs, breaks, strict=True)
        return await self._run_many(
            [Task(job.name, job.media_type, job.data, None, at) for job, at in pairs]
        )

    async def _run_many(self, tasks: Sequence[Task]) -> list[ParsedDocument | ForebayError]:
        results: list[ParsedDocument | ForebayError] = []
        batches = list(self._batches(tasks))
        # As many batches at once as there are workers; the rest wait here, not in the queue.
        gate = asyncio.Semaphore(self._settings.workers)

        async def run(batch: list[Task]) -> list[ParsedDocument | ForebayError]:
            async with gate:
                return await self._run(batch)

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run(batch)) for batch in batches]
        for task in running:
            results.extend(task.result())
        return results

    def _batches(self, tasks: Sequence[Task]) -> Iterator[list[Task]]:
        batch: list[Task] = []
        size = 0
        for task in tasks:
            bytes_more = len(task.data or b"")
            full = len(batch) >= self._settings.batch_files
            if batch and (full or size + bytes_more > self._settings.batch_bytes):
                yield batch
                batch, size = [], 0
            batch.append(task)
            size += bytes_more
        if batch:
            yield batch

    async def _run(self, tasks: list[Task]) -> list[ParsedDocument | ForebayError]:
        """Do the tasks in order; a file that ends its worker is answered, the rest go on."""
        results: list[ParsedDocument | ForebayError] = []
        while len(results) < len(tasks):
            try:
                async with self._slot() as slot:
                    await self._exchange(slot, tasks[len(results) :], results)
            except Overloaded as error:
                results.extend([error] * (len(tasks) - len(results)))
        self._parsed += sum(isinstance(result, ParsedDocument) for result in results)
        self._failed += sum(not isinstance(result, ParsedDocument) for result in results)
        return results

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[_Slot]:
        if self._closed:
            raise Overloaded("The parser is shut down.")
        if self._waiting >= self._settings.max_waiting:
            raise Overloaded("Too many documents wait to be parsed.", retry_after_s=5.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.wait_timeout_s):
                slot = await self._free.get()
        except TimeoutError as error:
            raise Overloaded("No parser became free in time.", retry_after_s=30.0) from error
        finally:
            self._waiting -= 1
        try:
            yield slot
        finally:
            self._free.put_nowait(slot)

    async def _exchange(
        self,
        slot: _Slot,
        tasks: list[Task],
        results: list[ParsedDocument | ForebayError],
    ) -> None:
        """Send a batch and take one result per file; kill the worker on any way out but done."""
        worker = await self._worker(slot)
        finished = False
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(worker))
                finished = await self._collect(worker, tasks, results)
                watch.cancel()
        finally:
            if not finished or worker.spent:
                slot.worker = None
                await worker.kill()

    async def _collect(
        self, worker: Worker, tasks: list[Task], results: list[ParsedDocument | ForebayError]
    ) -> bool:
        """Whether every file was answered by a worker that is still good."""
        limit = self._settings.task_timeout_s
        try:
            async with asyncio.timeout(limit):
                await worker.send(msgspec.msgpack.encode(Batch(tasks)))
            for _ in tasks:
                async with asyncio.timeout(limit):
                    answer = await worker.receive()
                if isinstance(answer, UnsupportedDocument):
                    results.append(answer)
                else:
                    results.append(ParsedDocument(*answer))
                if worker.exiting:
                    return False
        except TimeoutError:
            results.append(_slow(limit))
            return False
        except WorkerDied as death:
            results.append(self._post_mortem(worker, death))
            return False
        return True

    async def _worker(self, slot: _Slot) -> Worker:
        if slot.worker is None or not slot.worker.alive:
            if slot.worker is not None:
                await slot.worker.kill()
            self._started += 1
            slot.worker = await Worker.start(sys.executable, self._setup)
            if self._closed:
                worker, slot.worker = slot.worker, None
                await worker.kill()
                raise Overloaded("The parser is shut down.")
        return slot.worker

    async def _watch(self, worker: Worker) -> None:
        """Kill a worker whose resident memory outgrows its bound (macOS has no other means)."""
        try:
            process = psutil.Process(worker.pid)
            while True:
                await asyncio.sleep(_WATCH_S)
                resident = process.memory_info().rss
                worker.spent = resident > self._settings.recycle_memory_bytes
                if resident > self._settings.worker_memory_bytes:
                    worker.too_big = True
                    worker.signal()
                    return
        except psutil.Error:
            return

    def _post_mortem(self, worker: Worker, death: WorkerDied) -> UnsupportedDocument:
        if worker.too_big:
            return UnsupportedDocument(
                memory_reason(self._settings.worker_memory_bytes), code="too_large"
            )
        if death.cpu:
            return _slow(self._settings.task_cpu_s)
        return UnsupportedDocument(
            "The document made its parser fail; it is damaged, hostile or far too large.",
            code="crashed",
        )


def _raised(results: list[ParsedDocument | ForebayError]) -> ParsedDocument:
    (result,) = results
    if isinstance(result, ForebayError):
        raise result
    return result


def _slow(seconds: float) -> UnsupportedDocument:
    return UnsupportedDocument(
        f"The document took longer than {seconds:.0f} s to read; split it.", code="too_slow"
    )
