"""Connections to one target: kept, lent out, bounded.

An exchange takes an idle connection (the one used last, so that spare ones grow old), else it
waits while a new one is opened; the wait counts into its latency. At most as many connections
are being opened as exchanges wait.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from forebay.kernel.clock import Clock
from forebay.lab.bench.address import Destination
from forebay.lab.bench.connection import Connection
from forebay.lab.bench.exchange import Exchange
from forebay.lab.measure.result import CONNECT_FAILED, TIMEOUT


class PoolStatistics(msgspec.Struct, frozen=True):
    """What the pool did and holds."""

    opened: int
    open: int
    idle: int
    waiting: int
    waited: int
    """Exchanges that found every connection the bound allows in use."""


class Pool:
    """Owns every connection; its opening tasks live in ``group``."""

    def __init__(
        self,
        destination: Destination,
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        max_connections: int,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._destination = destination
        self._group = group
        self._clock = clock
        self._max = max_connections
        self._connect_timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Connection, None] = {}
        self._waiting: deque[Exchange] = deque()
        self._all: set[Connection] = set()
        self._opening = 0
        self._opened = 0
        self._waited = 0
        self._closing = False

    def submit(self, exchange: Exchange) -> None:
        """Send as soon as there is a connection."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable():
                connection.send(exchange)
                return
        if len(self._all) + self._opening >= self._max:
            self._waited += 1
        self._waiting.append(exchange)
        self._open_more()

    def time_out(self, exchange: Exchange) -> None:
        """End an exchange whose time is up, and the connection that carries it."""
        exchange.settle(TIMEOUT, self._clock.now())
        if exchange.connection is not None:
            exchange.connection.abort()

    def close(self) -> None:
        """Close every connection at once."""
        self._closing = True
        for connection in tuple(self._all):
            connection.abort()

    def statistics(self) -> PoolStatistics:
        """What was done so far, and what is held now."""
        return PoolStatistics(
            opened=self._opened,
            open=len(self._all),
            idle=len(self._idle),
            waiting=len(self._waiting),
            waited=self._waited,
        )

    # --- what connections report ----------------------------------------------------------------

    def idle(self, connection: Connection) -> None:
        exchange = self._next()
        if exchange is None:
            self._idle[connection] = None
        else:
            connection.send(exchange)

    def closed(self, connection: Connection, unanswered: Exchange | None) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)
        if unanswered is not None:
            self._waiting.appendleft(unanswered)
        self._open_more()

    def _next(self) -> Exchange | None:
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.over:
                return exchange
        return None

    def _open_more(self) -> None:
        wanted = min(len(self._waiting), self._max - len(self._all)) - self._opening
        for _ in range(0 if self._closing else wanted):
            self._opening += 1
            self._group.create_task(self._open())

    async def _open(self) -> None:
        try:
            connection = await self._connect()
        except OSError as error:  # TimeoutError and ssl.SSLError are OSErrors
            self._give_up(error)
            return
        finally:
            self._opening -= 1
        if not connection.usable():
            self._give_up(ConnectionResetError("the target closed the connection at once"))
            return
        self._opened += 1
        self._all.add(connection)
        if self._closing:
            connection.abort()
        else:
            self.idle(connection)

    async def _connect(self) -> Connection:
        """The first of the host's addresses that answers."""
        last: OSError = ConnectionRefusedError("the host has no address")
        address, context = self._destination.address, self._destination.context
        for host in self._destination.hosts:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    _, connection = await self._loop.create_connection(
                        lambda: Connection(self, self._clock, self._loop),
                        host,
                        address.port,
                        ssl=context,
                        server_hostname=address.host if context else None,
                    )
            except OSError as error:
                last = error
            else:
                return connection
        raise last

    def _give_up(self, error: OSError) -> None:
        exchange = self._next()
        if exchange is not None:
            exchange.facts.message = str(error.strerror or error) or type(error).__name__
            exchange.settle(CONNECT_FAILED, self._clock.now())
        self._open_more()
