"""Seconds that a test may judge by on a machine that is busy with something else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

GRAIN_S = 0.01
"""The longest that nobody looks, where the machine lets this process run."""


class Stopwatch:
    """Counts the seconds in which this process was run, or waited as it meant to.

    Of the time between two looks counts the longest of a grain and of what the process computed:
    so a wait for something is counted as it is where somebody looks every few milliseconds, so is
    work that holds up the loop, and so is not what the machine did meanwhile for others.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._at = time.monotonic()
        self._cpu_s = time.process_time()

    def now(self) -> float:
        """Seconds so far; this is a look."""
        at, cpu_s = time.monotonic(), time.process_time()
        self._seconds += min(at - self._at, max(GRAIN_S, cpu_s - self._cpu_s))
        self._at, self._cpu_s = at, cpu_s
        return self._seconds


@asynccontextmanager
async def watching() -> AsyncIterator[Stopwatch]:
    """A stopwatch that the running loop looks at."""
    watch = Stopwatch()

    async def look() -> None:
        while True:
            watch.now()
            await asyncio.sleep(GRAIN_S / 4)

    looking = asyncio.ensure_future(look())
    try:
        yield watch
    finally:
        looking.cancel()
