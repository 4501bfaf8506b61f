"""Connections to a Redis: so many at once at most, kept as the rates of late are worth (F0.3).

Each is a client of its own with one connection. The one used last is used next, so that what is
not needed grows old and is closed: beyond the size at once, below it after ``IDLE_S``. One whose
call failed or was cut off is closed, since its answer may still come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from forebay.kernel.clock import Clock
from forebay.kernel.errors import AllInUse
from forebay.kernel.sizing import Sizing

IDLE_S = 300.0


class Connections:
    """At most ``most`` connections that ``make`` opens; each wait for one takes ``acquire_s``."""

    def __init__(
        self,
        make: Callable[[], Redis],
        sizing: Sizing,
        clock: Clock,
        *,
        most: int,
        acquire_s: float,
    ) -> None:
        self._make = make
        self._sizing = sizing
        self._clock = clock
        self._acquire_s = acquire_s
        self._slots = asyncio.Semaphore(most)
        self._idle: deque[tuple[Redis, float]] = deque()
        self.busy = 0

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Redis]:
        """Hold one; ``AllInUse`` when none gets free in time, which is no failure of Redis."""
        self._sizing.began(self._clock.now())
        try:
            await self._acquire()
            client = self._idle.pop()[0] if self._idle else self._make()
            self.busy += 1
            spare = [client]
            try:
                yield client
                spare = self._put_back(client, self._clock.now())
            finally:
                self.busy -= 1
                self._slots.release()
                for one in spare:
                    await one.aclose(close_connection_pool=True)
        finally:
            self._sizing.ended(self._clock.now())

    async def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            await self._idle.pop()[0].aclose(close_connection_pool=True)

    def statistics(self) -> dict[str, int]:
        """Connections in use and open beside them."""
        return {"busy": self.busy, "idle": len(self._idle)}

    def _put_back(self, client: Redis, now: float) -> list[Redis]:
        """Keep it for the next; what is too many or too old by now."""
        self._idle.append((client, now))
        spare = []
        # Those in use are about to come back: they count.
        room = self._sizing.kept(now) - (self.busy - 1)
        while self._idle and (len(self._idle) > max(1, room) or self._idle[0][1] <= now - IDLE_S):
            spare.append(self._idle.popleft()[0])
        return spare

    async def _acquire(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._acquire_s):
                await self._slots.acquire()
        except TimeoutError as late:
            raise AllInUse("All connections to Redis are in use.") from late
