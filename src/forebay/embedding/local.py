"""The embedder around a local ONNX model: tokenizer, encoder and worker pool."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
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
from forebay.kernel.tokens import TokenStates

Rows = NDArray[np.float32]


class Encoder(Protocol):
    """Token ids in, vectors out; called from several threads at once."""

    def encode(self, rows: Sequence[Sequence[int]]) -> Rows:
        """One unit vector per row of ids."""
        ...

    @property
    def has_states(self) -> bool:
        """Whether the model gives vectors of single tokens."""
        ...

    def states(self, row: Sequence[int]) -> Rows:
        """One vector per id, as the model's last layer has it."""
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
    states: bool = False
    urgent: bool = False


class _Made(msgspec.Struct, frozen=True):
    rows: Rows
    took_s: float


class _Flight(msgspec.Struct, frozen=True):
    batch: _Batch
    job: Future[_Made]


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
        self._clock = clock
        self._pool: WorkerPool[_Batch, _Made] = WorkerPool(
            self._run, settings.pool, clock, name="embed"
        )

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        return self._spec

    @property
    def has_states(self) -> bool:
        """Whether ``states`` can be asked of this model."""
        return self._encoder.has_states

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Return one unit vector per text; a query overtakes passages and raw texts.

        Several queries at once do not: those are nobody's who waits for an answer.
        ``Overloaded`` when too much waits already, ``DeadlineExceeded`` when one run's turn does
        not come in time. Cancelling drops what has not begun.
        """
        rows = np.empty((len(texts), self._spec.dimensions), "<f4")
        worked_s = 0.0

        def put(batch: _Batch, made: _Made) -> None:
            nonlocal worked_s
            for position, row in zip(batch.positions, made.rows, strict=True):
                rows[position] = row
            worked_s += made.took_s

        await self._each(self._batches(texts, kind), put)
        size = self._spec.dimensions
        return Vectors(tuple(range(len(texts))), size, rows.tobytes(), worked_s=worked_s)

    async def states(self, texts: Sequence[str], *, kind: Kind) -> tuple[TokenStates, ...]:
        """Return the last layer's states of each text's tokens; errors as those of ``embed``.

        A text takes ``4 * dimensions`` bytes a token: 0.8 MB for 512 tokens of 384.
        """
        states: dict[int, TokenStates] = {}

        def put(batch: _Batch, made: _Made) -> None:
            tokens, dimensions = made.rows.shape
            data = made.rows.astype("<f4", copy=False).tobytes()
            states[batch.positions[0]] = TokenStates(tokens, dimensions, data)

        batches = (
            _Batch((position,), (text,), kind, states=True, urgent=kind == "query")
            for position, text in enumerate(texts)
        )
        await self._each(batches, put)
        return tuple(states[position] for position in range(len(texts)))

    async def _each(self, work: Iterable[_Batch], put: Callable[[_Batch, _Made], None]) -> None:
        """Run every batch; results are put as they come."""
        flights: dict[asyncio.Future[_Made], _Flight] = {}
        batches = deque(work)
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
                    put(flights[answer].batch, answer.result())
                    del flights[answer]
                self._top_up(flights, batches)
        finally:
            for answer, flight in flights.items():
                # The job itself: cancelling the answer would reach it one turn of the loop later.
                flight.job.cancel()
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # seen: the first failure is the one that is raised

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
            some = tuple(texts[position] for position in chosen)
            yield _Batch(chosen, some, kind, urgent=kind == "query" and len(texts) == 1)

    def _top_up(
        self, flights: dict[asyncio.Future[_Made], _Flight], batches: deque[_Batch]
    ) -> None:
        while batches and len(flights) < self._settings.max_jobs_per_call:
            batch = batches[0]
            try:
                job = self._pool.submit(batch, urgent=batch.urgent)
            except Overloaded:
                if flights:
                    return  # others filled the queue meanwhile; what was begun is finished
                raise
            batches.popleft()
            flights[asyncio.wrap_future(job)] = _Flight(batch, job)

    def at_work_s(self) -> float:
        """See ``Working``."""
        return self._pool.at_work_s()

    def tokens(self, text: str) -> Sequence[int]:
        """The ids of a text's tokens, at most as many as the model takes; no prefix before them."""
        return self._tokenizer.encode(text, self._spec.max_tokens)

    def in_line(self, text: str) -> Callable[[], Vectors]:
        """See ``InLine``."""
        return partial(self._here, text)

    def _here(self, text: str) -> Vectors:
        self._pool.asked()
        made = self._run(_Batch((0,), (text,), "query"))
        data = made.rows.astype("<f4", copy=False).tobytes()
        return Vectors((0,), self._spec.dimensions, data, worked_s=made.took_s)

    def _run(self, batch: _Batch) -> _Made:
        began_at = self._clock.now()
        limit = self._spec.max_tokens
        rows = [
            self._tokenizer.encode(self._prefixes.apply(text, batch.kind), limit)
            for text in batch.texts
        ]
        made = self._encoder.states(rows[0]) if batch.states else self._encoder.encode(rows)
        return _Made(made, self._clock.now() - began_at)
