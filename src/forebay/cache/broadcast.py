"""Streams that several listen to: one is made, whoever comes later hears it from its beginning.

The stream belongs to the registry: it is read on while anybody listens, and closed when the last
one leaves. Nobody waits for a slow listener; what was said is kept until the end, which the
answer's own cap bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from typing import Generic, TypeVar

from forebay.cache.flight import CLOSE_S, MOST_FLIGHTS, OWN_ERRORS
from forebay.kernel.clock import Deadline
from forebay.kernel.errors import DeadlineExceeded
from forebay.kernel.streams import closing

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class HandOver(Exception):
    """The stream ended for reasons of whoever led it, before anything was said: lead another."""


class Broadcast(Generic[T]):
    """One stream under way."""

    def __init__(self, source: AsyncIterator[T], ended: Callable[[Broadcast[T]], None]) -> None:
        self._said: list[T] = []
        self._error: BaseException | None = None
        self._over = False
        self._news: set[asyncio.Event] = set()
        self._ended = ended
        self._task = asyncio.get_running_loop().create_task(self._read(source))

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._news)

    async def _read(self, source: AsyncIterator[T]) -> None:
        try:
            async with closing(source) as events:
                async for event in events:
                    self._said.append(event)
                    self._tell()
        # Whatever it is goes to all who listen, in their own tasks.
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._over = True
            self._ended(self)
            self._tell()

    def _tell(self) -> None:
        for event in self._news:
            event.set()

    async def events(self, deadline: Deadline, *, leads: bool) -> AsyncGenerator[T, None]:
        """What is said from the beginning on, until this listener's own ``deadline``."""
        news, heard = asyncio.Event(), 0
        self._news.add(news)
        try:
            while True:
                while heard < len(self._said):
                    heard += 1
                    yield self._said[heard - 1]
                if self._over:
                    self._raise(heard, leads=leads)
                    return
                news.clear()
                await _soon(news, deadline)
        finally:
            self._news.discard(news)
            await self._left()

    def _raise(self, heard: int, *, leads: bool) -> None:
        if self._error is None:
            return
        theirs = isinstance(self._error, (*OWN_ERRORS, asyncio.CancelledError))
        if theirs and not leads and not heard:
            raise HandOver
        if isinstance(self._error, asyncio.CancelledError):
            raise DeadlineExceeded("the answer was given up before it was complete.")
        raise self._error

    async def _left(self) -> None:
        """Close the stream when nobody listens any more, and wait until it has let go."""
        if self._news or self._task.done():
            return
        # Who comes now must not join what is about to end.
        self._ended(self)
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=CLOSE_S)

    async def close(self) -> None:
        """End it for everybody."""
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=CLOSE_S)


async def _soon(news: asyncio.Event, deadline: Deadline) -> None:
    try:
        async with asyncio.timeout(deadline.remaining()):
            await news.wait()
    except TimeoutError:
        raise DeadlineExceeded("the request's deadline passed before the answer did.") from None


class Broadcasts(Generic[K, T]):
    """The streams under way of one kind; confined to one event loop.

    Beyond ``most`` of them a stream is made for its listener alone.
    """

    def __init__(self, most: int = MOST_FLIGHTS) -> None:
        self._most = most
        self._streams: dict[K, Broadcast[T]] = {}
        self.made = 0
        self.joined = 0

    def statistics(self) -> dict[str, int]:
        """Streams under way, streams made, and listeners that found one under way."""
        return {"under_way": len(self._streams), "made": self.made, "joined": self.joined}

    def join(self, key: K, make: Callable[[], AsyncIterator[T]]) -> tuple[Broadcast[T], bool]:
        """Return the stream of ``key``, and whether it was begun by this call.

        Listen at once, with nothing awaited before: nobody else keeps it going.
        """
        found = self._streams.get(key)
        if found is not None:
            self.joined += 1
            return found, False
        self.made += 1
        begun = Broadcast(make(), lambda over: self._over(key, over))
        if len(self._streams) < self._most:
            self._streams[key] = begun
        return begun, True

    def _over(self, key: K, stream: Broadcast[T]) -> None:
        if self._streams.get(key) is stream:
            del self._streams[key]

    async def close(self) -> None:
        """End what is under way."""
        for stream in tuple(self._streams.values()):
            await stream.close()
