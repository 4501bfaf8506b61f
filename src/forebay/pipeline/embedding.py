"""Background embedding: chunks without a vector get one, in grouped commits, beside serving."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Protocol

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.documents import ChunkRow, Vectors
from forebay.kernel.errors import EngineRefused, ForebayError, Overloaded
from forebay.kernel.stages import Embedder

log = logging.getLogger("forebay.embedding")
_PROBE = "embedding"
"""A text that no embedder fails for: what fails now lies with the endpoint, not with a chunk."""
_FIRST_RETRY_S = 1.0
_PAUSE_S = 5.0
_ALL = 2**31
_PATIENCE = 10
"""Times ``max_retry_s`` that a chunk waits at most that fails alone: it may fail for ever."""


class BackgroundEmbeddingSettings(msgspec.Struct, frozen=True):
    """How vectors follow commits."""

    flush_interval_s: Annotated[
        float,
        msgspec.Meta(gt=0, description="Vectors of one knowledge base are committed this often."),
    ] = 1.0
    batch_size: Annotated[
        int, msgspec.Meta(ge=1, description="Chunks handed to the embedder at once.")
    ] = 8
    lanes: Annotated[
        int, msgspec.Meta(ge=1, description="Batches under way at once, for each knowledge base.")
    ] = 4
    max_retry_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait after failed batches; starts at 1 s.")
    ] = 30.0


class VectorRecord(Protocol):
    """What embedding needs of the record; called from the writer's own thread only."""

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> Sequence[ChunkRow]:
        """Chunks without a vector of the current embedder, oldest first; of all or one document."""
        ...

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int:
        """One transaction, one version; chunks that vanished meanwhile are skipped."""
        ...


class FeederParts(msgspec.Struct, frozen=True):
    """What a feeder works with.

    ``run_blocking`` runs record calls in the writer's thread; ``publish`` (blocking too) brings
    the indexes of a kb up to the record. ``change`` runs what changes the kb, in that thread too,
    and returns when all processes know. ``stored`` is told of every commit of vectors.
    """

    record: VectorRecord
    embedder: Embedder
    publish: Callable[[str], int]
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    clock: Clock
    change: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
    stored: Callable[[], object] | None = None


class EmbeddingFeeder:
    """Keeps the embedder busy with what one knowledge base still lacks."""

    def __init__(self, kb: str, parts: FeederParts, settings: BackgroundEmbeddingSettings) -> None:
        self._kb = kb
        self._parts = parts
        self._settings = settings
        self._rows: deque[ChunkRow] = deque()
        self._claimed: set[int] = set()
        self._refused: set[int] = set()
        self._late_s: dict[int, float] = {}
        self._waiting: set[int] = set()
        self._done: list[tuple[int, bytes]] = []
        self._refill = asyncio.Lock()
        self._work = asyncio.Event()
        self._ready = asyncio.Event()
        self._changed = asyncio.Condition()
        self._work.set()
        self.embedded = 0
        self.error: str | None = None

    def kick(self) -> None:
        """There may be new chunks."""
        self._work.set()

    def statistics(self) -> dict[str, int]:
        """Chunks claimed, refused by the embedder, failing alone, embedded since the start."""
        return {
            "claimed": len(self._claimed),
            "refused": len(self._refused),
            "failing": len(self._late_s),
            "embedded": self.embedded,
        }

    async def wait_until(self, reached: Callable[[], Awaitable[bool]]) -> None:
        """Return when ``reached`` holds; it is asked again after every vector commit."""
        async with self._changed:
            while not await reached():
                await self._changed.wait()

    async def rest(self) -> None:
        """Return when no chunk is in work, or after some seconds: one that fails may be for long.

        What is less urgent begins after this.
        """

        async def idle() -> bool:
            return not self._claimed

        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self.wait_until(idle)

    async def wait_for(self, document_id: str, reached: Callable[[], Awaitable[bool]]) -> None:
        """Embed a document before all that waits; return when ``reached`` holds, or never will.

        It will not when the embedder refuses all that the document still lacks.
        """
        rows = await self._parts.run_blocking(
            lambda: self._parts.record.pending(self._kb, _ALL, document_id)
        )
        self._put_first(rows)
        wanted = {row.chunk_id for row in rows}
        async with self._changed:
            while not await reached() and not self._refuses_rest(wanted):
                await self._changed.wait()

    def _refuses_rest(self, chunk_ids: set[int]) -> bool:
        under_way = self._claimed | self._late_s.keys()
        return not chunk_ids.isdisjoint(self._refused) and chunk_ids.isdisjoint(under_way)

    def _put_first(self, rows: Sequence[ChunkRow]) -> None:
        """What nobody has in work comes before the rest."""
        own = {row.chunk_id for row in rows}
        waiting = {row.chunk_id for row in self._rows}
        passed_over = (self._claimed - waiting) | self._refused | self._waiting
        first = [row for row in rows if row.chunk_id not in passed_over]
        rest = [row for row in self._rows if row.chunk_id not in own]
        self._claimed.update(row.chunk_id for row in first)
        self._rows = deque((*first, *rest))
        self._work.set()

    async def fail(self, message: str) -> None:
        """Note that nothing more will come, and wake who waits for it."""
        self.error = message
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        """Embed until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.lanes):
                group.create_task(self._lane())
            group.create_task(self._flush_forever())

    async def _lane(self) -> None:
        first_s = min(_FIRST_RETRY_S, self._settings.max_retry_s)
        retry_s = first_s
        while True:
            batch = await self._take()
            try:
                self._keep(batch, await self._embed(batch))
                retry_s = first_s
            except ForebayError as error:
                if not isinstance(error, Overloaded) and await self._works():
                    await self._one_by_one(batch)
                    continue
                self.error = error.message
                log.warning("embedding of %s failed: %s", self._kb, error.message)
                self._rows.extendleft(reversed(batch))
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, self._settings.max_retry_s)

    async def _works(self) -> bool:
        """Whether the embedder answers now."""
        try:
            await self._parts.embedder.embed([_PROBE], kind="passage")
        except ForebayError:
            return False
        return True

    async def _embed(self, batch: Sequence[ChunkRow]) -> Vectors:
        return await self._parts.embedder.embed(
            [passage_text(row) for row in batch], kind="passage"
        )

    async def _one_by_one(self, batch: Sequence[ChunkRow]) -> None:
        """Find the chunks the embedder fails for, so that their neighbours are not lost with them.

        What it refuses while it takes other texts is not tried again.
        """
        for at, row in enumerate(batch):
            try:
                self._keep([row], await self._embed([row]))
            except ForebayError as failure:
                if isinstance(failure, Overloaded) or not await self._works():
                    self.error = failure.message
                    self._rows.extendleft(reversed(batch[at:]))
                    return
                if isinstance(failure, EngineRefused):
                    self._refuse(row, failure)
                    async with self._changed:
                        self._changed.notify_all()
                else:
                    self._put_off(row, failure)

    def _refuse(self, row: ChunkRow, refusal: EngineRefused) -> None:
        self._refused.add(row.chunk_id)
        self._claimed.discard(row.chunk_id)
        self._late_s.pop(row.chunk_id, None)
        log.warning("the embedder refused a chunk of %s: %s", row.document_id, refusal.message)

    def _put_off(self, row: ChunkRow, failure: ForebayError) -> None:
        """Others come first; the chunk is tried again, each time after a longer wait."""
        late_s = self._late_s.get(row.chunk_id)
        most_s = self._settings.max_retry_s
        wait_s = min(2 * late_s, _PATIENCE * most_s) if late_s else min(_FIRST_RETRY_S, most_s)
        self._late_s[row.chunk_id] = wait_s
        self._waiting.add(row.chunk_id)
        self._claimed.discard(row.chunk_id)
        self.error = failure.message
        if late_s is None:
            log.warning("the embedder failed for a chunk of %s", row.document_id)
        asyncio.get_running_loop().call_later(wait_s, self._again, row.chunk_id)

    def _again(self, chunk_id: int) -> None:
        self._waiting.discard(chunk_id)
        self._work.set()

    def _keep(self, batch: Sequence[ChunkRow], vectors: Vectors) -> None:
        size = vectors.dimensions * 4
        for position, row in enumerate(batch):
            self._done.append((row.chunk_id, vectors.data[position * size : (position + 1) * size]))
            self._late_s.pop(row.chunk_id, None)
        if not self._late_s:
            self.error = None
        self._ready.set()

    async def _take(self) -> list[ChunkRow]:
        """The next batch; waits for work when there is none."""
        while True:
            if not self._rows:
                await self._fill()
            if self._rows:
                size = min(self._settings.batch_size, len(self._rows))
                return [self._rows.popleft() for _ in range(size)]

    async def _fill(self) -> None:
        async with self._refill:
            if self._rows:
                return
            await self._work.wait()
            self._work.clear()
            seen = len(self._claimed) + len(self._refused) + len(self._late_s)
            want = self._settings.batch_size * self._settings.lanes * 8
            rows = await self._parts.run_blocking(
                lambda: self._parts.record.pending(self._kb, seen + want)
            )
            self._forget_gone({row.chunk_id for row in rows})
            passed_over = self._claimed | self._refused | self._waiting
            for row in rows:
                if row.chunk_id not in passed_over:
                    self._claimed.add(row.chunk_id)
                    self._rows.append(row)
            if self._rows:
                self._work.set()

    def _forget_gone(self, there: set[int]) -> None:
        """Chunks that were put off and are no more."""
        gone = self._late_s.keys() - there - self._waiting - self._claimed
        for one in gone:
            del self._late_s[one]
        if gone and not self._late_s:
            self.error = None

    async def _flush_forever(self) -> None:
        last = self._parts.clock.now() - self._settings.flush_interval_s
        while True:
            await self._ready.wait()
            due = last + self._settings.flush_interval_s - self._parts.clock.now()
            if due > 0:  # at most one version a second for vectors
                await asyncio.sleep(due)
            self._ready.clear()
            done, self._done = self._done, []
            if not done:
                continue
            last = self._parts.clock.now()
            try:
                await self._flush(done)
            except ForebayError as error:
                self.error = error.message
                log.warning("vectors of %s were not stored: %s", self._kb, error.message)
                self._done = done + self._done
                self._ready.set()

    async def _flush(self, done: list[tuple[int, bytes]]) -> None:
        spec = self._parts.embedder.spec
        vectors = Vectors(
            tuple(chunk_id for chunk_id, _ in done),
            spec.dimensions,
            b"".join(data for _, data in done),
        )

        def store() -> None:
            self._parts.record.store_vectors(self._kb, vectors, spec.fingerprint)
            self._parts.publish(self._kb)

        await (self._parts.change or self._parts.run_blocking)(store)
        self.embedded += len(done)
        self._claimed.difference_update(vectors.ids)
        self._work.set()
        if self._parts.stored is not None:
            self._parts.stored()
        async with self._changed:
            self._changed.notify_all()


def passage_text(row: ChunkRow) -> str:
    """What is embedded for a chunk: title and headings give a short chunk its meaning."""
    head = " > ".join(dict.fromkeys(part for part in (row.title, *row.heading_path) if part))
    return "\n".join(part for part in (head, row.context, row.text) if part)
