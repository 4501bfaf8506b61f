"""A reader process of ``forebay serve --workers``: ``python -m forebay.app.worker FD``.

Settings come as one JSON line on standard input; the end of that stream means the parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import msgspec

from forebay.app.composition import Service, open_service, run_loop
from forebay.app.logs import start_logging
from forebay.app.runtime import open_process
from forebay.app.settings import Settings
from forebay.gateway.parts import Readiness
from forebay.gateway.server import Server

log = logging.getLogger("forebay.worker")


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with open_process(settings, write=False) as process:

        def readiness(_service: Service) -> Readiness:
            missing = set(settings.knowledge) - set(process.reading.indexes.names())
            return Readiness(not missing, tuple(f"opening {name}" for name in sorted(missing)))

        async with open_service(process, readiness) as service:
            server = Server(service.app, [listener])
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_until_orphaned(server))
                await server.serve()
                watch.cancel()


async def _until_orphaned(server: Server) -> None:
    """Stop when standard input ends, however the parent ended."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    log.info("the parent process is gone; draining")
    server.request_stop()


def main() -> None:
    """Serve on the inherited socket until told to stop."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    start_logging(settings.telemetry)
    run_loop(_serve(settings, listener))


if __name__ == "__main__":
    main()
