"""A real HTTP server on a free loopback port, which the fakes of remote services stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web


class LoopbackServer:
    """Serves POST ``path`` by ``answer``; async context manager.

    ``base_url`` ends in ``/v1``. ``gate`` is for answers to wait at; it opens at the end. A client
    that leaves cancels its answer.
    """

    def __init__(
        self, path: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.base_url = ""
        self._path = path
        self._handler = answer
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(self._path, self._handler)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        if self._runner is not None:
            await self._runner.cleanup()
