"""Work beside a request's own task: noticing that the client left, reading an answer ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from forebay.kernel.streams import closing

T = TypeVar("T")


class DisconnectWatch:
    """Calls ``on_gone`` once when the client closes the connection.

    Servers report that through ``receive`` only, and only to whoever waits there; without this
    a handler that does not stream would work for nobody. Begin it after the body was read.
    """

    def __init__(self, receive: Callable[[], Awaitable[Any]], on_gone: Callable[[], None]) -> None:
        self._receive = receive
        self._on_gone = on_gone
        self._begin: asyncio.Handle | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # What is answered within one turn of the loop needs no watch: nothing could tell it.
        self._begin = asyncio.get_running_loop().call_soon(self._start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._begin is not None
        self._begin.cancel()
        if self._task is not None:
            # Not awaited: the watch holds nothing, and the answer need not wait a turn for its end.
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._on_gone()
                return


class ReadAhead(Generic[T]):
    """Iterates a stream in a task of its own and hands over whatever has come, as one batch.

    What arrives together leaves together: one write instead of many. At most ``bound`` items
    wait; the source then stands still, unless ``join`` makes fewer of them. Leaving the block
    closes the source.
    """

    def __init__(
        self,
        source: AsyncIterator[T],
        bound: int = 256,
        join: Callable[[list[T]], list[T]] | None = None,
    ) -> None:
        self._source = source
        self._bound = bound
        self._join = join
        self._items: list[T] = []
        # A bare future for each wait: an event costs twice as much, once for every token.
        self._arrived: asyncio.Future[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if not self._task.cancelled():
            # Read, so that it is not reported as lost; ``batch`` has raised it where it counts.
            self._task.exception()

    async def batch(self) -> list[T]:
        """Return what has arrived, waiting for the first; empty at the end; raises its error."""
        if not self._items and not self._ended:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        items, self._items = self._items, []
        _wake(self._taken)
        if not items and self._ended:
            assert self._task is not None
            await self._task
        return items

    async def _read(self) -> None:
        try:
            async with closing(self._source):
                async for item in self._source:
                    self._items.append(item)
                    _wake(self._arrived)
                    if len(self._items) < self._bound:
                        continue
                    if self._join is not None:
                        self._items = self._join(self._items)
                    if len(self._items) >= self._bound:
                        self._taken = asyncio.get_running_loop().create_future()
                        await self._taken
        finally:
            self._ended = True
            _wake(self._arrived)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
