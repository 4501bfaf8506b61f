"""A small HTTP/1.1 client for streams of engines: a kept connection carries one POST at a time.

``httptools`` parses heads, lengths and chunks. What one read of the socket brought is one piece
of the body, handed over without a copy between: a token costs a fifth of what it costs through a
client that knows compression, cookies, redirects and proxies.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

import httptools

HEAD_BYTES_MAX = 65_536
HELD_BYTES_MAX = 262_144
"""Of a body that nobody reads; beyond it the engine is not read either."""
_PATH = "/%:@!$&'()*+,;=~-._"


class HttpError(OSError):
    """The connection broke, or what came over it is no HTTP."""


class Endpoint:
    """Where requests go: an address with its path; ``ValueError`` where it is none."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.secure = parts.scheme == "https"
        self.host = (parts.hostname or "").encode("idna").decode()
        self.port = parts.port or (443 if self.secure else 80)
        if not self.host:
            raise ValueError(f"{url} has no host.")
        named = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        path = quote(parts.path or "/", safe=_PATH) + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {named}" if usual else f"Host: {named}:{self.port}",
            "User-Agent: forebay",
        ]
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            lines.append(f"Authorization: Basic {b64encode(user.encode()).decode()}")
        self._head = "\r\n".join(lines).encode()

    def request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """The bytes of a request; ``ValueError`` for a header that would be several."""
        lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        if lines.count("\r") != len(headers) or lines.count("\n") != len(headers):
            raise ValueError("a header holds a line break.")
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (
            self._head,
            lines.encode(),
            len(body),
            body,
        )


class Response:
    """A response as it comes; ``close`` it in any case.

    ``broken`` is what reading raises once what came before is read.
    """

    def __init__(self, connection: Connection, *, kept: bool) -> None:
        self.kept = kept
        self.status = 0
        self.headers: dict[str, str] = {}
        self.whole = False
        self.broken: BaseException | None = None
        self._connection: Connection | None = connection
        self._parts: list[bytes] = []
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None
        self._push: Callable[[bytes], bool] | None = None
        self.pushes = False

    @property
    def content_type(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def take(self) -> bytes:
        """What has come since, all of it; empty: ``wait``."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        if self._held > HELD_BYTES_MAX and self._connection is not None:
            self._connection.read_on()
        self._held = 0
        return data

    async def wait(self) -> bool:
        """Until there is something to take: True; at the body's end False. Raises ``broken``."""
        while not self._parts:
            if self.broken is not None:
                raise self.broken
            if self.whole:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return True

    async def push(self, to: Callable[[bytes], bool]) -> None:
        """Give what each read brings to ``to`` at once, until it says False or no more can come.

        ``to`` must not raise. A token that way wakes no task.
        """
        if self._parts and not to(self.take()):
            return
        self._push, self.pushes = to, True
        try:
            while self._pushes():
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        finally:
            self._push, self.pushes = None, False

    def _pushes(self) -> bool:
        return self._push is not None and not self.whole and self.broken is None

    async def head(self) -> None:
        """Until status and headers are there."""
        while not self.status:
            if self.broken is not None:
                raise self.broken
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def breaks(self, error: BaseException) -> None:
        """Whoever reads finds this."""
        if self.broken is None and not self.whole:
            self.broken = error
        self._tell()

    def close(self) -> None:
        """Keep the connection if everything was read, else close it, so that the engine sees it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave(whole=self.whole)

    def _tell(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    # --- of its connection -----------------------------------------------------------------------

    def begun(self, status: int, headers: dict[str, str]) -> None:
        """Status and headers have come."""
        self.status, self.headers = status, headers
        self._tell()

    def feed(self, data: bytes) -> bool:
        """A piece of the body; whether it is more than should be held."""
        self._parts.append(data)
        self._held += len(data)
        if self._push is None:
            self._tell()
        return self._held > HELD_BYTES_MAX

    def fed(self) -> None:
        """That was all of one read."""
        if self._push is not None and self._parts and not self._push(self.take()):
            self._push, self.pushes = None, False
            self._tell()

    def ended(self) -> None:
        """The body is whole."""
        self.whole = True
        self._tell()


class Connection(asyncio.Protocol):
    """One connection to an endpoint."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._parser: Any = None
        self._head: dict[str, str] = {}
        self._head_bytes = 0
        self._keep = self._framed = self._paused = False
        self.idle_since = 0.0

    def usable(self) -> bool:
        """Whether a request can be sent here."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, *, kept: bool) -> Response:
        """Write a request; its response has yet to come."""
        assert self._transport is not None and self._response is None
        self._parser = httptools.HttpResponseParser(self)
        self._head, self._head_bytes = {}, 0
        self._keep = self._framed = False
        self._response = Response(self, kept=kept)
        self._transport.write(request)
        return self._response

    def leave(self, *, whole: bool) -> None:
        """Nobody reads the response any more."""
        self._response = None
        # The parser refers to this, and would be left to the garbage collector.
        self._parser = None
        if whole and self._keep and self.usable() and not self._paused:
            self._line.put_back(self)
        else:
            self.abort()

    def read_on(self) -> None:
        """What was held is read."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._line.opened(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; what nobody asked for ends it."""
        response = self._response
        if response is None or response.whole:
            self.abort()
            return
        if not response.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # ours: the loop reports it and closes the connection
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._spoil("The engine answered something else than HTTP.")
            return
        if response.pushes:
            response.fed()
        if not response.status and self._head_bytes > HEAD_BYTES_MAX:
            self._spoil("The engine's headers are too long.")

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._transport = None
        self._line.gone(self)
        response, self._parser = self._response, None
        if response is None or response.whole:
            return
        if response.status and not self._framed and error is None:
            # A body without length or chunks ends with its connection.
            self._keep = False
            response.ended()
        else:
            response.breaks(HttpError("The connection broke."))

    def _spoil(self, why: str) -> None:
        if self._response is not None:
            self._response.breaks(HttpError(why))
        self.abort()

    # --- httptools -------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a repeated one is joined by commas."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._head[key] = f"{self._head[key]}, {text}" if key in self._head else text

    def on_headers_complete(self) -> None:
        """Tell the reader, unless more heads follow."""
        status, headers = self._parser.get_status_code(), self._head
        if status < 200:
            self._head = {}
            return
        self._keep = self._parser.should_keep_alive()
        coding = headers.get("transfer-encoding", "").lower()
        self._framed = "content-length" in headers or "chunked" in coding
        if self._response is not None:
            self._response.begun(status, headers)

    def on_body(self, data: bytes) -> None:
        """Hand a piece over, and stop reading where nobody takes them."""
        response = self._response
        if response is not None and response.feed(data) and not self._paused:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The body is whole, unless it was an interim response."""
        response = self._response
        if response is not None and response.status:
            response.ended()


class Line:
    """The connections to one endpoint that nobody uses."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def idle(self) -> int:
        """How many are kept and unused."""
        return len(self._idle)

    def take(self) -> Connection | None:
        """The one that was used last; None: open another."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
        return None

    def made(self) -> Connection:
        """The protocol of another connection."""
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        """It is there."""
        self._open.add(connection)
        if self._closed:
            connection.abort()

    def put_back(self, connection: Connection) -> None:
        """It can carry the next request."""
        if self._closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._look)

    def gone(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close every connection, used or not."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._open):
            connection.abort()

    def _look(self) -> None:
        """Close what was idle for too long; the oldest are in front."""
        loop = asyncio.get_running_loop()
        until = loop.time() - self._idle_s
        while self._idle and self._idle[0].idle_since <= until:
            self._idle.popleft().abort()
        self._timer = None
        if self._idle:
            left_s = self._idle[0].idle_since - until
            self._timer = loop.call_later(max(left_s, 0.001), self._look)


class HttpClient:
    """POSTs to one endpoint; made inside a running loop, ended by ``close``."""

    def __init__(self, url: str, *, connect_timeout_s: float, idle_s: float) -> None:
        self._endpoint = Endpoint(url)
        self._connect_timeout_s = connect_timeout_s
        self._line = Line(idle_s)
        self._tls: ssl.SSLContext | None = None
        if self._endpoint.secure:
            self._tls = ssl.create_default_context()

    @property
    def idle(self) -> int:
        """Connections kept and unused."""
        return self._line.idle

    async def post(self, headers: Mapping[str, str], body: bytes) -> Response:
        """Send and return the response with its head; ``OSError`` where there is none.

        On another connection where a kept one had been closed meanwhile. That says nothing of the
        engine: llama.cpp closes after each stream, announcing otherwise.
        """
        request = self._endpoint.request(headers, body)
        for last in (False, False, True):
            connection = self._line.take()
            kept = connection is not None
            if connection is None:
                connection = await self._opened()
            response = connection.send(request, kept=kept)
            try:
                await response.head()
            except BaseException as error:  # whatever it is, nobody reads the response
                response.close()
                if last or not kept or not isinstance(error, HttpError):
                    raise
            else:
                return response
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close every connection; requests under way fail."""
        self._line.close()

    async def _opened(self) -> Connection:
        """A new connection to the first of the host's addresses that takes it."""
        loop, at = asyncio.get_running_loop(), self._endpoint
        async with asyncio.timeout(self._connect_timeout_s):
            found = await loop.getaddrinfo(at.host, at.port, type=1)
            addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
            ends_at = loop.time() + self._connect_timeout_s
            for left in range(len(addresses), 0, -1):
                host = addresses[len(addresses) - left]
                try:
                    # An address that does not answer leaves the others their time.
                    async with asyncio.timeout((ends_at - loop.time()) / left):
                        _, connection = await loop.create_connection(
                            self._line.made,
                            host,
                            at.port,
                            ssl=self._tls,
                            server_hostname=at.host if self._tls else None,
                        )
                    return connection
                except OSError:
                    if left == 1:
                        raise
        raise HttpError("The engine's host has no address.")
