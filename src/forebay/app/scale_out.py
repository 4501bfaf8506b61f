"""What happens when a pool's tail changes: an event in the log, a call for more replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

from forebay.kernel.clock import Clock
from forebay.policy.admission.settings import ScaleOutSettings
from forebay.policy.tail import TailChange

log = logging.getLogger("forebay.admission")
QUEUED = 32


class PoolEvent(msgspec.Struct, frozen=True):
    """What the command and the webhook get; ``reason`` is a sentence."""

    pool: str
    level: str
    was: str
    reason: str


class ScaleOutHook:
    """Tells people and calls out; never holds up who tells it."""

    def __init__(self, settings: ScaleOutSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._called_at: dict[str, float] = {}
        self._events: asyncio.Queue[PoolEvent] = asyncio.Queue(QUEUED)

    def told(self, pool: str, change: TailChange) -> None:
        """A pool's level changed; calls out when it became severe."""
        said = {"severe": "is severe", "warn": "deserves a look", "normal": "is normal again"}
        level = logging.WARNING if change.level != "normal" else logging.INFO
        log.log(
            level, "the tail of pool %s %s: %s", pool, said[change.level], change.reason,
            extra={"pool": pool, "level": change.level},
        )  # fmt: skip
        if change.level != "severe" or not (self._settings.command or self._settings.webhook):
            return
        now = self._clock.now()
        if now - self._called_at.get(pool, float("-inf")) < self._settings.pause_s:
            return
        self._called_at[pool] = now
        with suppress(asyncio.QueueFull):
            event = PoolEvent(pool, change.level, change.was, change.reason)
            self._events.put_nowait(event)

    async def run(self) -> None:
        """Call out, one event after the other, until cancelled."""
        while True:
            event = await self._events.get()
            data = msgspec.json.encode(event)
            if self._settings.command:
                await self._attempt("command", self._command(data))
            if self._settings.webhook:
                await self._attempt("webhook", self._webhook(data))

    async def _attempt(self, what: str, call: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await call
        except (OSError, aiohttp.ClientError, TimeoutError, _Failed) as error:
            log.error("the scale-out %s failed: %s", what, str(error) or "it took too long")
        else:
            log.info("the scale-out %s was called", what)

    async def _command(self, data: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._settings.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.communicate(data)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise _Failed(f"it ended with {process.returncode}")

    async def _webhook(self, data: bytes) -> None:
        headers = {"content-type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._settings.webhook, data=data, headers=headers) as answer,
        ):
            if answer.status >= 400:
                raise _Failed(f"it answered {answer.status}")


class _Failed(Exception):
    """The other side says that it did not work."""
