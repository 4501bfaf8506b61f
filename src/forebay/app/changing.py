"""Commands that change a store: done here, or handed to the server that holds the folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.operations import check_kb, load, run
from forebay.app.output import Output
from forebay.app.remote import RemoteWriting, handlers
from forebay.app.runtime import open_process, store_folder
from forebay.app.settings import Settings
from forebay.app.watching import FolderWatch, watching
from forebay.app.writing import Writing
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.errors import InvalidRequest, StoreBusy
from forebay.pipeline.folders import FileEvent, FolderRequest, IngestSummary
from forebay.store.remote import WriterServer

log = logging.getLogger("forebay.changing")
CALL_S = 24 * 3600.0
BUSY_S = 600.0
BUSY_POLL_S = 0.2
QUIET = ("unchanged",)


class IngestOptions(msgspec.Struct, frozen=True):
    """What ``forebay ingest`` was asked for."""

    paths: tuple[str, ...]
    kb: str | None = None
    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    remove_vanished: bool = True
    moved: bool = False
    wait_embedded: bool = False
    watch: bool = False


@asynccontextmanager
async def open_changes(settings: Settings) -> AsyncIterator[Writing | RemoteWriting]:
    """The writing half of the store: this process's own, or the running server's."""
    async with AsyncExitStack() as stack:
        yield await _writing_half(settings, stack)


async def _writing_half(settings: Settings, stack: AsyncExitStack) -> Writing | RemoteWriting:
    """Take the lock, or call who holds it; a command that answers no calls is waited for."""
    clock = SystemClock()
    remote = RemoteWriting(store_folder(settings), clock, CALL_S)
    deadline = Deadline.after(BUSY_S, clock)
    told = False
    while True:
        try:
            process = await stack.enter_async_context(open_process(settings, write=True))
        except StoreBusy:
            if await remote.answers():
                return remote
            if deadline.remaining() <= 0:
                raise
        else:
            assert process.writing is not None
            return process.writing
        if not told:
            log.warning("another command is writing to this store; waiting for its end")
            told = True
        await asyncio.sleep(BUSY_POLL_S)


def kb_of_path(settings: Settings, asked: str | None, path: str) -> str:
    """The kb a path belongs to: the one named, the one configured with it, the folder's name."""
    if asked is not None:
        return asked
    resolved = Path(path).resolve()
    for name, knowledge in settings.knowledge.items():
        if any(Path(each).resolve() == resolved for each in knowledge.paths):
            return name
    stem = resolved.stem if resolved.is_file() else resolved.name
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem)
    name = name.strip("-._")
    if not name:
        raise InvalidRequest(f"name the knowledge base for {path} with --kb.")
    return name


def requests_of(settings: Settings, options: IngestOptions) -> list[FolderRequest]:
    """One request per path; what the configuration says of a kb applies unless flags say more."""
    requests = []
    for path in options.paths:
        kb = kb_of_path(settings, options.kb, path)
        known = settings.knowledge.get(kb)
        requests.append(
            FolderRequest(
                kb=kb,
                path=str(Path(path).resolve()),
                tags=options.tags or (known.tags if known else ()),
                groups=options.groups or (known.groups if known else ()),
                remove_vanished=options.remove_vanished,
                adopt=options.moved,
            )
        )
    return requests


class _Report:
    """Prints how files end, and counts."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.failed = 0
        self.events: list[FileEvent] = []

    def event(self, event: FileEvent) -> None:
        self.failed += event.outcome == "failed"
        self.events.append(event)
        if event.outcome not in QUIET:
            reason = f" ({event.reason})" if event.reason else ""
            self._output.line(f"{event.outcome:9} {event.document_id}{reason}")

    async def emit(self, event: FileEvent) -> None:
        self.event(event)

    def summary(self, summary: IngestSummary) -> None:
        if self._output.as_json:
            self._output.result({"summary": summary, "files": self.events})
        else:
            counts = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
            self._output.line(
                f"{summary.kb}: version {summary.version}, {counts or 'no files'} "
                f"in {summary.seconds:.1f} s"
            )
        self.events = []


def ingest(
    config: Path | None, flags: dict[str, Any], options: IngestOptions, output: Output
) -> int:
    """Bring paths in; exit 1 when a file failed for a reason that is not its own."""
    settings = load(config, flags)
    requests = requests_of(settings, options)
    for request in requests:
        if not Path(request.path).exists():
            raise InvalidRequest(f"there is no file or folder {request.path}.")

    async def work() -> int:
        report = _Report(output)
        async with open_changes(settings) as changes, AsyncExitStack() as stack:
            watch: FolderWatch | None = None
            if options.watch:
                await stack.enter_async_context(_answering(settings, changes))
                roots = [request.path for request in requests]
                watch = await stack.enter_async_context(watching(roots))
            for request in requests:
                report.summary(await _ingest(changes, request, report))
            if options.wait_embedded:
                for kb in dict.fromkeys(request.kb for request in requests):
                    count = await changes.wait_embedded(kb)
                    output.note(f"{kb}: {count} chunks embedded")
            if watch is not None:
                await _follow(changes, watch, requests, report)
        return 1 if report.failed else 0

    return run(work())


@asynccontextmanager
async def _answering(settings: Settings, changes: Writing | RemoteWriting) -> AsyncIterator[None]:
    """While this process holds the lock for long, other commands hand their work to it."""
    if isinstance(changes, RemoteWriting):
        yield
        return
    server = WriterServer(store_folder(settings), handlers(changes, SystemClock()))
    await server.start()
    try:
        yield
    finally:
        await server.close()


async def _ingest(
    changes: Writing | RemoteWriting, request: FolderRequest, report: _Report
) -> IngestSummary:
    if isinstance(changes, Writing):
        return await changes.ingest(request, report.emit)
    return await changes.ingest(request, report.event)


async def _follow(
    changes: Writing | RemoteWriting,
    watch: FolderWatch,
    requests: list[FolderRequest],
    report: _Report,
) -> None:
    """Ingest a folder again whenever something in it changed; ends with the process."""
    roots = {request.path: request for request in requests}
    while True:
        for root in await watch.changed():
            report.summary(await _ingest(changes, roots[root], report))


def kb_drop(config: Path | None, flags: dict[str, Any], name: str, output: Output) -> int:
    """Remove a kb and everything in it."""
    settings = load(config, flags)
    check_kb(settings, name)

    async def work() -> int:
        async with open_changes(settings) as changes:
            await changes.drop(name)
        if output.as_json:
            output.result({"dropped": name})
        output.line(f"{name} was removed.")
        return 0

    return run(work())


def kb_import(
    config: Path | None, flags: dict[str, Any], words: tuple[Path, str | None], output: Output
) -> int:
    """Restore a kb from an export."""
    settings = load(config, flags)
    file, name = words
    if not file.is_file():
        raise InvalidRequest(f"there is no file {file}.")

    async def work() -> int:
        async with open_changes(settings) as changes:
            info = await changes.restore(file.resolve(), name)
        if output.as_json:
            output.result(info)
        output.line(f"{info.name}: {info.documents} documents, version {info.version}.")
        return 0

    return run(work())


def kb_reembed(config: Path | None, flags: dict[str, Any], name: str, output: Output) -> int:
    """Replace a kb's vectors; waits for the end."""
    settings = load(config, flags)
    check_kb(settings, name)

    async def work() -> int:
        async with open_changes(settings) as changes:
            info = await changes.reembed(name)
            output.note(f"{name}: {info.chunks} chunks to embed")
            count = await changes.wait_embedded(name)
        if output.as_json:
            output.result({"kb": name, "embedded_chunks": count})
        output.line(f"{name}: {count} chunks embedded.")
        return 0

    return run(work())
