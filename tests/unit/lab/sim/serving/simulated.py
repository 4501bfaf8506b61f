"""A simulated server inside the test's own loop, and requests to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Simulated, SimulationServer


class Client:
    """Asks one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data) as response:
            return response.status, json.loads(await response.read())

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of an answer."""
        async with self.session.get(self.url + path) as response:
            return response.status, await response.read()

    async def chat(self, text: str = "how are you", **fields: Any) -> tuple[int, Any]:
        """One answer in one piece."""
        return await self.post("/v1/chat/completions", chat_body(text, **fields))

    async def stream(self, text: str = "how are you", **fields: Any) -> list[Any]:
        """The events of a streamed answer; the last one is the string [DONE]."""
        body = json.dumps(chat_body(text, stream=True, **fields)).encode()
        async with self.session.post(self.url + "/v1/chat/completions", data=body) as response:
            assert response.status == 200, await response.read()
            text = (await response.read()).decode()
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    async def figures(self) -> dict[str, float]:
        """Samples of /metrics by name and labels but those of the engine."""
        found: dict[str, float] = {}
        for line in (await self.get("/metrics"))[1].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name.replace(',model_name="sim"', "")] = float(value)
        return found


class Running:
    """A server that runs, and a client for each of its replicas."""

    def __init__(self, server: SimulationServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        addresses = server.addresses
        self.clients = [Client(session, url) for url in addresses.replicas]
        self.shared = Client(session, addresses.shared) if addresses.shared else None

    @property
    def client(self) -> Client:
        """A client of the first replica."""
        return self.clients[0]


@asynccontextmanager
async def simulated(**options: Any) -> AsyncIterator[Running]:
    """Serve on free ports until the block ends; ten times as fast as the hardware."""
    values = {"port": 0, "speed": 10.0, "drain_s": 1.0, **options}
    server = SimulationServer(Simulated.of(SimulatedServer(**values)))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
        serving = server.serve(lambda _: ready.set(), handle_signals=False)
        group.create_task(serving)
        await ready.wait()
        try:
            yield Running(server, session)
        finally:
            server.request_stop()


def chat_body(text: str, **fields: Any) -> dict[str, Any]:
    """A request for a chat completion."""
    return {"model": "sim", "messages": [{"role": "user", "content": text}], **fields}


def text_of(events: list[Any]) -> str:
    """What the events of a stream say."""
    return "".join(
        choice["delta"].get("content", "")
        for event in events
        if event != "[DONE]"
        for choice in event["choices"]
    )


def leaves(events: list[Any]) -> int:
    """How many of the events carry text."""
    return sum(
        1
        for event in events
        if event != "[DONE]"
        for choice in event["choices"]
        if choice["delta"].get("content")
    )
