"""A whole gateway in the test's own loop: every part of a server, on a loopback port.

So a test can hold one stage back, look at what is held inside, and cut clients at a chosen moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from forebay.app.composition import Service, open_service
from forebay.app.runtime import open_process
from forebay.app.settings import load_settings
from forebay.gateway.parts import Readiness
from forebay.gateway.server import Server
from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Simulated, SimulationServer
from forebay.pipeline.folders import FolderRequest
from forebay.policy.admission import Claimant
from forebay.telemetry.metrics import Metrics
from tests.integration.support import LEXICAL
from tests.stopwatch import Stopwatch

QUESTION = "How long is the spillway?"
HELD = (
    "in_flight", "in_flight_cost", "queue_waiting", "queue_cost", "connections",
    "answers_at_work", "answers_waiting",
)  # fmt: skip
ANYBODY = Claimant(tenant="default", ip="127.0.0.1")
TEXT = "# Dam\n\nThe spillway is 120 metres long.\n"


class Gateway:
    """A running gateway and what is inside it."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port
        self.admission = service.answerer.admission
        self.desk = self.admission.desk

    def level(self, dimension: str = "tenant", who: Claimant = ANYBODY) -> float:
        """Tokens left in the bucket of a dimension."""
        claims = self.desk._book.claims(who, 0.0)
        claim = next(one for one in claims if one.dimension == dimension)
        left = self.desk.ledger.remaining([claim], self.desk.clock.now())
        assert left is not None
        return left[1]

    def held(self) -> dict[str, float]:
        """Whatever a request that is over must not hold any more, where it is not zero."""
        found = {"requests": float(self.service.app.in_flight)}
        for pool, figures in self.service.answerer.statistics().items():
            for name in HELD:
                found[f"{pool}.{name}"] = figures.get(name, 0.0)
        found["in_work"] = float(sum(self.desk._in_work.values()))
        found["waiters"] = float(len(self.admission._waiters))
        return {name: value for name, value in found.items() if value}

    async def nothing_held(self, within_s: float = 0.2) -> None:
        """Wait until nothing is held any more."""
        await until(lambda: not self.held(), within_s, self.held)

    async def figures(self) -> dict[str, float]:
        """Samples of /metrics by name and labels."""
        async with Cutting(self.port, {}, "/metrics", "GET") as client:
            lines = (await client.answer()).body.decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    async def ask(self, **more: Any) -> Answer:
        """One chat completion, read to its end."""
        async with Cutting(self.port, more) as client:
            return await client.answer()


class Answer:
    """A status, the headers and the body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Cutting:
    """A client that asks once and can leave at any moment by closing its connection."""

    def __init__(
        self,
        port: int,
        more: dict[str, Any],
        path: str = "/v1/chat/completions",
        method: str = "POST",
    ) -> None:
        messages = [{"role": "user", "content": QUESTION}]
        headers = more.pop("headers", {})
        if path == "/v1/chat/completions":
            more = {"model": "forebay/kb", "messages": messages, "max_tokens": 20, **more}
        data = json.dumps(more).encode() if method == "POST" else b""
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        lines += [f"content-length: {len(data)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._request = "\r\n".join(lines).encode() + b"\r\n\r\n" + data
        self._port = port

    async def __aenter__(self) -> Self:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(self._request)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the connection, whatever is still to come."""
        self._writer.transport.abort()

    async def read_until(self, text: bytes) -> None:
        """Read until ``text`` has come."""
        async with asyncio.timeout(30):
            await self.reader.readuntil(text)

    async def answer(self) -> Answer:
        """Read everything."""
        async with asyncio.timeout(30):
            data = await self.reader.read()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if headers.get("transfer-encoding") == "chunked":
            body = _unchunked(body)
        return Answer(int(first.split()[1]), headers, body)


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return found


async def until(
    reached: Callable[[], Any], within_s: float = 10.0, why: Callable[[], object] | None = None
) -> None:
    """Let the loop go on until ``reached`` is true; the seconds are those of a stopwatch."""
    watch = Stopwatch()
    while not reached():
        assert watch.now() <= within_s, why() if why is not None else f"not within {within_s:g} s"
        await asyncio.sleep(0.002)


def engine_config(*urls: str, **pool: object) -> str:
    """One pool in front of ``urls``; ``pool`` are more of its settings."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in pool.items()]
    return "\n".join(
        (
            '[generation]\nbackend = "openai"',
            "[[generation.pools]]",
            f'name = "pool"\nmodel = "sim"\nbase_urls = {json.dumps(list(urls))}',
            *lines,
            "",
        )
    )


@asynccontextmanager
async def gateway(folder: Path, config: str, embedding: str = LEXICAL) -> AsyncIterator[Gateway]:
    """Serve one document, and what else is in ``folder/docs``, as ``forebay/kb``."""
    documents = folder / "docs"
    documents.mkdir(parents=True, exist_ok=True)
    (documents / "dam.md").write_text(TEXT, encoding="utf-8")
    file = folder / "forebay.toml"
    file.write_text(embedding + config, encoding="utf-8")
    flags = {"store.path": str(folder / "store"), "server.port": "0"}
    settings, _ = load_settings(file, flags, {})
    async with open_process(settings, write=True) as process:
        writing = process.writing
        assert writing is not None
        await writing.ensure("kb")
        await writing.ingest(FolderRequest("kb", str(documents)), _nothing)
        async with open_service(process, lambda _: Readiness(True), _own_figures) as service:
            await service.warmed()
            async with _serving(service) as port:
                yield Gateway(service, port)


@asynccontextmanager
async def _serving(service: Service) -> AsyncIterator[int]:
    server = Server(service.app)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(handle_signals=False))
        await until(lambda: server.started)
        try:
            yield int(server.addresses[0].rsplit(":", 1)[1])
        finally:
            server.request_stop()


def _own_figures(metrics: Metrics) -> Any:
    async def page() -> bytes:
        return metrics.render()

    return page


async def _nothing(_event: object) -> None:
    pass


@asynccontextmanager
async def simulated(**options: object) -> AsyncIterator[SimulationServer]:
    """Simulated engines in this loop, with a vLLM's pace and figures."""
    values = {"port": 0, "drain_s": 1.0, "profile": "h100/8b", **options}
    server = SimulationServer(Simulated.of(SimulatedServer(**values)))  # type: ignore[arg-type]
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(lambda _: ready.set(), handle_signals=False))
        await ready.wait()
        try:
            yield server
        finally:
            server.request_stop()
