"""One kept HTTP/1.1 connection that carries one exchange after the other.

``httptools`` parses heads, lengths and chunks; this file only says what follows from them. A
connection whose answer is over but whose body is not (events after ``[DONE]``) stays busy until
the body ends or the exchange's time is up; the caller has its result by then.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from forebay.kernel.clock import Clock
from forebay.lab.bench.answers import Reader
from forebay.lab.bench.exchange import Exchange
from forebay.lab.measure.result import CUT, DISCONNECTED, MALFORMED

_DRAIN_S = 2.0
"""How long the rest of a body may follow an answer that is over."""


class Owner(Protocol):
    """Who lends connections out."""

    def idle(self, connection: Connection) -> None:
        """The connection can carry the next exchange."""
        ...

    def closed(self, connection: Connection, unanswered: Exchange | None) -> None:
        """The connection is gone; ``unanswered`` may be sent again on another."""
        ...


class Connection(asyncio.Protocol):
    """The client's end of one TCP or TLS connection."""

    __slots__ = (
        "_cache",
        "_clock",
        "_drain",
        "_exchange",
        "_framed",
        "_interim",
        "_keep",
        "_loop",
        "_now",
        "_owner",
        "_parser",
        "_reader",
        "_retry_after",
        "_rung",
        "_stream_type",
        "_transport",
        "_used",
    )

    def __init__(self, owner: Owner, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._clock = clock
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._reader: Reader | None = None
        self._drain: asyncio.TimerHandle | None = None
        self._used = False
        self._now = 0.0
        self._reset()

    def send(self, exchange: Exchange) -> None:
        """Write the exchange's request; the connection must be idle."""
        assert self._transport is not None and self._exchange is None
        self._exchange = exchange
        exchange.connection = self
        self._transport.write(exchange.payload)

    def usable(self) -> bool:
        """Whether another exchange can be sent here."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        # One time for all that one read brought: it came together.
        self._now = self._clock.now()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            # Ours, not the target's: the loop reports it and closes the connection.
            raise
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Nobody asked for another protocol either.
            self._fail(MALFORMED)

    def connection_lost(self, error: Exception | None) -> None:
        if self._drain is not None:
            self._drain.cancel()
        exchange, reader = self._exchange, self._reader
        self._exchange = self._reader = self._transport = None
        unanswered = None
        if exchange is not None and not exchange.over:
            now = self._clock.now()
            if reader is not None and not self._framed and error is None:
                # A body without length or chunks ends with its connection.
                exchange.settle(reader.end(now), now)
            elif self._used and reader is None and not exchange.retried:
                # The target closed a kept connection while the request was on its way.
                exchange.retried = True
                exchange.connection = None
                unanswered = exchange
            else:
                exchange.settle(CUT, now)
        self._owner.closed(self, unanswered)

    # --- httptools -----------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        # Length first: most headers of an answer are none of these.
        size = len(name)
        if size == 12 and name.lower() == b"content-type":
            self._stream_type = value.lower().startswith(b"text/event-stream")
        elif size == 14 and name.lower() == b"content-length":
            self._framed = True
        elif size == 17 and name.lower() == b"transfer-encoding":
            self._framed = b"chunked" in value.lower()
        elif size == 11 and name.lower() == b"retry-after":
            self._retry_after = True
        elif size == 15 and name.lower() == b"x-forebay-cache":
            self._cache = value.decode("latin-1")
        elif size == 14 and name.lower() == b"x-forebay-rung":
            self._rung = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        exchange = self._exchange
        self._interim = code < 200
        if self._interim or exchange is None:
            return
        exchange.facts.cache, exchange.facts.rung = self._cache, self._rung
        self._keep = self._parser.should_keep_alive()
        self._reader = exchange.reader(code, self._retry_after, self._stream_type)

    def on_body(self, piece: bytes) -> None:
        exchange, reader = self._exchange, self._reader
        if exchange is None or reader is None or exchange.over:
            return
        status = reader.feed(piece, self._now)
        if not status:
            return
        exchange.settle(status, self._now)
        if status in (DISCONNECTED, MALFORMED):
            self.abort()
        else:
            self._drain = self._loop.call_later(_DRAIN_S, self.abort)

    def on_message_complete(self) -> None:
        if self._interim:
            self._reset()
            return
        exchange, reader = self._exchange, self._reader
        if exchange is None or reader is None:
            self._fail(MALFORMED)
            return
        self._exchange = self._reader = None
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        if not exchange.over:
            exchange.settle(reader.end(self._now), self._now)
        exchange.connection = None
        self._used = True
        keep = self._keep
        self._reset()
        if keep and self.usable():
            self._owner.idle(self)
        else:
            self.abort()

    def _reset(self) -> None:
        self._framed = self._retry_after = self._stream_type = self._interim = False
        self._keep = False
        self._cache = self._rung = ""

    def _fail(self, status: str) -> None:
        if self._exchange is not None:
            self._exchange.settle(status, self._clock.now())
        self.abort()
