"""Change events in a Redis or Valkey stream, which keeps the latest of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from redis.asyncio import Redis

from forebay.coordination.bus.following import encode_event, following
from forebay.coordination.redis_client import OUTAGES, address_checked, client_options
from forebay.kernel.caching import ChangeEvent, Delivery
from forebay.kernel.errors import Unavailable

LOG_EVENTS = 10_000
READ_S = 1.0
CALL_S = 2.0
_FIELD = b"e"


class RedisBus:
    """See ``ChangeBus``; positions are the stream's ids."""

    def __init__(self, url: str, prefix: str = "forebay", log_events: int = LOG_EVENTS) -> None:
        self._url = url
        self._key = f"{prefix}:events"
        self._log_events = log_events
        self._redis = _connect(url)

    async def publish(self, event: ChangeEvent) -> None:
        """See ``ChangeBus``."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._redis.xadd(
                    self._key,
                    {_FIELD: encode_event(event)},
                    maxlen=self._log_events,
                    approximate=False,
                )
        except OUTAGES as error:
            raise _lost() from error

    def subscribe(self, after: str = "") -> AsyncGenerator[Delivery, None]:
        """See ``ChangeBus``."""
        return following(self._reader, after)

    async def _reader(self, after: str) -> _StreamReader:
        # A connection of its own: a blocking read would hold up whoever publishes.
        redis = _connect(self._url)
        try:
            async with asyncio.timeout(CALL_S):
                position, gap = await _place(redis, self._key, after)
        except OUTAGES as error:
            await redis.aclose()
            raise _lost() from error
        except BaseException:
            await redis.aclose()
            raise
        return _StreamReader(redis, self._key, position, gap)

    async def close(self) -> None:
        """See ``ChangeBus``."""
        await self._redis.aclose()


class _StreamReader:
    """See ``Reader``."""

    def __init__(self, redis: Redis, key: str, position: str, gap: bool) -> None:
        self._redis = redis
        self._key = key
        self.position = position
        self.gap = gap

    async def read(self) -> Sequence[tuple[str, bytes]]:
        """See ``Reader``."""
        try:
            async with asyncio.timeout(READ_S + CALL_S):
                found: Any = await self._redis.xread(
                    {self._key: self.position}, count=256, block=int(READ_S * 1000)
                )
            entries = _entries(found) if found else ()
        except OUTAGES as error:
            raise _lost() from error
        if not entries:
            await self._check()
            return ()
        self.position = entries[-1][0]
        return entries

    async def _check(self) -> None:
        """A server that came back empty must be noticed although nothing is ever delivered."""
        try:
            async with asyncio.timeout(CALL_S):
                position, gap = await _place(self._redis, self._key, self.position)
        except OUTAGES as error:
            raise _lost() from error
        if gap:
            self.position = position
            raise _lost()

    async def close(self) -> None:
        """See ``Reader``."""
        await self._redis.aclose()


def _entries(found: Any) -> list[tuple[str, bytes]]:
    streams = found.values() if isinstance(found, dict) else [items for _, items in found]
    entries: list[tuple[str, bytes]] = []
    for items in streams:
        # A stream's items come as one list, or, by the newer protocol, as a list of lists.
        flat = items[0] if items and isinstance(items[0], list) else items
        entries += [(_text(one), fields.get(_FIELD, b"")) for one, fields in flat]
    return entries


async def _place(redis: Redis, key: str, after: str) -> tuple[str, bool]:
    """Where to read on, and whether something before that is lost."""
    if not await redis.exists(key):
        return "0-0", bool(after) and after != "0-0"
    info: Any = await redis.xinfo_stream(key)
    last = _text(_field(info, "last-generated-id"))
    if not after:
        return last, False
    if _number(after) > _number(last):
        return "0-0", True
    first = _field(info, "first-entry")
    trimmed = int(_field(info, "entries-added")) > int(_field(info, "length"))
    if trimmed and (first is None or _number(after) < _number(_text(first[0]))):
        # The position itself may be the last that was cut off; nobody can tell any more.
        return after, True
    return after, False


def _field(info: Any, name: str) -> Any:
    return info[name] if name in info else info[name.encode()]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(position: str) -> tuple[int, int]:
    first, _, second = position.partition("-")
    return int(first), int(second or 0)


def _connect(url: str) -> Redis:
    with address_checked():
        redis: Redis = Redis.from_url(url, **client_options(), decode_responses=False)
    return redis


def _lost() -> Unavailable:
    return Unavailable("Redis does not carry change events at present.")
