"""What happens when a pool's tail changes: an event in the log, a call for more replicas."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

from forebay.kernel.clock import Clock
from forebay.policy.admission.settings import ScaleOutSettings
from forebay.policy.tail import TailChange

log = logging.getLogger("forebay.admission")
Call = Callable[[bytes], Coroutine[Any, Any, None]]
RETRY_S = 1.0
"""A call that failed is not made again before, however short the pause is."""


class PoolEvent(msgspec.Struct, frozen=True):
    """What the command and the webhook get; ``reason`` is a sentence, ``actions`` are others."""

    pool: str
    level: str
    was: str
    reason: str
    actions: tuple[str, ...] = ()


class Called(msgspec.Struct):
    """What one of the two knows of a pool, and when it was last called."""

    severe: bool = False
    at: float = float("-inf")
    rests_s: float = 0.0


class ScaleOutHook:
    """Tells people and calls out, when a tail becomes severe and when that is over.

    It never holds up who tells it. Whoever is called is told the state, not each change: what
    comes and goes within ``pause_s`` is not told at all, and a call that failed is made again.
    """

    def __init__(self, settings: ScaleOutSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._latest: dict[str, PoolEvent] = {}
        self._calls: dict[str, Call] = {}
        if settings.command:
            self._calls["command"] = self._command
        if settings.webhook:
            self._calls["webhook"] = self._webhook
        self._called: dict[tuple[str, str], Called] = {}
        self._changed = asyncio.Event()

    def told(self, pool: str, change: TailChange, actions: Sequence[str] = ()) -> None:
        """A pool's level changed, and ``actions`` were taken or undone."""
        said = {"severe": "is severe", "warn": "deserves a look", "normal": "is normal again"}
        level = logging.WARNING if change.level != "normal" else logging.INFO
        log.log(
            level, "the tail of pool %s %s: %s", pool, said[change.level],
            "; ".join((change.reason, *actions)),
            extra={"pool": pool, "level": change.level},
        )  # fmt: skip
        event = PoolEvent(pool, change.level, change.was, change.reason, tuple(actions))
        self._latest[pool] = event
        self._changed.set()

    async def run(self) -> None:
        """Call out, one after the other, until cancelled."""
        while True:
            self._changed.clear()
            for what, event in self._due():
                await self._attempt(what, event)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest_s()):
                    await self._changed.wait()

    def _due(self) -> list[tuple[str, PoolEvent]]:
        now = self._clock.now()
        return [(what, event) for at, what, event in self._wanted() if at <= now]

    def _rest_s(self) -> float | None:
        """Until the next call may be made; None: until something changes."""
        at = min((at for at, _, _ in self._wanted()), default=None)
        return None if at is None else max(0.0, at - self._clock.now())

    def _wanted(self) -> Iterator[tuple[float, str, PoolEvent]]:
        """Calls to be made and from when on they may."""
        for pool, event in self._latest.items():
            for what in self._calls:
                called = self._called.setdefault((pool, what), Called())
                if called.severe != (event.level == "severe"):
                    yield called.at + called.rests_s, what, event

    async def _attempt(self, what: str, event: PoolEvent) -> None:
        called = self._called[event.pool, what]
        called.at = self._clock.now()
        called.rests_s = max(self._settings.pause_s, RETRY_S)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self._calls[what](msgspec.json.encode(event))
        # Whatever goes wrong outside must not end the server, least of all while it is overloaded.
        except Exception as error:
            why = str(error) or "it took too long"
            log.error("the scale-out %s failed for pool %s: %s", what, event.pool, why)
        else:
            called.severe = event.level == "severe"
            called.rests_s = self._settings.pause_s
            log.info(
                "the scale-out %s was told that the tail of pool %s is %s",
                what, event.pool, "severe" if called.severe else "severe no more",
            )  # fmt: skip

    async def _command(self, data: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._settings.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await _write(process.stdin, data)
            await process.wait()
        finally:
            if process.returncode is None:
                # With whatever it started; one that ended in time may leave something to go on.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
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


async def _write(pipe: asyncio.StreamWriter | None, data: bytes) -> None:
    """Give it the event; it need not read it, nor live so long."""
    if pipe is None:
        return
    # RuntimeError is uvloop's word for a pipe that broke.
    with suppress(OSError, RuntimeError):
        pipe.write(data)
        await pipe.drain()
    pipe.close()


class _Failed(Exception):
    """The other side says that it did not work."""
