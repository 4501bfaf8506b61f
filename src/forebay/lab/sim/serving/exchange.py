"""One HTTP exchange over ASGI, with what ASGI has no word for: a client that leaves, a cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from forebay.kernel.errors import InvalidRequest, PayloadTooLarge
from forebay.lab.sim.serving.connection import EXTENSION, Connection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BODY_S = 30.0
_JSON = [(b"content-type", b"application/json")]
_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Cut(Exception):
    """The connection is to be closed in the middle of the answer."""


class Exchange:
    """A request and its answer; used as a context, inside which a client's leaving cancels."""

    __slots__ = (
        "_connection",
        "_receive",
        "_send",
        "gone",
        "headers",
        "method",
        "path",
        "port",
        "query",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._connection: Connection = scope["extensions"][EXTENSION]
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("ascii", "replace")
        self.port: int = scope["server"][1]
        self.headers: list[tuple[bytes, bytes]] = []
        """Sent with every answer."""
        self.gone = False

    def watch(self) -> None:
        """From now on the running task is cancelled when the client leaves."""
        task = asyncio.current_task()
        assert task is not None

        def leave() -> None:
            self.gone = True
            task.cancel()

        self._connection.watch(leave)

    def unwatch(self) -> None:
        """The exchange is over."""
        self._connection.watch(None)

    async def body(self, most_bytes: int) -> bytes:
        """The request's body; ``PayloadTooLarge`` beyond the bound."""
        message = await self._receive()
        data: bytes = message.get("body", b"")
        if message.get("more_body"):
            try:
                async with asyncio.timeout(_BODY_S):
                    data = await self._rest(data, most_bytes)
            except TimeoutError:
                raise InvalidRequest("The request's body did not arrive in time.") from None
        if len(data) > most_bytes:
            raise PayloadTooLarge(f"The body is larger than {most_bytes} bytes.")
        return data

    async def _rest(self, data: bytes, most_bytes: int) -> bytes:
        parts, size = [data], len(data)
        while True:
            message = await self._receive()
            part = message.get("body", b"")
            size += len(part)
            # What is too much is read, not kept: most clients listen only after they have sent.
            if size <= most_bytes:
                parts.append(part)
            if not message.get("more_body"):
                if size > most_bytes:
                    raise PayloadTooLarge(f"The body is larger than {most_bytes} bytes.")
                return b"".join(parts)

    async def reply(
        self,
        status: int,
        body: bytes,
        headers: list[tuple[bytes, bytes]] = _JSON,
    ) -> None:
        """Answer in one piece."""
        length = (b"content-length", b"%d" % len(body))
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *self.headers, length],
            }
        )
        await self._send({"type": "http.response.body", "body": body})

    async def start_stream(self) -> None:
        """Send the head of an event stream."""
        headers = [*_STREAM, *self.headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of the stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    def cut(self) -> None:
        """Close the connection after what was written."""
        self._connection.watch(None)
        self._connection.cut()
