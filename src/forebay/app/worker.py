"""A reader process of ``forebay serve --workers``: ``python -m forebay.app.worker FD``.

Settings come as one JSON line on standard input; the end of that stream means the parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys

import msgspec

from forebay.app.composition import Service, open_service, run_loop
from forebay.app.figures import FiguresOfWorker
from forebay.app.latency import load_tables, settle_memory
from forebay.app.runtime import open_process, store_folder
from forebay.app.settings import Settings
from forebay.app.workers import ASK_FIGURES, FORGET, VERSIONS
from forebay.gateway.identity import build_table
from forebay.gateway.parts import Readiness
from forebay.gateway.server import Server
from forebay.kernel.errors import ForebayError
from forebay.telemetry.logs import configure_logging

log = logging.getLogger("forebay.worker")
MAX_SETTINGS_BYTES = 16 * 1024 * 1024


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with open_process(settings, write=False, serve=True) as process:

        def readiness(service: Service) -> Readiness:
            reading, opened = process.reading, process.reading.indexes.names()
            missing = [f"opening {kb}" for kb in settings.knowledge if kb not in opened]
            lacks = {kb: reading.versions.lack(kb) for kb in settings.knowledge}
            missing += [f"indexing {kb}" for kb in lacks if lacks[kb] == "indexing"]
            failed = [f"{kb} was not indexed" for kb in lacks if lacks[kb] == "not_indexed"]
            degraded = (*failed, *service.shortcomings())
            return Readiness(not missing, tuple(missing), degraded, reading.embedded_share())

        figures = FiguresOfWorker(store_folder(settings), process.reading.clock)
        async with open_service(process, readiness, figures.over) as service:
            server = Server(service.app, [listener])
            load_tables()
            settle_memory()
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_follow_parent(server, service, figures))
                await server.serve()
                watch.cancel()


async def _follow_parent(server: Server, service: Service, figures: FiguresOfWorker) -> None:
    """Take reloads and questions for figures from standard input.

    Stop when it ends, however the parent ended.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_SETTINGS_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line == ASK_FIGURES:
            await figures.show()
            continue
        if line == VERSIONS:
            service.answerer.process.reading.versions.poke()
            continue
        if line.startswith(FORGET):
            service.answerer.tiers.purge(line.removeprefix(FORGET).strip().decode())
            continue
        try:
            settings = msgspec.json.decode(line, type=Settings)
            service.app.identity.replace(build_table(settings.tenants))
            service.answerer.reload(settings)
        except (msgspec.MsgspecError, ForebayError) as error:
            log.error("nothing was reloaded: %s", error)
    log.info("the parent process drains or is gone")
    server.request_stop()


def _first_line() -> bytes:
    """Standard input up to its first newline, and not a byte more: the loop reads the rest."""
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            break
        data += piece
    return bytes(data)


def main() -> None:
    """Serve on the inherited socket until told to stop."""
    # A terminal sends SIGHUP to the whole group; reloads come from the parent.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = socket.socket(fileno=int(sys.argv[1]))
    settings = msgspec.json.decode(_first_line(), type=Settings)
    configure_logging(settings.telemetry)
    run_loop(_serve(settings, listener))


if __name__ == "__main__":
    main()
