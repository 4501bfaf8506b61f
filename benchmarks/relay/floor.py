"""The least a relay can cost: bytes from one socket to the other, unread, on the same loop.

Run: python benchmarks/relay/floor.py --port 8400 --engine 8500.
"""

from __future__ import annotations

import argparse
import asyncio

import uvloop


class Side(asyncio.Protocol):
    """Writes what it receives to its ``other`` side."""

    def __init__(self, other: Side | None = None) -> None:
        self.other = other
        self.waiting: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Write what has come meanwhile."""
        self.transport = transport
        transport.write(b"".join(self.waiting))

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        assert self.other is not None
        if self.other.transport is None:
            self.other.waiting.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        """Close the other side, too."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", type=int, required=True)
    options = parser.parse_args()
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[object]] = set()

    def client() -> Side:
        near = Side()
        near.other = far = Side(near)
        task = loop.create_task(loop.create_connection(lambda: far, "127.0.0.1", options.engine))
        opening.add(task)
        task.add_done_callback(opening.discard)
        return near

    server = await loop.create_server(client, "127.0.0.1", options.port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
