"""Reading one engine's answer: text as it comes, within its bounds of time and length."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from forebay.generation.completion import CompletionReader, longest_answer
from forebay.generation.http import Response
from forebay.generation.pools import Replica
from forebay.generation.settings import EngineSettings
from forebay.kernel.context import RequestContext, TextSink
from forebay.kernel.errors import DeadlineExceeded, EngineError
from forebay.kernel.stages import GenerationRequest

_DRAIN_S = 0.02


class Reading:
    """The answer in ``response``; every piece of it is added to ``text``; ``close`` it at the end.

    Raises ``DeadlineExceeded``, ``EngineError``, and ``OSError`` where the connection breaks.
    """

    def __init__(
        self,
        ctx: RequestContext,
        request: GenerationRequest,
        settings: EngineSettings,
        response: Response,
        text: list[str],
    ) -> None:
        self.reader = CompletionReader(settings.max_event_bytes)
        self._ctx = ctx
        self._settings = settings
        self._idle_s = settings.idle_timeout_s
        self._response = response
        self._text = text
        self._left = longest_answer(request)
        self._patience = Patience(ctx, response)
        self._in_one = response.content_type == "application/json"
        self._replica: Replica | None = None
        self._rest: list[str] = []
        self._error: EngineError | None = None
        self._overrun: EngineError | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more is to come."""
        return self.reader.done

    def close(self) -> None:
        """Nobody reads any more."""
        self._patience.close()

    async def piece(self, wait_s: float) -> str:
        """The text that arrives next, in one piece; may be empty."""
        reader, response = self.reader, self._response
        pieces: list[str] = []
        self._patience.begin(wait_s)
        try:
            if self._in_one:
                reader.whole(await self._whole(), pieces)
            elif await response.wait():
                reader.feed(response.take(), pieces)
                if reader.done:
                    await _drain(response)
            else:
                reader.end(pieces)
                reader.done = True
        except (OSError, EngineError) as error:
            self._over(error)
        self._patience.end()
        return self._kept(pieces)

    async def direct(self, replica: Replica) -> str:
        """Give text to the request's ``direct`` sink as it arrives, as long as that takes it.

        The text that is left, for the stream of the answer; may be empty.
        """
        if self.done or self._in_one:
            return ""
        self._rest, self._replica = [], replica
        self._patience.begin(self._idle_s)
        await self._response.push(self._pushed)
        self._patience.end()
        await self._settled()
        return self._kept(self._rest)

    async def _settled(self) -> None:
        """Tell of what came up while text was pushed."""
        if self._overrun is not None:
            raise self._overrun
        if self._error is not None:
            self._over(self._error)
        elif self.done:
            await _drain(self._response)

    def _pushed(self, data: bytes) -> bool:
        """Take what one read brought; whether more may come this way."""
        ctx = self._ctx
        sink, token = ctx.direct, self.reader.token(data)
        if token and sink is not None and self._left >= len(token):
            self._text.append(token)
            self._left -= len(token)
            return self._given(token, sink)
        pieces: list[str] = []
        try:
            self.reader.feed(data, pieces)
        except EngineError as error:
            self._error = error
        if self._error is not None or self.reader.done or sink is None:
            # The last text goes with the answer's end.
            self._rest = pieces
            return False
        try:
            text = self._kept(pieces)
        except EngineError as error:
            self._overrun = error
            return False
        if text:
            return self._given(text, sink)
        self._patience.begin(self._idle_s)
        return True

    def _given(self, text: str, sink: TextSink) -> bool:
        self._patience.begin(self._idle_s)
        ctx = self._ctx
        assert self._replica is not None
        self._replica.answered_at = ctx.clock.now()
        if ctx.placement is not None:
            ctx.placement.token()
        return sink(text)

    def _kept(self, pieces: list[str]) -> str:
        piece = pieces[0] if len(pieces) == 1 else "".join(pieces)
        if piece:
            self._text.append(piece)
            self._left -= len(piece)
            if self._left < 0:
                raise EngineError("The engine writes far more than it was asked for.")
        return piece

    def _over(self, error: Exception) -> None:
        """Once the end is known, nothing spoils it."""
        if self.reader.reason is None:
            raise error
        self.reader.done = True

    async def _whole(self) -> bytes:
        data = bytearray()
        while await self._response.wait():
            data += self._response.take()
            if len(data) > self._settings.max_event_bytes:
                raise EngineError("The engine's answer is too long.")
        return bytes(data)


class Bounded:
    """A time-out bounded by the request's deadline, told apart from it; never held over a yield."""

    def __init__(self, ctx: RequestContext, timeout_s: float) -> None:
        self._ctx = ctx
        self._ends_at = ctx.clock.now() + timeout_s
        remaining_s = ctx.deadline.remaining()
        # Decided now: a timer may fire a millisecond before the clock reaches the deadline.
        self._by_deadline = remaining_s <= timeout_s
        self._timeout = asyncio.timeout(min(timeout_s, remaining_s))

    def left(self) -> float:
        return max(0.0, self._ends_at - self._ctx.clock.now())

    async def __aenter__(self) -> Bounded:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError as late:
            raise _late(by_deadline=self._by_deadline) from late


class Patience:
    """The same for the waits of one answer's reading, with one timer for them all.

    A time-out of its own for every token costs as much as reading it. Whoever waits too long
    finds the body broken.
    """

    def __init__(self, ctx: RequestContext, response: Response) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self._deadline_at = self._loop.time() + ctx.deadline.remaining()
        self._until = math.inf
        self._looks_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit_s: float) -> None:
        """Somebody waits from now, so long at most."""
        self._until = min(self._deadline_at, self._loop.time() + limit_s)
        if self._timer is None or self._until < self._looks_at:
            self._arm()

    def end(self) -> None:
        """Nobody waits; the timer finds that out by itself."""
        self._until = math.inf

    def close(self) -> None:
        """Nobody will wait any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self.close()
        # uvloop's handle of a time that has passed does not know it.
        self._looks_at = self._until
        self._timer = self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._until == math.inf:
            return
        if self._loop.time() < self._until:
            self._arm()
            return
        self._response.breaks(_late(by_deadline=self._until == self._deadline_at))


def _late(*, by_deadline: bool) -> DeadlineExceeded | EngineError:
    if by_deadline:
        return DeadlineExceeded("The request's deadline passed while the engine worked.")
    return EngineError("The engine did not go on in time.")


async def _drain(response: Response) -> None:
    """Give the end of the body, already under way, a moment: the connection is reused then."""
    if response.whole:
        return
    try:
        async with asyncio.timeout(_DRAIN_S):
            while await response.wait():
                response.take()
    except TimeoutError:
        return
