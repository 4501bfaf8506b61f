"""POST /mcp: loads the MCP library when somebody first asks.

It costs 37 MB and half a second of start-up, in every worker process, and many servers are
never asked.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from forebay.gateway.directory import KbDirectory
from forebay.gateway.exchange import Exchange
from forebay.gateway.parts import GatewayParts
from forebay.kernel.errors import Unavailable

if TYPE_CHECKING:
    from forebay.gateway.mcp import McpTools


class McpRoute:
    """Answers MCP requests while ``running`` is entered."""

    def __init__(self, parts: GatewayParts, directory: KbDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._running = False
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._tools: McpTools | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be ready to load the tools within the block."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve_when_wanted())
            self._running = True
            try:
                yield
            finally:
                self._running = False
                serving.cancel()

    async def __call__(self, x: Exchange) -> None:
        """Answer one request; the first one waits for the library."""
        if not self._running:
            raise Unavailable("MCP is not running in this process.")
        self._wanted.set()
        await self._ready.wait()
        assert self._tools is not None
        await self._tools.http(x)

    async def _serve_when_wanted(self) -> None:
        await self._wanted.wait()
        module = await asyncio.to_thread(importlib.import_module, "forebay.gateway.mcp")
        tools: McpTools = module.McpTools(self._parts, self._directory)
        async with tools.running():
            self._tools = tools
            self._ready.set()
            await asyncio.Event().wait()
