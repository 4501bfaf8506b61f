"""Work beside a request's own task: noticing that the client left, writing an answer behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

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
            # Nor kept: its traceback refers to this, and what goes in circles is left to the
            # garbage collector, which stops everything for it.
            self._task.cancel()
            self._task = None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._on_gone()
                return


class WriteBehind(Generic[T]):
    """Writes what is put in by a task of its own, whatever has come meanwhile as one batch.

    What arrives together leaves together: one write instead of many, and no slow reader holds up
    the source until ``bound`` items wait, unless ``join`` makes fewer of them. What is over within
    one turn of the loop is written, or refused, without a task. Leaving the block writes the rest,
    unless it is left by a cancellation; an error of ``write`` ends the block.

    ``at_once`` writes a batch without waiting, or says False and has done nothing; it is tried
    before a task is made, except for the first batch.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[None]],
        bound: int = 256,
        join: Callable[[list[T]], list[T]] | None = None,
        at_once: Callable[[list[T]], bool] | None = None,
    ) -> None:
        self._write = write
        self._bound = bound
        self._join = join
        self._at_once = at_once
        self._items: list[T] = []
        self._taken: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn: asyncio.Handle | None = None
        self._owner: asyncio.Task[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._broke: Exception | None = None
        self._begun = False
        self._writing = False
        self._ended = False

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._broke is not None:
            broke, self._broke = self._broke, None
            assert self._owner is not None
            # The cancellation that was sent for it; another one besides is not taken back.
            if self._owner.uncancel() and isinstance(error, asyncio.CancelledError):
                return
            try:
                raise broke
            finally:
                del broke  # else its traceback would refer to itself
        if isinstance(error, asyncio.CancelledError):
            await self._drop()
            return
        await self._finish()

    def put(self, item: T) -> bool:
        """Add an item; whether so many wait that the source must stand still: see ``room``."""
        self._items.append(item)
        if self._task is None and self._turn is None:
            if self._begun and self._at_once is not None:
                self._turn = self._loop.call_soon(self._now)
            else:
                self._task = self._loop.create_task(self._run())
        return len(self._items) >= self._bound

    @property
    def idle(self) -> bool:
        """Whether something was written and nothing waits: who writes past this keeps the order."""
        return self._begun and not self._items and self._task is None

    async def room(self) -> None:
        """Wait until there is room again; an error of the writing ends this wait, too."""
        if self._join is not None:
            self._items = self._join(self._items)
        if len(self._items) >= self._bound:
            self._taken = self._loop.create_future()
            await self._taken

    def _now(self) -> None:
        """Write what has come, or have a task do it where that may take time."""
        assert self._at_once is not None
        self._turn = None
        try:
            written = self._at_once(self._items)
        except Exception as error:  # whatever it is, the owner raises it
            self._fail(error)
            return
        if written:
            self._items = []
            _wake(self._taken)
        else:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._items:
                await self._write_all()
        except Exception as error:  # whatever it is, the owner raises it
            if self._ended:
                raise
            self._fail(error)
            return
        self._begun = True
        if not self._ended:
            self._task = None

    def _fail(self, error: Exception) -> None:
        assert self._owner is not None
        # Its traceback refers to this; whoever raises it forgets it here.
        self._broke = error
        self._owner.cancel()

    async def _write_all(self) -> None:
        items, self._items = self._items, []
        _wake(self._taken)
        self._writing = True
        await self._write(items)
        self._writing = False

    async def _finish(self) -> None:
        if self._task is None:
            if self._items:
                await self._write_all()
            return
        if not self._writing:
            # At once: the task would only do it a turn of the loop later. It holds nothing, and is
            # not kept, since its traceback refers to this.
            self._task.cancel()
            self._task = None
            if self._items:
                await self._write_all()
            return
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            await self._drop()
            raise
        self._task.result()

    async def _drop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            # Read, so that it is not reported as lost: the cancellation is what counts.
            task.exception()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
