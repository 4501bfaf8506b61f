"""Any OpenAI-compatible chat completions endpoint, in pools of replicas.

A replica that cannot be reached or fails before its first token is passed over; once a token has
gone out, a failure ends the answer. Closing the iterator closes the connection, so the engine
stops at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from forebay.generation.completion import (
    CompletionReader,
    EngineUsage,
    completion_body,
)
from forebay.generation.connections import KeepAll, MakeSizing
from forebay.generation.hedging import hedged
from forebay.generation.http import HttpClient, Response
from forebay.generation.pools import Pool, Replica, open_pools, pool_for
from forebay.generation.reading import Bounded, Reading
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    ForebayError,
    Overloaded,
    Unavailable,
    http_words,
)
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Message,
    Sampling,
    TextDelta,
    TokenCounter,
)

log = logging.getLogger("forebay.generation")

_BUSY = {429, 503}
_LATE = 408
_RETRY_AFTER_MAX_S = 300.0
_WARMING = GenerationRequest(
    question="Hello",
    language="en",
    messages=(Message("user", "Hello"),),
    passages=(),
    sampling=Sampling(),
    max_output_tokens=1,
    prompt_tokens=1,
)


class _TryNext(Exception):
    """A replica failed before its first token; ``error`` is what to say if it was the last."""

    def __init__(self, error: ForebayError) -> None:
        super().__init__(error.message)
        self.error = error


class OpenAIGenerator:
    """Generates over HTTP; made inside a running loop, ended by ``close``."""

    def __init__(
        self,
        pools: Sequence[PoolSettings],
        settings: EngineSettings,
        counter: TokenCounter,
        sizing: MakeSizing = KeepAll,
    ) -> None:
        self._pools = open_pools(pools, settings, sizing)
        self._settings = settings
        self._counter = counter
        self._in_work = 0
        self._closed = False
        self._clients = {
            replica: HttpClient(
                replica.url,
                connect_timeout_s=settings.connect_timeout_s,
                idle_s=settings.connection_idle_s,
            )
            for pool in self._pools
            for replica in pool.replicas
        }

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """Yield text as the engine sends it, then ``Finished``.

        ``ContextTooLong`` when no pool takes the prompt, ``EngineRefused`` for an engine's 4xx,
        ``Overloaded`` for its 429 and 503 or when too much is in work here, ``DeadlineExceeded``,
        ``EngineError`` for whatever else goes wrong, a stream without a finish reason included.
        """
        pool = self._pool(ctx, request)
        if self._closed:
            raise Unavailable("The connection to the engines is shut.")
        if self._in_work >= self._settings.max_waiting:
            raise Overloaded("Too many answers are being generated; try again shortly.")
        self._in_work += 1
        try:
            async with aclosing(self._over_replicas(ctx, pool, request)) as events:
                async for event in events:
                    yield event
        finally:
            self._in_work -= 1

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools with their replicas."""
        return self._pools

    async def warm(self, ctx: RequestContext, pool: Pool, number: int) -> None:
        """Have one replica write one token; raises what ``generate`` raises, for that replica."""
        replica = pool.replicas[number]
        try:
            async with aclosing(self._attempt(ctx, pool, replica, _WARMING)) as events:
                async for _ in events:
                    replica.answered_at = ctx.clock.now()
        except (_TryNext, EngineRefused) as error:
            replica.fail(_failure_of(error), ctx.clock.now())
            raise error.error if isinstance(error, _TryNext) else error from error.__cause__

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        self._closed = True
        for client in self._clients.values():
            client.close()

    def statistics(self) -> dict[str, dict[str, int]]:
        """What each pool has under way."""
        return {pool.settings.name: pool.statistics() for pool in self._pools}

    def _pool(self, ctx: RequestContext, request: GenerationRequest) -> Pool:
        """The pool that admission chose, else the first that takes the prompt."""
        if ctx.placement is not None:
            for pool in self._pools:
                if pool.settings.name == ctx.placement.pool:
                    return pool
        return pool_for(self._pools, request.prompt_tokens)

    async def _over_replicas(
        self, ctx: RequestContext, pool: Pool, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        failure: ForebayError = EngineError("No engine answered.")
        for replica in _replicas(ctx, pool):
            if ctx.deadline.expired():
                raise DeadlineExceeded("The request's deadline passed before an engine answered.")

            def another(number: int) -> AsyncGenerator[TextDelta | Finished, None]:
                return self._connected(ctx, pool, pool.replicas[number], request)

            hedging = ctx.placement.hedging if ctx.placement is not None else None
            first = self._connected(ctx, pool, replica, request)
            tried = first if hedging is None else hedged(hedging, first, another)
            try:
                async with aclosing(tried) as events:
                    event = await _first(ctx, events)
                    if ctx.placement is not None:
                        ctx.placement.token()
                    yield event
                    async for event in events:
                        if ctx.placement is not None:
                            ctx.placement.token()
                        yield event
                return
            except _TryNext as passed_over:
                failure = passed_over.error
        raise failure

    async def _connected(
        self, ctx: RequestContext, pool: Pool, replica: Replica, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """An attempt with a connection, noted at its replica."""
        replica.outstanding += 1
        try:
            async with (
                replica.connections.use(ctx),
                aclosing(self._attempt(ctx, pool, replica, request)) as events,
            ):
                async for event in events:
                    replica.answered_at = ctx.clock.now()
                    yield event
        except (_TryNext, EngineRefused) as error:
            why = _failure_of(error)
            if why and pool.failed(replica, why, ctx.clock.now()):
                log.warning(
                    "engine %s of pool %s: %s (%s)",
                    replica.url,
                    pool.settings.name,
                    why,
                    error.__cause__ or "it answered so",
                )
            raise
        finally:
            replica.outstanding -= 1

    async def _attempt(
        self, ctx: RequestContext, pool: Pool, replica: Replica, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """One replica's answer; ``_TryNext`` for failures before the first token."""
        text: list[str] = []
        response: Response | None = None
        reading: Reading | None = None
        try:
            async with Bounded(ctx, self._settings.first_token_timeout_s) as waiting:
                response = await self._post(ctx, pool, replica, request)
            reading = Reading(ctx, request, self._settings, response, text)
            wait_s = waiting.left()
            while not reading.done:
                piece = await reading.piece(wait_s)
                wait_s = self._settings.idle_timeout_s
                while piece:
                    yield TextDelta(piece)
                    # Whoever asks on has taken what was said: this answer goes on.
                    piece = "" if ctx.direct is None else await reading.direct(replica)
            if reading.reader.reason is None:
                raise EngineError("The engine's answer broke off.")
        except OSError as error:
            # A time-out of the connection is an OSError too.
            failure = EngineError("The engine cannot be reached, or broke the connection.")
            if text:
                raise failure from error
            raise _TryNext(failure) from error
        except EngineRefused:
            raise
        except EngineError as error:
            if text:
                raise
            raise _TryNext(error) from error
        finally:
            if reading is not None:
                reading.close()
            # Closed unless read to its end: an engine must see at once that nobody reads any more.
            if response is not None:
                response.close()
        yield self._finished(pool, request, reading.reader, text)

    async def _post(
        self, ctx: RequestContext, pool: Pool, replica: Replica, request: GenerationRequest
    ) -> Response:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if pool.settings.api_key:
            headers["Authorization"] = f"Bearer {pool.settings.api_key}"
        if replica.connections.closes(ctx.clock.now()):
            headers["Connection"] = "close"
        most = pool.settings.max_output_tokens
        if ctx.placement is not None:
            most = min(most, ctx.placement.max_output_tokens)
        body = completion_body(
            request,
            max_output_tokens=most,
            model=pool.settings.model,
        )
        response = await self._clients[replica].post(headers, body)
        if response.status != 200:
            response.close()
            _refuse(response)
        return response

    def _finished(
        self, pool: Pool, request: GenerationRequest, reader: CompletionReader, text: Sequence[str]
    ) -> Finished:
        assert reader.reason is not None
        usage = reader.usage or EngineUsage()
        read = usage.prompt_of(request)
        written = usage.completion_of(request, sum(map(len, text)))
        return Finished(
            reason=reader.reason,
            prompt_tokens=request.prompt_tokens if read is None else read,
            completion_tokens=self._counter.count("".join(text)) if written is None else written,
            model=pool.settings.model,
        )


def _replicas(ctx: RequestContext, pool: Pool) -> Iterator[Replica]:
    """The replicas to try: admission's choices, within its budget; else one after the other."""
    placement = ctx.placement
    if placement is None or placement.pool != pool.settings.name:
        yield from pool.replicas
        return
    yield pool.replicas[placement.replica]
    while placement.again():
        yield pool.replicas[placement.replica]


async def _first(
    ctx: RequestContext, events: AsyncGenerator[TextDelta | Finished, None]
) -> TextDelta | Finished:
    """The first event, unless admission finds that the replica hangs and knows another."""
    if ctx.placement is None:
        return await anext(events)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as waiting:
            ctx.placement.unless_hung(lambda: waiting.reschedule(loop.time()))
            try:
                return await anext(events)
            finally:
                ctx.placement.unless_hung(None)
    except TimeoutError as silent:
        if not waiting.expired():
            raise
        raise _TryNext(EngineError("The engine shows no sign of life.")) from silent


def _failure_of(error: _TryNext | EngineRefused) -> str:
    """What speaks against a replica; empty where the request itself was refused."""
    if isinstance(error, _TryNext):
        return error.error.message
    return error.message if error.set_up_wrongly else ""


def _refuse(response: Response) -> None:
    """Turn a status into an error; the engine's own words are not passed on."""
    status = response.status
    if status in _BUSY:
        wait = response.headers.get("retry-after", "")
        after = min(float(wait), _RETRY_AFTER_MAX_S) if wait.isdecimal() else 1.0
        raise _TryNext(Overloaded("The engine is overloaded.", retry_after_s=after))
    if 400 <= status < 500 and status != _LATE:
        told = f"The engine refused the request ({http_words(status)})."
        raise EngineRefused(told, status=status)
    raise _TryNext(EngineError(f"The engine failed ({http_words(status)})."))
