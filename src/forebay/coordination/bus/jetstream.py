"""Change events in a NATS JetStream stream (extra ``nats``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from forebay.coordination.bus.following import encode_event, following
from forebay.kernel.caching import ChangeEvent, Delivery
from forebay.kernel.errors import ConfigError, Unavailable

log = logging.getLogger("forebay.bus")
LOG_EVENTS = 10_000
READ_S = 1.0
CALL_S = 2.0
ABANDONED_S = 60.0
"""A consumer that nobody reads from is removed by the server after so long."""


class JetStreamBus:
    """See ``ChangeBus``; positions are the stream's sequence numbers."""

    def __init__(self, url: str, prefix: str = "forebay", log_events: int = LOG_EVENTS) -> None:
        self._url = url
        self._stream = f"{prefix}-events".replace(".", "-")
        self._subject = f"{prefix}.events"
        self._log_events = log_events
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, event: ChangeEvent) -> None:
        """See ``ChangeBus``."""
        client = await self._connected()
        try:
            async with asyncio.timeout(CALL_S):
                await client.jetstream().publish(self._subject, encode_event(event), timeout=CALL_S)
        except _outages() as error:
            raise _lost() from error

    def subscribe(self, after: str = "") -> AsyncGenerator[Delivery, None]:
        """See ``ChangeBus``."""
        return following(self._reader, after)

    async def _reader(self, after: str) -> _ConsumerReader:
        client = await self._connected()
        try:
            async with asyncio.timeout(2 * CALL_S):
                return await self._consumer(client, after)
        except _outages() as error:
            raise _lost() from error

    async def _consumer(self, client: Any, after: str) -> _ConsumerReader:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        context = client.jetstream(timeout=CALL_S)
        state = (await context.stream_info(self._stream)).state
        position, gap = _place(after, state.first_seq, state.last_seq)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=position + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=ABANDONED_S,
        )
        consumer = await context.pull_subscribe(self._subject, stream=self._stream, config=config)
        return _ConsumerReader(consumer, str(position), gap)

    async def _connected(self) -> Any:
        """The client, connected and with its stream; ``Unavailable`` when that takes too long."""
        async with self._opening:
            if self._client is not None and self._client.is_connected:
                return self._client
            try:
                async with asyncio.timeout(2 * CALL_S):
                    await self._disconnect()
                    self._client = await self._open()
            except _outages() as error:
                raise _lost() from error
            return self._client

    async def _open(self) -> Any:
        import nats
        from nats.js.api import StreamConfig

        client = await nats.connect(
            self._url, allow_reconnect=False, connect_timeout=1, error_cb=_told
        )
        try:
            await client.jetstream(timeout=CALL_S).add_stream(
                StreamConfig(name=self._stream, subjects=[self._subject], max_msgs=self._log_events)
            )
        except BaseException:
            with suppress(Exception):
                await client.close()
            raise
        return client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # Whatever a broken connection says when it is let go, it is gone.
            with suppress(Exception):
                await client.close()

    async def close(self) -> None:
        """See ``ChangeBus``."""
        await self._disconnect()


class _ConsumerReader:
    """See ``Reader``."""

    def __init__(self, consumer: Any, position: str, gap: bool) -> None:
        self._consumer = consumer
        self.position = position
        self.gap = gap

    async def read(self) -> Sequence[tuple[str, bytes]]:
        """See ``Reader``."""
        from nats.errors import TimeoutError as NothingCame

        try:
            messages = await self._consumer.fetch(256, timeout=READ_S)
        except NothingCame:
            await self._check()
            return ()
        except _outages() as error:
            raise _lost() from error
        found = [(str(one.metadata.sequence.stream), one.data) for one in messages]
        self.position = found[-1][0] if found else self.position
        return found

    async def _check(self) -> None:
        """A consumer that is no more says nothing either."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._consumer.consumer_info()
        except _outages() as error:
            raise _lost() from error

    async def close(self) -> None:
        """See ``Reader``."""
        # The server removes the consumer by itself when this is not heard.
        with suppress(Exception):
            async with asyncio.timeout(CALL_S):
                await self._consumer.unsubscribe()


def _place(after: str, first: int, last: int) -> tuple[int, bool]:
    """Where to read on, and whether something before that is lost."""
    if not after:
        return last, False
    position = int(after)
    if position > last:
        return 0, True
    return position, position + 1 < first


def _outages() -> tuple[type[BaseException], ...]:
    try:
        from nats.errors import Error
    except ImportError as error:
        raise ConfigError(
            'coordination.bus = "nats" needs the extra nats: pip install "forebay[nats]".',
            param="coordination.bus",
        ) from error
    return (Error, OSError, TimeoutError, EOFError)


async def _told(error: Exception) -> None:
    log.debug("the connection to NATS: %s", error)


def _lost() -> Unavailable:
    return Unavailable("NATS does not carry change events at present.")
