"""Change events inside one process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from forebay.kernel.caching import ChangeEvent, Delivery
from forebay.kernel.errors import Unavailable

LOG_EVENTS = 1024


class MemoryBus:
    """See ``ChangeBus``; the last ``log_events`` can be read again."""

    def __init__(self, log_events: int = LOG_EVENTS) -> None:
        self._log: deque[ChangeEvent] = deque(maxlen=log_events)
        self._published = 0
        self._news: set[asyncio.Event] = set()
        self._closed = False

    async def publish(self, event: ChangeEvent) -> None:
        """See ``ChangeBus``."""
        if self._closed:
            raise Unavailable("the bus of change events is closed.")
        self._log.append(event)
        self._published += 1
        for news in self._news:
            news.set()

    async def subscribe(self, after: str = "") -> AsyncGenerator[Delivery, None]:
        """See ``ChangeBus``."""
        read = int(after) if after else self._published
        news = asyncio.Event()
        self._news.add(news)
        try:
            while not self._closed:
                first = self._published - len(self._log)
                if read < first or read > self._published:
                    read = self._published if read > self._published else first
                    yield Delivery(ChangeEvent("purge"), str(read), gap=True)
                while read < self._published:
                    event = self._log[read - self._published]
                    read += 1
                    yield Delivery(event, str(read))
                    if read < self._published - len(self._log):
                        break
                else:
                    news.clear()
                    await news.wait()
        finally:
            self._news.discard(news)

    async def close(self) -> None:
        """See ``ChangeBus``."""
        self._closed = True
        for news in self._news:
            news.set()
