"""A real HTTP server on loopback that answers by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self

from aiohttp import web

Script = Callable[[str, Any], Any]
"""From path and JSON body to a JSON value, a response, or an awaitable of either."""


class Request(NamedTuple):
    method: str
    raw_path: str
    headers: dict[str, str]
    body: Any


class Scripted:
    """Keeps what came in ``requests``; ``most`` is how many were there at a time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Request] = []
        self.most = self._active = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if "json" in request.content_type else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(Request(request.method, request.raw_path, headers, body))
        self._active += 1
        self.most = max(self.most, self._active)
        try:
            await asyncio.sleep(0)
            found = self._script(request.path, body)
            if isinstance(found, Awaitable) and not isinstance(found, web.StreamResponse):
                found = await found
        finally:
            self._active -= 1
        if isinstance(found, web.StreamResponse):
            return found
        return web.json_response(found)
