"""Runs the application on uvicorn, with this project's own way of stopping.

uvicorn cuts streams at its time-out without a word, so its signal handling is replaced: first
signal: stop accepting, refuse what is new, let what runs finish within ``drain_s``, end the
rest with an error event, exit. Second signal: the system's default, the process ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn

from forebay.gateway.app import GatewayApp
from forebay.gateway.errors import ShuttingDown
from forebay.gateway.identity import check_binding
from forebay.gateway.lag import watch_lag
from forebay.gateway.listening import Listener
from forebay.gateway.protocol import bounded_protocol
from forebay.kernel.errors import ConfigError

log = logging.getLogger("forebay.server")
_LAST_EVENTS_S = 2
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Server:
    """One process's HTTP server.

    ``sockets`` are bound, listening or not, and may be shared with other processes; without
    them ``server.host`` and ``server.port`` are bound here. Raises ``ConfigError`` when the
    address is reachable from other machines and nobody needs a key, or cannot be bound.
    ``draining`` is called when it begins to drain.
    """

    def __init__(self, app: GatewayApp, sockets: Sequence[socket.socket] = ()) -> None:
        settings = app.parts.settings
        self._app = app
        self._drain_s = settings.drain_s
        if sockets:
            for bound in sockets:
                if bound.family in (socket.AF_INET, socket.AF_INET6):
                    check_binding(bound.getsockname()[0], app.identity.table)
            self._sockets = list(sockets)
        else:
            check_binding(settings.host, app.identity.table)
            self._sockets = [bind(settings.host, settings.port)]
        limits = settings.connections
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=bounded_protocol(limits),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=limits.backlog,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=_LAST_EVENTS_S,
            )
        )
        self.draining: Callable[[], None] = _nobody
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the server listens, as URLs."""
        return tuple(_url(bound) for bound in self._sockets if bound.fileno() >= 0)

    @property
    def started(self) -> bool:
        """Whether connections are accepted."""
        return self._uvicorn.started

    async def serve(self, *, handle_signals: bool = True) -> None:
        """Serve until ``request_stop`` or a signal, then drain and return."""
        self._loop = asyncio.get_running_loop()
        with self._signals(handle_signals):
            async with asyncio.TaskGroup() as group:
                metrics, clock = self._app.parts.metrics, self._app.parts.clock
                lag = group.create_task(watch_lag(clock, metrics.loop_lag))
                stopping = group.create_task(self._drain())
                try:
                    await self._uvicorn.serve(sockets=self._sockets)
                finally:
                    lag.cancel()
                    stopping.cancel()

    def request_stop(self) -> None:
        """Begin to drain; may be called from any thread, any number of times."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        else:
            self._stop.set()

    async def _drain(self) -> None:
        await self._stop.wait()
        log.info("draining: up to %g s for %d requests", self._drain_s, self._app.in_flight)
        self._app.begin_drain()
        self.draining()
        self._uvicorn.stop_accepting()
        if not await self._app.wait_idle(self._drain_s):
            log.warning("ending %d requests that did not finish", self._app.in_flight)
            self._app.interrupt_all(
                ShuttingDown("the server is shutting down; ask again.", retry_after_s=1.0)
            )
            await self._app.wait_idle(_LAST_EVENTS_S)
        self._uvicorn.should_exit = True

    @contextlib.contextmanager
    def _signals(self, handle: bool) -> Iterator[None]:
        if not handle:
            yield
            return
        assert self._loop is not None
        for name in _SIGNALS:
            self._loop.add_signal_handler(name, self._on_signal)
        try:
            yield
        finally:
            for name in _SIGNALS:
                self._loop.remove_signal_handler(name)

    def _on_signal(self) -> None:
        assert self._loop is not None
        self._stop.set()
        for name in _SIGNALS:
            # Whoever signals twice does not want to wait for anything.
            self._loop.remove_signal_handler(name)
            signal.signal(name, signal.SIG_DFL)


def _nobody() -> None:
    """Nobody has to drain, too."""


class _Uvicorn(uvicorn.Server):
    listeners: Sequence[Listener] = ()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are this project's own business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's own, but for who takes connections in."""
        await super().startup(sockets=[])
        config = self.config

        def make() -> asyncio.Protocol:
            protocol: Callable[..., asyncio.Protocol] = config.http_protocol_class
            return protocol(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.listeners = [Listener(bound, make, config.backlog) for bound in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's own."""
        self.stop_accepting()
        await super().shutdown(sockets=sockets)

    def stop_accepting(self) -> None:
        """Close the listeners; open connections go on."""
        for listener in self.listeners:
            listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening address, ready to be shared; ``ConfigError`` says why it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"server.host {host} cannot be bound: {error.strerror}.", param="server.host"
        ) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"port {port} on {host} cannot be bound: {error.strerror}; "
            "choose another with --port or server.port.",
            param="server.port",
        ) from error
    return bound


def _url(bound: socket.socket) -> str:
    if bound.family not in (socket.AF_INET, socket.AF_INET6):
        return f"unix:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
