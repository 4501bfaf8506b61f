"""Values that processes share in Redis or Valkey; whatever is wrong with it is a miss.

Requests read, one task writes and looks whether a store that was silent answers again. A call that
fails or takes too long opens the breaker: from then on no request asks. The writer asks, at once
and then every ``probe_ms``; when an answer comes in time the breaker closes. So a frozen store
costs those requests one time-out that were just asking, and the others nothing.

A connection whose call was cut off is closed, since its answer may still come.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from forebay.cache.shared_settings import SharedValuesSettings
from forebay.kernel.clock import Clock
from forebay.kernel.errors import STRANGE_ANSWERS, ConfigError, Unavailable

_CONNECT_S = 1.0
_WRITE_S = 1.0
_CLOSE_S = 1.0
_ENTRY_BYTES = 256
"""What an entry of the queue weighs beside its key and value."""
_BATCH_BYTES = 1 << 20
_BATCH = 64
_CLEAR_S = 10.0
_RELEASES = 10_000
_RELEASED_MS = 100
"""A claim outlives its end a little: who looked for the value just before it came must not find the
claim free."""
_OUTAGES = (RedisError, *STRANGE_ANSWERS)

_CLAIM = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
"""


class RedisValues:
    """See ``forebay.kernel.caching.SharedValues``; ``run`` must be under way while it is used.

    A value that waits to be written is found by this process already.
    """

    def __init__(
        self, url: str, settings: SharedValuesSettings, clock: Clock, prefix: str = "forebay"
    ) -> None:
        try:
            pool = ConnectionPool.from_url(
                url,
                # Two more, for the writer and what it may have cut off.
                max_connections=settings.max_connections + 2,
                socket_connect_timeout=_CONNECT_S,
                # Bounded here instead: the client's own goes through asyncio.wait_for, which
                # loses a cancellation that comes with the result (before Python 3.12).
                socket_timeout=None,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise ConfigError(
                "coordination.redis_url must begin with redis://, rediss:// or unix://; port and "
                "database are numbers.",
                param="coordination.redis_url",
            ) from error
        self._redis: Any = Redis(connection_pool=pool)  # its types are of both its faces
        self._settings = settings
        self._clock = clock
        self._timeout_s = settings.timeout_ms / 1000
        self._values = f"{prefix}:value:".encode()
        self._claims = f"{prefix}:claim:".encode()
        self._queue: dict[bytes, tuple[bytes, float]] = {}
        self._queued_bytes = 0
        self._releases: dict[bytes, str] = {}
        self._wake = asyncio.Event()
        self._broken = False
        self._asking = 0
        self._hits = self._misses = self._skipped = self._outages = self._refused = 0
        self._written = self._given_up = 0

    async def get(self, key: bytes) -> bytes | None:
        """See ``SharedValues``."""
        waiting = self._queue.get(key)
        if waiting is not None and waiting[1] > self._clock.now():
            return waiting[0]
        reply = await self._ask("GET", self._values + key)
        if isinstance(reply, bytes):
            self._hits += 1
            return reply
        self._misses += 1
        return None

    async def put(self, key: bytes, value: bytes, life_s: float) -> None:
        """See ``SharedValues``; given up also when too much waits or the value is too large."""
        self._forget(key)
        size = len(key) + len(value) + _ENTRY_BYTES
        if (
            self._broken
            or life_s <= 0
            or len(value) > self._settings.max_value_bytes
            or self._queued_bytes + size > self._settings.queue_bytes
        ):
            self._given_up += 1
            return
        self._queue[key] = (value, self._clock.now() + life_s)
        self._queued_bytes += size
        self._wake.set()

    async def claim(self, key: bytes, holder: str, life_s: float) -> bool:
        """See ``SharedValues``."""
        life_ms = max(1, round(1000 * life_s))
        reply = await self._ask("EVAL", _CLAIM, 1, self._claims + key, holder, life_ms)
        free: bool = reply != 0
        return free

    async def release(self, key: bytes, holder: str) -> None:
        """See ``SharedValues``; given up when too much waits: a claim ends by itself."""
        if not self._broken and len(self._releases) < _RELEASES:
            self._releases[key] = holder
            self._wake.set()

    async def clear(self) -> None:
        """See ``SharedValues``."""
        self._queue.clear()
        self._queued_bytes = 0
        some: list[bytes] = []
        try:
            async with asyncio.timeout(_CLEAR_S):
                async for key in self._redis.scan_iter(_literally(self._values) + b"*", 1000):
                    some.append(key)
                    if len(some) >= _BATCH:
                        await self._redis.unlink(*some)
                        some.clear()
                if some:
                    await self._redis.unlink(*some)
        except _OUTAGES as error:
            raise Unavailable(
                "Redis does not answer: what processes share was not forgotten."
            ) from error

    async def run(self) -> None:
        """Write what waits, and look for a store that was silent; until cancelled."""
        while True:
            if self._broken:
                if await self._answers():
                    self._broken = False
                else:
                    await asyncio.sleep(self._settings.probe_ms / 1000)
            elif self._queue or self._releases:
                await self._write()
            else:
                self._wake.clear()
                await self._wake.wait()

    async def close(self) -> None:
        """Close every connection; what still waits is given up."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._redis.aclose(close_connection_pool=True)
        except _OUTAGES:
            pass  # whatever is wrong with the store, this process is done with it

    def statistics(self) -> dict[str, float]:
        """Counters since the start, and what waits now."""
        return {
            "hits": self._hits,
            "misses": self._misses,
            "skipped": self._skipped,
            "outages": self._outages,
            "refused": self._refused,
            "written": self._written,
            "given_up": self._given_up,
            "queued": len(self._queue),
            "queued_bytes": self._queued_bytes,
            "asking": self._asking,
            "broken": self._broken,
        }

    async def _ask(self, *words: bytes | str | int) -> Any:
        """The reply within the time-out; None when there is none."""
        if self._broken or self._asking >= self._settings.max_connections:
            self._skipped += 1
            return None
        self._asking += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._redis.execute_command(*words)
        except ResponseError:
            # It answers, but not this: another kind of value, no right, no memory.
            self._refused += 1
        except _OUTAGES:
            self._break()
        finally:
            self._asking -= 1
        return None

    def _break(self) -> None:
        self._outages += not self._broken
        self._broken = True
        self._wake.set()

    async def _answers(self) -> bool:
        """Whether the store answers in time again; connecting may take longer."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._redis.execute_command("PING")
            async with asyncio.timeout(self._timeout_s):
                await self._redis.execute_command("PING")
        except ResponseError:
            return True
        except _OUTAGES:
            return False
        return True

    async def _write(self) -> None:
        now, size, sets = self._clock.now(), 0, 0
        batch: list[tuple[bytes, tuple[bytes, float]]] = []
        pipeline = self._redis.pipeline(transaction=False)
        for key, entry in self._queue.items():
            value, ends_at = entry
            left_ms = int(1000 * (ends_at - now))
            batch.append((key, entry))
            if left_ms > 0:
                pipeline.set(self._values + key, value, px=left_ms)
                sets += 1
            size += len(value)
            if len(batch) >= _BATCH or size >= _BATCH_BYTES:
                break
        if len(batch) == len(self._queue):
            # Behind all values: whoever finds a claim free finds its value too.
            for key, holder in self._releases.items():
                pipeline.eval(_RELEASE, 1, self._claims + key, holder, _RELEASED_MS)
            self._releases.clear()
        try:
            async with asyncio.timeout(_WRITE_S):
                replies = await pipeline.execute(raise_on_error=False)
        except _OUTAGES:
            self._given_up += len(batch)
            self._break()
        else:
            refused = sum(isinstance(reply, Exception) for reply in replies[:sets])
            self._refused += refused
            self._written += sets - refused
        for key, entry in batch:
            if self._queue.get(key) is entry:
                self._forget(key)

    def _forget(self, key: bytes) -> None:
        entry = self._queue.pop(key, None)
        if entry is not None:
            self._queued_bytes -= len(key) + len(entry[0]) + _ENTRY_BYTES


def _literally(prefix: bytes) -> bytes:
    """A pattern that matches this and nothing else."""
    return re.sub(rb"([\\*?\[\]^-])", rb"\\\1", prefix)
