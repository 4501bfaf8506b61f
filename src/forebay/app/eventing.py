"""Change events of a service: what this process tells others, and what it does when told.

Events make caches quick to forget; that they are true rests on versions alone, so an event that is
late or lost costs memory and no truth.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from forebay.app.caching import Tiers
from forebay.coordination.bus.jetstream import JetStreamBus
from forebay.coordination.bus.kafka import KafkaBus
from forebay.coordination.bus.memory import MemoryBus
from forebay.coordination.bus.redis_streams import RedisBus
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.caching import ChangeBus, ChangeEvent, Delivery
from forebay.kernel.errors import ConfigError, ForebayError

log = logging.getLogger("forebay.events")
QUEUE_EVENTS = 1024
_HOST = r"[A-Za-z0-9._\[\]:-]*[A-Za-z0-9\]]:\d{1,5}"
_CARRIERS = {
    "nats": (
        re.compile(rf"(?:nats|tls)://(?:[^@/]+@)?{_HOST}/?"),
        "nats",
        "nats://127.0.0.1:4222",
    ),
    "kafka": (re.compile(rf"{_HOST}(?:,\s*{_HOST})*"), "confluent_kafka", "127.0.0.1:9092"),
}
"""How each carrier's address looks, the package of its client, an example."""
ANSWERS_END = frozenset({"rules", "template", "model"})
"""Kinds after which kept answers are forgotten; of changed documents versions tell more."""


class Events:
    """One process's end of the bus; ``poke`` has the process look for new versions."""

    def __init__(self, bus: ChangeBus, tiers: Tiers, poke: Callable[[], None]) -> None:
        self._bus = bus
        self._tiers = tiers
        self._poke = poke
        self.origin = secrets.token_hex(8)
        self._queue: asyncio.Queue[ChangeEvent] = asyncio.Queue(QUEUE_EVENTS)
        self.sent = self.lost = self.heard = self.gaps = 0

    def tell(self, kind: str, kb: str = "", version: int = 0) -> None:
        """Hand an event to be sent; the oldest that waits is given up when too many do."""
        event = ChangeEvent(kind, kb, version, origin=self.origin)  # type: ignore[arg-type]
        if self._queue.full():
            self._queue.get_nowait()
            self.lost += 1
        self._queue.put_nowait(event)

    def statistics(self) -> dict[str, int]:
        """Events sent, given up, heard, and how often some were missed."""
        return {"sent": self.sent, "lost": self.lost, "heard": self.heard, "gaps": self.gaps}

    async def run(self) -> None:
        """Send and listen until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._listen())

    async def _send(self) -> None:
        broken = False
        while True:
            event = await self._queue.get()
            try:
                await self._bus.publish(event)
            except ForebayError as error:
                self.lost += 1
                if not broken:
                    log.warning("change events are not sent: %s", error.message)
                broken = True
            else:
                self.sent += 1
                if broken:
                    log.info("change events are sent again")
                broken = False

    async def _listen(self) -> None:
        deliveries = self._bus.subscribe()
        async with aclosing(deliveries):  # type: ignore[type-var]
            async for delivery in deliveries:
                self._hear(delivery)

    def _hear(self, delivery: Delivery) -> None:
        event = delivery.event
        if delivery.gap:
            self.gaps += 1
        elif event.origin == self.origin:
            return
        self.heard += 1
        if event.kind == "documents":
            self._poke()
        elif event.kind in ANSWERS_END:
            self._tiers.forget_answers()
        elif event.kind == "purge":
            self._tiers.purge(event.kb)
        if delivery.gap:
            self._poke()


def open_bus(settings: CoordinationSettings) -> ChangeBus:
    """The carrier that the settings name."""
    carrier = settings.bus
    if carrier == "auto":
        carrier = "redis" if settings.redis_url else "memory"
    if carrier == "memory":
        return MemoryBus()
    if carrier == "redis":
        if not settings.redis_url:
            raise ConfigError(
                'coordination.bus = "redis" needs coordination.redis_url.', param="coordination.bus"
            )
        return RedisBus(settings.redis_url, settings.redis_prefix)
    if not settings.bus_url:
        raise ConfigError(
            f'coordination.bus = "{carrier}" needs coordination.bus_url.', param="coordination.bus"
        )
    _check_address(carrier, settings.bus_url)
    if carrier == "nats":
        return JetStreamBus(settings.bus_url, settings.redis_prefix)
    return KafkaBus(settings.bus_url, settings.redis_prefix)


def _check_address(carrier: str, url: str) -> None:
    """Raise for an address that nothing can listen at, and for a client that is not installed."""
    form, package, example = _CARRIERS[carrier]
    if form.fullmatch(url) is None:
        raise ConfigError(
            f"coordination.bus_url is {url!r}, which is no address for {carrier}; write for "
            f"example {example}.",
            param="coordination.bus_url",
        )
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            f'coordination.bus = "{carrier}" needs a client that is not installed: run '
            f'`make setup-buses`, or pip install "forebay[{carrier}]".',
            param="coordination.bus",
        )


@asynccontextmanager
async def open_events(
    settings: CoordinationSettings, tiers: Tiers, poke: Callable[[], None]
) -> AsyncIterator[Events]:
    """Events sent and heard while the block runs."""
    bus = open_bus(settings)
    events = Events(bus, tiers, poke)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(events.run())
            try:
                yield events
            finally:
                task.cancel()
    finally:
        await bus.close()
