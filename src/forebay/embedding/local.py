"""The embedder around a local ONNX model: tokenizer, encoder and worker pool."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Annotated, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.embedding.prefixes import Kind, Prefixes
from forebay.embedding.tokenizers import Tokenizer
from forebay.embedding.workers import PoolStatistics, WorkerPool, WorkerSettings
from forebay.kernel.clock import Clock
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import DeadlineExceeded, Overloaded
from forebay.kernel.stages import EmbedderSpec

Rows = NDArray[np.float32]


class Encoder(Protocol):
    """Token ids in, unit vectors out; called from several threads at once."""

    def encode(self, rows: Sequence[Sequence[int]]) -> Rows:
        """One row per row of ids."""
        ...


class LocalSettings(msgspec.Struct, frozen=True):
    """How texts reach the model.

    One text a run is the fastest on a CPU (140-token passages: 28/s one by one, 26/s by four,
    20/s by eight), and then a vector does not depend on what it was batched with.
    """

    batch_size: Annotated[
        int, msgspec.Meta(ge=1, le=256, description="Texts of similar length in one model run.")
    ] = 1
    max_jobs_per_call: Annotated[
        int, msgspec.Meta(ge=1, description="Runs one call may have waiting or running at once.")
    ] = 32
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait for any one run, queueing included.")
    ] = 60.0
    pool: WorkerSettings = WorkerSettings()


class _Batch(msgspec.Struct, frozen=True):
    positions: tuple[int, ...]
    texts: tuple[str, ...]
    kind: Kind


class _Flight(msgspec.Struct, frozen=True):
    batch: _Batch
    job: Future[Rows]


class LocalEmbedder:
    """Embeds with a model in this process; ``close`` it to stop its threads."""

    def __init__(
        self,
        spec: EmbedderSpec,
        tokenizer: Tokenizer,
        encoder: Encoder,
        *,
        prefixes: Prefixes,
        settings: LocalSettings,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._prefixes = prefixes
        self._settings = settings
        self._pool: WorkerPool[_Batch, Rows] = WorkerPool(
            self._run, settings.pool, clock, name="embed"
        )

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        return self._spec

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Return one unit vector per text; queries overtake passages and raw texts.

        ``Overloaded`` when too much waits already, ``DeadlineExceeded`` when one run's turn does
        not come in time. Cancelling drops what has not begun.
        """
        rows = np.empty((len(texts), self._spec.dimensions), "<f4")
        flights: dict[asyncio.Future[Rows], _Flight] = {}
        batches = deque(self._batches(texts, kind))
        try:
            self._top_up(flights, batches)
            while flights:
                done, _ = await asyncio.wait(
                    flights,
                    timeout=self._settings.timeout_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    raise DeadlineExceeded("the embedder did not get to this text in time")
                for answer in done:
                    rows[list(flights[answer].batch.positions)] = answer.result()
                    del flights[answer]
                self._top_up(flights, batches)
        finally:
            for answer, flight in flights.items():
                # The job itself: cancelling the answer would reach it one turn of the loop later.
                flight.job.cancel()
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # seen: the first failure is the one that is raised
        return Vectors(tuple(range(len(texts))), self._spec.dimensions, rows.tobytes())

    def statistics(self) -> PoolStatistics:
        """The worker pool's numbers."""
        return self._pool.statistics()

    async def close(self) -> None:
        """Refuse what waits and stop the threads, after at most one run each."""
        await asyncio.to_thread(self._pool.close)

    def _batches(self, texts: Sequence[str], kind: Kind) -> Iterator[_Batch]:
        size = self._settings.batch_size
        order: Sequence[int] = range(len(texts))
        if size > 1:
            order = sorted(order, key=lambda position: len(texts[position]))
        for start in range(0, len(order), size):
            chosen = tuple(order[start : start + size])
            yield _Batch(chosen, tuple(texts[position] for position in chosen), kind)

    def _top_up(self, flights: dict[asyncio.Future[Rows], _Flight], batches: deque[_Batch]) -> None:
        while batches and len(flights) < self._settings.max_jobs_per_call:
            batch = batches[0]
            try:
                job = self._pool.submit(batch, urgent=batch.kind == "query")
            except Overloaded:
                if flights:
                    return  # others filled the queue meanwhile; what was begun is finished
                raise
            batches.popleft()
            flights[asyncio.wrap_future(job)] = _Flight(batch, job)

    def _run(self, batch: _Batch) -> Rows:
        limit = self._spec.max_tokens
        rows = [
            self._tokenizer.encode(self._prefixes.apply(text, batch.kind), limit)
            for text in batch.texts
        ]
        return self._encoder.encode(rows)
