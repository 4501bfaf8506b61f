"""What every subscription does: read on from a position, over whatever breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.caching import ChangeEvent, Delivery
from forebay.kernel.errors import Unavailable

log = logging.getLogger("forebay.events")
FIRST_REST_S = 0.05
LAST_REST_S = 2.0
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ChangeEvent)


class Reader(Protocol):
    """One connection's reading; ``position`` is where it stands.

    ``gap``: what was between the position asked for and this one is lost.
    """

    position: str
    gap: bool

    async def read(self) -> Sequence[tuple[str, bytes]]:
        """Positions and events that came, after a bounded wait; ``Unavailable`` when cut off."""
        ...

    async def close(self) -> None:
        """Let the connection go."""
        ...


def encode_event(event: ChangeEvent) -> bytes:
    """An event as JSON: other programs may read the log."""
    return _ENCODER.encode(event)


def decode_event(data: bytes) -> ChangeEvent | None:
    """The event; None for what is none, such as a kind that a later release knows."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


async def following(
    open_reader: Callable[[str], Awaitable[Reader]], after: str
) -> AsyncGenerator[Delivery, None]:
    """Deliveries after a position, for ever; rests between attempts, longer each time.

    A gap is told at once, by an event that says to forget everything.
    """
    position, rest_s, broken = after, FIRST_REST_S, False
    while True:
        try:
            reader = await open_reader(position)
            if broken:
                log.info("change events are heard again")
            broken = False
            try:
                position = reader.position
                if reader.gap:
                    yield Delivery(ChangeEvent("purge"), position, gap=True)
                while True:
                    for position, data in await reader.read():
                        event = decode_event(data)
                        if event is not None:
                            yield Delivery(event, position)
                    rest_s = FIRST_REST_S
            finally:
                await reader.close()
        except Unavailable as error:
            if not broken:
                log.warning("change events are not heard: %s", error.message)
            broken = True
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, LAST_REST_S)
