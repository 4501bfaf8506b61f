"""Runs simulated replicas on uvicorn: a port each, one shared if wanted, until a signal.

The first SIGTERM or SIGINT closes the ports and lets answers end within ``drain_s``; the second
ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import signal
import socket
from collections.abc import Callable, Iterator

import msgspec
import uvicorn
import uvloop

from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.errors import ConfigError
from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.serving.answers import AnswerMaker, Lengths
from forebay.lab.sim.serving.app import AppOptions, SimulationApp
from forebay.lab.sim.serving.commands import FaultCommands, Ports
from forebay.lab.sim.serving.connection import SimulatedConnection
from forebay.lab.sim.serving.faults import Command, parse_fault
from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.replica import Coalescing, Replica, ReplicaOptions
from forebay.lab.sim.steps import StepModel

log = logging.getLogger("forebay.simulate")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BACKLOG = 4096
_KEEP_ALIVE_S = 75


class Simulated(msgspec.Struct, frozen=True):
    """What the options come to; ``ConfigError`` for whatever contradicts."""

    options: SimulatedServer
    config: EngineConfig
    steps: StepModel
    commands: tuple[Command, ...]
    profile: str
    """Full name of the profile."""

    @classmethod
    def of(cls, options: SimulatedServer) -> Simulated:
        """Look the profile up and read the faults."""
        profile = find_profile(options.profile)
        commands = tuple(parse_fault(text) for text in options.faults)
        for command in commands:
            if command.replica is not None and command.replica >= options.replicas:
                raise ConfigError(
                    f"there is no replica {command.replica} for a fault; there are "
                    f"{options.replicas}, from 0 on."
                )
        config = profile.engine_config(**options.engine_changes())
        return cls(options, config, profile.step_model(), commands, profile.name)


class Addresses(msgspec.Struct, frozen=True):
    """Where the replicas listen, as URLs; ``shared`` spreads requests over them."""

    replicas: tuple[str, ...]
    shared: str | None
    profile: str


def serve_simulated(
    options: SimulatedServer, started: Callable[[Addresses], None] = lambda _: None
) -> int:
    """Serve until a signal; 0 when the answers under way could end.

    ``started`` is called once the ports are open. Raises ``ConfigError`` for an unknown profile, a
    fault that does not exist, settings that contradict and a port that is taken.
    """
    simulated = Simulated.of(options)
    server = SimulationServer(simulated)
    return uvloop.run(server.serve(started))


class SimulationServer:
    """One process's replicas; the ports are bound when it is made, answered in ``serve``."""

    def __init__(self, simulated: Simulated) -> None:
        options = simulated.options
        self._simulated = simulated
        with contextlib.ExitStack() as stack:
            own = _bind_all(options, stack)
            shared = None
            if options.shared_port is not None:
                shared = stack.enter_context(_bind(options.host, options.shared_port))
            stack.pop_all()
        self._sockets = [*own, *([] if shared is None else [shared])]
        ports = [bound.getsockname()[1] for bound in own]
        self.ports = Ports(ports, None if shared is None else shared.getsockname()[1])
        self.replicas: tuple[Replica, ...] = ()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def addresses(self) -> Addresses:
        """Where it listens."""
        host, shared = self._simulated.options.host, self.ports.shared
        return Addresses(
            tuple(_url(host, port) for port in self.ports.own),
            None if shared is None else _url(host, shared),
            self._simulated.profile,
        )

    async def serve(
        self,
        started: Callable[[Addresses], None] = lambda _: None,
        *,
        handle_signals: bool = True,
    ) -> int:
        """Serve until ``request_stop`` or a signal; 1 when answers had to be cut."""
        self._loop = asyncio.get_running_loop()
        self.replicas = self._make_replicas()
        server = self._make_server()
        with self._signals(handle_signals):
            try:
                async with asyncio.TaskGroup() as group:
                    watchers = [
                        group.create_task(self._watch_refusal(server, number))
                        for number in range(len(self.replicas))
                    ]
                    watchers.append(group.create_task(self._drain(server)))
                    watchers.append(group.create_task(self._announce(server, started)))
                    try:
                        await server.serve(sockets=self._sockets)
                    finally:
                        for watcher in watchers:
                            watcher.cancel()
            finally:
                for replica in self.replicas:
                    replica.close()
        return 1 if server.cut else 0

    def request_stop(self) -> None:
        """Begin to stop; may be called from any thread, any number of times."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        else:
            self._stop.set()

    def _make_replicas(self) -> tuple[Replica, ...]:
        simulated, options = self._simulated, self._simulated.options
        clock = SystemClock()
        made = tuple(
            Replica(
                ReplicaOptions(
                    index=number,
                    config=simulated.config,
                    model=options.model,
                    speed=options.speed,
                    coalescing=Coalescing(options.tokens_per_write, options.write_every_ms / 1e3),
                    max_waiting=options.max_waiting,
                    seed=options.seed,
                ),
                simulated.steps,
                clock,
            )
            for number in range(options.replicas)
        )
        commands = FaultCommands(made, self.ports)
        for command in simulated.commands:
            commands.start(command, None)
        return made

    def _make_server(self) -> _Uvicorn:
        options = self._simulated.options
        lengths = Lengths(
            options.output == "draw", options.output_median_tokens, options.output_sigma
        )
        app = SimulationApp(
            self.replicas,
            self.ports,
            AnswerMaker(lengths, options.seed),
            AppOptions(
                model=options.model,
                honour_stop=options.honour_stop,
                quoting=options.text == "quoted",
                max_body_bytes=options.max_body_bytes,
                id_prefix=secrets.token_hex(6),
            ),
            WallClock(),
        )
        protocol = type(
            "ConfiguredConnection", (SimulatedConnection,), {"resets": staticmethod(self._resets)}
        )
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=options.max_connections,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(options.drain_s),
        )
        return _Uvicorn(config, protocol)

    def _resets(self, port: int) -> bool:
        own = self.ports.index(port)
        if own is None or own >= len(self.replicas):
            return False
        refuse = self.replicas[own].faults.refusing
        return refuse is not None and refuse.how == "reset"

    async def _announce(self, server: _Uvicorn, started: Callable[[Addresses], None]) -> None:
        await server.listening.wait()
        started(self.addresses)

    async def _watch_refusal(self, server: _Uvicorn, number: int) -> None:
        """Close a replica's port while it refuses, open it again when it no longer does."""
        port = self.ports.own[number]
        await server.listening.wait()
        while True:
            refuse = await self.replicas[number].refusal_changed()
            if refuse is None:
                await self._reopen(server, number)
                continue
            if refuse.how == "close":
                server.close_listener(number)
            else:
                await self._reopen(server, number)
            server.end_idle(port)

    async def _reopen(self, server: _Uvicorn, number: int) -> None:
        if server.has_listener(number):
            return
        host, port = self._simulated.options.host, self.ports.own[number]
        try:
            await server.open_listener(number, _bind(host, port))
        except ConfigError as error:
            # Another process took the port meanwhile: the replica stays out of reach.
            log.error("%s", error.message)

    async def _drain(self, server: _Uvicorn) -> None:
        await self._stop.wait()
        for replica in self.replicas:
            # What hangs on command would only use up the time that others need to end.
            replica.clear_faults("stall")
        server.should_exit = True

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


class _Uvicorn(uvicorn.Server):
    """uvicorn with listeners that come and go."""

    def __init__(self, config: uvicorn.Config, protocol: type[SimulatedConnection]) -> None:
        super().__init__(config)
        self._protocol = protocol
        self.listening = asyncio.Event()
        self.cut = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are this project's own business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the ports and say so."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the ports, wait for the answers under way, end the rest."""
        await super().shutdown(sockets)
        self.cut = bool(self.server_state.tasks)

    def has_listener(self, number: int) -> bool:
        """Whether a port is open."""
        return self.servers[number].is_serving()

    def close_listener(self, number: int) -> None:
        """Close a port; open connections go on."""
        self.servers[number].close()

    async def open_listener(self, number: int, bound: socket.socket) -> None:
        """Open a port again."""

        def connection() -> SimulatedConnection:
            return self._protocol(self.config, self.server_state, {})

        self.servers[number] = await asyncio.get_running_loop().create_server(
            connection, sock=bound, backlog=self.config.backlog
        )

    def end_idle(self, port: int) -> None:
        """Close a port's connections, each after the answer it is writing."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, SimulatedConnection) and connection.port == port:
                connection.shutdown()


def _bind_all(options: SimulatedServer, stack: contextlib.ExitStack) -> list[socket.socket]:
    """One socket a replica, on neighbouring ports where the first is given."""
    ports = [options.port + number if options.port else 0 for number in range(options.replicas)]
    return [stack.enter_context(_bind(options.host, port)) for port in ports]


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host {host} cannot be used: {error.strerror}.", param="host") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Two processes may bind one port, only one may listen: find out now.
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used: {error.strerror}; choose another with --port.",
            param="port",
        ) from error
    return bound


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
