"""Connections to one replica: how many at once, how many stay open for the next request.

How many requests are in work is admission's to decide; here is a last bound, and the size that
follows the rates. It holds for connections kept: a request beyond twice that size gets one that is
closed after its answer, never a longer wait, so that a pulse is not throttled by the calm before
it. Kept ones that are idle are closed after ``connection_idle_s``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from forebay.generation.settings import EngineSettings
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import DeadlineExceeded, Overloaded
from forebay.kernel.sizing import Sizing

ROOM = 2
"""Leaves the spread of arrivals alone: at 100/s x 100 ms 1,210 requests opened 42 connections, 26
where all were kept, at the same CPU time."""
MakeSizing = Callable[[EngineSettings], Sizing]


class KeepAll:
    """Keeps whatever was opened."""

    def __init__(self, settings: EngineSettings) -> None:
        self._most = settings.max_connections

    def began(self, now: float) -> None:
        """Nothing to learn."""

    def ended(self, now: float) -> None:
        """Nothing to learn."""

    def kept(self, _now: float) -> int:
        """All there may be."""
        return self._most


class Connections:
    """The connections to one replica."""

    def __init__(self, settings: EngineSettings, sizing: Sizing) -> None:
        self._slots = asyncio.Semaphore(settings.max_connections)
        self._acquire_s = settings.acquire_timeout_s
        self._sizing = sizing
        self.busy = 0

    def use(self, ctx: RequestContext) -> _Using:
        """Hold one; ``Overloaded`` when none gets free in time, which is no engine's failure."""
        return _Using(self, ctx)

    async def take(self, ctx: RequestContext) -> None:
        """Hold one until ``give_back``; raises as ``use`` does."""
        self._sizing.began(ctx.clock.now())
        try:
            await self._acquire(ctx)
        except BaseException:
            self._sizing.ended(ctx.clock.now())
            raise
        self.busy += 1

    def give_back(self, now: float) -> None:
        """It is free again."""
        self.busy -= 1
        self._slots.release()
        self._sizing.ended(now)

    def kept(self, now: float) -> int:
        """How many stay open."""
        return self._sizing.kept(now)

    def closes(self, now: float) -> bool:
        """Whether the one just taken is one too many to be kept."""
        return self.busy > ROOM * self._sizing.kept(now)

    async def _acquire(self, ctx: RequestContext) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        remaining_s = ctx.deadline.remaining()
        try:
            async with asyncio.timeout(min(self._acquire_s, remaining_s)):
                await self._slots.acquire()
        except TimeoutError as late:
            if remaining_s <= self._acquire_s:
                raise DeadlineExceeded(
                    "The request's deadline passed before a connection was free."
                ) from late
            raise Overloaded("All connections to the engine are in use; try again.") from late


class _Using:
    """The block of ``Connections.use``."""

    __slots__ = ("_connections", "_ctx")

    def __init__(self, connections: Connections, ctx: RequestContext) -> None:
        self._connections = connections
        self._ctx = ctx

    async def __aenter__(self) -> None:
        await self._connections.take(self._ctx)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connections.give_back(self._ctx.clock.now())
