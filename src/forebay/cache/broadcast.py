"""Streams that several listen to: one is made, whoever comes later hears it from its beginning.

The stream belongs to the registry: it is read on while anybody listens, and closed when the last
one leaves. Nobody waits for a slow listener: what was said is kept up to ``max_bytes``. Beyond it
nobody can join any more, what all have heard is let go, and whoever is that far behind one who
waits for more is cut off; while nobody waits for more, the stream is not read on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from typing import Generic, TypeVar

from forebay.cache.flight import CLOSE_S, MOST_FLIGHTS, OWN_ERRORS
from forebay.cache.memory import deep_bytes
from forebay.kernel.clock import Deadline
from forebay.kernel.errors import DeadlineExceeded, Overloaded
from forebay.kernel.streams import closing

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_BYTES = 1 << 20
LEAST_SHARE = 0.5
"""Of a listener's time that a stream must have left to be joined."""


class HandOver(Exception):
    """The stream ended for reasons of whoever led it, before anything was said: lead another."""


class _Listener:
    """How much one has heard, and whether it waits for more."""

    __slots__ = ("cut", "deadline", "heard", "news", "waits")

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.heard = 0
        self.news = asyncio.Event()
        self.waits = False
        self.cut = False


class Broadcast(Generic[T]):
    """One stream under way; ``ended`` hears when nobody can join it any more.

    ``until`` is the deadline of who it is made for: it breaks off then.
    """

    def __init__(
        self,
        source: AsyncIterator[T],
        ended: Callable[[Broadcast[T]], None],
        until: Deadline,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.until = until
        self._said: list[tuple[T, int]] = []
        self._let_go = 0
        self._held_bytes = 0
        self._max_bytes = max_bytes
        self._error: BaseException | None = None
        self._over = False
        self._listeners: set[_Listener] = set()
        self._moved = asyncio.Event()
        self._ended = ended
        self._task = asyncio.get_running_loop().create_task(self._read(source))

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def when_over(self, tell: Callable[[Broadcast[T]], object]) -> None:
        """Tell when its source is closed."""
        self._task.add_done_callback(lambda _: tell(self))

    async def _read(self, source: AsyncIterator[T]) -> None:
        try:
            async with closing(source) as events:
                async for event in events:
                    size = deep_bytes(event)
                    self._said.append((event, size))
                    self._held_bytes += size
                    self._tell()
                    if self._held_bytes > self._max_bytes:
                        await self._make_room()
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
        for listener in self._listeners:
            listener.news.set()

    async def _make_room(self) -> None:
        # Who comes now could not hear it from its beginning.
        self._ended(self)
        while self._trim() > self._max_bytes:
            said = self._let_go + len(self._said)
            if any(one.waits and one.heard == said for one in self._listeners):
                self._cut()
                continue
            self._moved.clear()
            patience_s = max((one.deadline.remaining() for one in self._listeners), default=0.0)
            try:
                async with asyncio.timeout(patience_s):
                    await self._moved.wait()
            except TimeoutError:
                raise DeadlineExceeded("the answer was not read in time.") from None

    def _trim(self) -> int:
        """Let go what all have heard; bytes that are left."""
        least = min((one.heard for one in self._listeners), default=self._let_go)
        gone = self._said[: least - self._let_go]
        del self._said[: len(gone)]
        self._let_go = least
        self._held_bytes -= sum(size for _, size in gone)
        return self._held_bytes

    def _cut(self) -> None:
        least = min(one.heard for one in self._listeners)
        for slowest in [one for one in self._listeners if one.heard == least]:
            self._listeners.discard(slowest)
            slowest.cut = True
            slowest.news.set()

    async def events(self, deadline: Deadline, *, leads: bool) -> AsyncGenerator[T, None]:
        """What is said from the beginning on, until this listener's own ``deadline``.

        ``Overloaded`` when it listens so slowly that others would have to wait.
        """
        listener = _Listener(deadline)
        self._listeners.add(listener)
        try:
            while True:
                while not listener.cut and listener.heard < self._let_go + len(self._said):
                    event, _ = self._said[listener.heard - self._let_go]
                    listener.heard += 1
                    self._moved.set()
                    yield event
                if listener.cut:
                    raise Overloaded("the answer was read too slowly.")
                if self._over:
                    self._raise(listener.heard, leads=leads)
                    return
                await self._more(listener)
        finally:
            self._listeners.discard(listener)
            self._moved.set()
            await self._left()

    async def _more(self, listener: _Listener) -> None:
        listener.news.clear()
        listener.waits = True
        self._moved.set()
        try:
            await _soon(listener.news, listener.deadline)
        finally:
            listener.waits = False

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
        if self._listeners or self._task.done():
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

    def __init__(self, most: int = MOST_FLIGHTS, max_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._streams: dict[K, Broadcast[T]] = {}
        self._running: set[Broadcast[T]] = set()
        self.made = 0
        self.joined = 0

    def statistics(self) -> dict[str, int]:
        """Streams under way, streams made, and listeners that found one under way."""
        return {"under_way": len(self._streams), "made": self.made, "joined": self.joined}

    def join(
        self, key: K, make: Callable[[], AsyncIterator[T]], deadline: Deadline
    ) -> tuple[Broadcast[T], bool]:
        """Return the stream of ``key``, and whether it was begun by this call.

        One that will break off long before ``deadline`` is nothing to join: another takes its
        place. Listen at once, with nothing awaited before: nobody else keeps it going.
        """
        found = self._streams.get(key)
        if found is not None and found.until.remaining() >= LEAST_SHARE * deadline.remaining():
            self.joined += 1
            return found, False
        self.made += 1
        begun = Broadcast(make(), lambda over: self._over(key, over), deadline, self._max_bytes)
        self._running.add(begun)
        begun.when_over(self._running.discard)
        if key in self._streams or len(self._streams) < self._most:
            self._streams[key] = begun
        return begun, True

    def _over(self, key: K, stream: Broadcast[T]) -> None:
        if self._streams.get(key) is stream:
            del self._streams[key]

    async def close(self) -> None:
        """End what is under way."""
        for stream in tuple(self._running):
            await stream.close()
