"""uvicorn's HTTP/1.1 protocol with bounds on what a connection may cost.

The parser itself bounds neither the size of headers nor the time they may take, and a client
that never reads would hold its answer's memory for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forebay.gateway.errors import error_json
from forebay.gateway.settings import ConnectionSettings
from forebay.wire.errors import ErrorDetail

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


_CONTINUE = b"HTTP/1.1 100 "


class HeadersTooLarge(ValueError):
    """The request line and headers are over the bound."""


PIECES = "forebay.pieces"
"""The ASGI extension under which a scope has ``Pieces``."""


class Pieces:
    """The transport of one response: its head waits for what comes in the same turn of the loop.

    Written apart they are two calls of the system, two packets, and two wakings of the client.
    Whoever streams a body may write its pieces here without waiting, once it is ``ready``.
    """

    __slots__ = ("_flow", "_head", "_loop", "_transport", "_waiting")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, flow: FlowControl
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._flow = flow
        self._head: bytes | None = b""
        self._waiting: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write, unless it is the first piece; leave to send a body is no piece of a response."""
        if self._head is None or data.startswith(_CONTINUE):
            self._transport.write(data)
        elif self._waiting is None:
            self._head, self._waiting = data, self._loop.call_soon(self._write_head)
        else:
            self._waiting.cancel()
            head, self._head = self._head, None
            self._transport.write(head + data)

    def ready(self) -> bool:
        """Whether a body has begun and its client is there and reads."""
        begun = self._head is None
        return begun and not self._flow.write_paused and not self._transport.is_closing()

    def write_piece(self, data: bytes) -> None:
        """Write a piece of a body in chunks that is ``ready``."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Write what waits, and close."""
        self._write_head()
        self._transport.close()

    def _write_head(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._head:
            head, self._head = self._head, None
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """Refuses surplus connections, endless headers and readers that stand still."""

    limits = ConnectionSettings()
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _head_lines = 0
    _line_bytes = 0
    _refused = False
    _in_body = False
    _linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "this server has all the connections it can take.", "overloaded")
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._disarm()
        for timer in (self._write_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser while the headers are within their bounds."""
        if self._refused:
            return
        if self._answered():
            if self._in_body:
                self._linger()
            elif self._header_timer is None:
                self._expect_headers()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._header_timer is not None and self._head_bytes > self.limits.max_header_bytes:
            self._refuse(431, "the request's headers are too large.", "headers_too_large")

    def on_message_begin(self) -> None:
        """Count a new request's headers from zero."""
        self._head_lines = 0
        self._line_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._line_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header line."""
        self._head_lines += 1
        self._line_bytes += len(name) + len(value) + 4
        if (
            self._head_lines > self.limits.max_headers
            or self._line_bytes > self.limits.max_header_bytes
        ):
            raise HeadersTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the header clock."""
        self._disarm()
        self._in_body = True
        super().on_headers_complete()
        # Its task has not begun yet.
        response = Pieces(self.transport, self.loop, self.flow)
        self.cycle.transport = response  # type: ignore[assignment]
        self.cycle.scope["extensions"] = {PIECES: response}  # type: ignore[dict-item]

    def on_message_complete(self) -> None:
        """A body that outlasted its answer has ended: wait for the next request, not for ever."""
        self._in_body = False
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
            self._expect_headers()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused."""
        if (
            self._head_lines > self.limits.max_headers
            or self._line_bytes > self.limits.max_header_bytes
        ):
            self._refuse(431, "the request's headers are too large.", "headers_too_large")
        else:
            self._refuse(400, "this is not a valid HTTP/1.1 request.", "invalid_http")

    def pause_writing(self) -> None:
        """Give a client that does not read a while, then drop it."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self.limits.write_timeout_s, self.transport.abort
            )

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _linger(self) -> None:
        """Discard the rest of a refused body for a while.

        Most clients read the answer only after they have sent everything; closing at once would
        reset the connection and lose it.
        """
        if self._linger_timer is None:
            self._linger_timer = self.loop.call_later(self.limits.linger_s, self.transport.close)

    def _expect_headers(self) -> None:
        self._head_bytes = 0
        self._header_timer = self.loop.call_later(self.limits.header_timeout_s, self._headers_late)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        if self._head_bytes == 0:
            self.transport.close()
        else:
            self._refuse(408, "the request's headers did not arrive in time.", "request_timeout")

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._disarm()
        self._refused = True
        kind = "overloaded_error" if status == 503 else "invalid_request_error"
        body = error_json(ErrorDetail(message, kind, None, code))
        retry = "retry-after: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def bounded_protocol(limits: ConnectionSettings) -> type[BoundedProtocol]:
    """The protocol class for these limits; uvicorn makes the instances."""
    return type("ConfiguredProtocol", (BoundedProtocol,), {"limits": limits})
