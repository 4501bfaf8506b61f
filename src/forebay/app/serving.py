"""``forebay serve``: bind, open, index what is configured, serve, drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from forebay import __version__
from forebay.app import sharing
from forebay.app.admitting import check_names
from forebay.app.bounding import among
from forebay.app.cache_calls import CacheCalls
from forebay.app.changing import kb_of_path
from forebay.app.composition import Service, open_service, run_loop
from forebay.app.eventing import Events
from forebay.app.figures import FiguresOfAll
from forebay.app.latency import load_tables, settle_memory
from forebay.app.made_by import changed, made_by
from forebay.app.remote import handlers
from forebay.app.runtime import light_fitting, open_process, store_folder
from forebay.app.settings import KnowledgeSettings, Settings, load_settings
from forebay.app.watching import watching
from forebay.app.workers import WorkerSet
from forebay.app.writing import Writing
from forebay.gateway.identity import build_table
from forebay.gateway.parts import Readiness
from forebay.gateway.server import Server, bind
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, ForebayError, InvalidRequest, Unavailable
from forebay.pipeline.folders import FileEvent, FolderRequest
from forebay.store.announced import READ, READING, UNREAD
from forebay.store.remote import WriterServer
from forebay.telemetry.logs import configure_logging

log = logging.getLogger("forebay.serve")


STOP_GRACE_S = 5.0
AGAIN_S = 5.0
"""A folder that could not be read for want of another service is tried again this often."""


class ServeOptions(msgspec.Struct, frozen=True):
    """What ``forebay serve`` was asked for beside its settings."""

    paths: tuple[str, ...] = ()
    kb: str | None = None
    workers: int = 1
    watch: bool = False


class _Run(msgspec.Struct, frozen=True):
    """One call of ``forebay serve``."""

    settings: Settings
    config: Path | None
    flags: Mapping[str, Any]
    options: ServeOptions


def serve(config: Path | None, flags: Mapping[str, Any], options: ServeOptions) -> int:
    """Serve until a signal ends it; 0 after a clean drain."""
    settings, _ = load_settings(config, flags)
    settings = among(_with_paths(settings, options), options.workers)
    for name, knowledge in settings.knowledge.items():
        for path in knowledge.paths:
            if not Path(path).exists():
                raise InvalidRequest(f"knowledge.{name} names {path}, which does not exist.")
    configure_logging(settings.telemetry)
    _warn_of_window(settings)
    return run_loop(_serve(_Run(settings, config, flags, options)))


def _warn_of_window(settings: Settings) -> None:
    """Say that a pool takes longer prompts than are ever built."""
    context = settings.context
    room = int(context.window_tokens * context.input_share)
    for pool in settings.generation.pools if settings.generation.backend == "openai" else ():
        if pool.max_input_tokens > room:
            log.warning(
                "pool %s takes %d tokens, but prompts are built up to %d (context.window_tokens x "
                "context.input_share); longer texts are answered in parts or refused. Raise "
                "context.window_tokens to what the engines take.",
                pool.name,
                pool.max_input_tokens,
                room,
            )


def _with_paths(settings: Settings, options: ServeOptions) -> Settings:
    """Paths of the command line become knowledge bases beside the configured ones."""
    knowledge = dict(settings.knowledge)
    for path in options.paths:
        name = kb_of_path(settings, options.kb, path)
        known = knowledge.get(name, KnowledgeSettings())
        if path not in known.paths:
            paths = (*known.paths, path)
            knowledge[name] = msgspec.structs.replace(known, paths=paths)
    if options.watch:
        knowledge = {
            name: msgspec.structs.replace(each, watch=True) for name, each in knowledge.items()
        }
    return msgspec.structs.replace(settings, knowledge=knowledge)


class Progress:
    """What start-up still waits for, and what works at less than its best."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {"start": "starting"}
        self.failed: dict[str, str] = {}
        self.again: dict[str, FolderRequest] = {}

    def readiness(self, service: Service) -> Readiness:
        """Ready when every configured folder has been read once and the engines are warm."""
        waiting = (*self.waiting.values(), *service.waiting())
        degraded = [*self.failed.values(), *service.shortcomings()]
        share = service.answerer.process.reading.embedded_share()
        return Readiness(not waiting, waiting, tuple(degraded), share)

    async def tell(self, writing: Writing, kb: str, *, reading: bool) -> None:
        """Let all who answer from ``kb`` know whether its folders are in it."""
        failed = any(key.partition(":")[0] == kb for key in self.failed)
        state = READING if reading else UNREAD if failed else READ
        await writing.tell_reading(kb, state)


async def _serve(run: _Run) -> int:
    settings = run.settings
    build_table(settings.tenants)
    load_tables()
    listener = bind(settings.server.host, settings.server.port)
    progress = Progress()
    async with open_process(settings, write=True) as process, light_fitting(process):
        assert process.writing is not None
        writing = process.writing
        await _open_all(settings, writing, progress)
        figures = FiguresOfAll(settings.telemetry.max_tenants)
        async with open_service(process, progress.readiness, figures.over) as service:
            server = Server(service.app, [listener])
            clock = process.reading.clock
            cache = _cache_calls(service, figures)
            calls = {
                **handlers(writing, clock),
                **sharing.handlers(service.answerer.admission.desk.ledger, clock),
                **figures.handlers(),
                **cache.handlers(),
            }
            folder = store_folder(settings)
            _tell_made_by(service, folder)
            socket_server = WriterServer(folder, calls)
            await socket_server.start()
            try:
                async with asyncio.TaskGroup() as group:
                    beside = [
                        group.create_task(_index(settings, service, progress, server)),
                        group.create_task(_read_again(writing, progress)),
                    ]
                    workers = _workers(run, listener, figures)
                    server.draining = workers.drain
                    loop = asyncio.get_running_loop()
                    writing.told = partial(
                        loop.call_soon_threadsafe, _tell_versions, workers, service.events
                    )
                    cache.told = partial(_tell_to_forget, workers, service.events)
                    beside.append(group.create_task(workers.run()))
                    with _reload_on_hangup(run, service, workers):
                        await server.serve()
                    for task in beside:
                        task.cancel()
            finally:
                await socket_server.close()
    return 0


def _tell_versions(workers: WorkerSet, events: Events) -> None:
    """A version was announced: to the processes of this folder, and to those of other machines."""
    workers.tell_versions()
    events.tell("documents")


def _tell_to_forget(workers: WorkerSet, events: Events, kb: str) -> None:
    workers.forget(kb)
    events.tell("purge", kb)


def _tell_made_by(service: Service, folder: Path) -> None:
    """Others may keep answers made by rules, a template or a model that are no more."""
    now = made_by(service.answerer.tiers)
    for kind in () if now is None else changed(folder, now):
        service.events.tell(kind)


def _cache_calls(service: Service, figures: FiguresOfAll) -> CacheCalls:
    answerer = service.answerer
    reading = answerer.process.reading
    return CacheCalls(answerer.tiers, reading.versions, figures.collect, reading.clock)


def _workers(run: _Run, listener: socket.socket, figures: FiguresOfAll) -> WorkerSet:
    settings = run.settings
    workers = WorkerSet(
        run.options.workers - 1,
        listener,
        msgspec.json.encode(settings),
        settings.server.drain_s + STOP_GRACE_S,
        SystemClock(),
    )
    workers.started, workers.ended = figures.started, figures.ended
    figures.ask = workers.ask_figures
    return workers


async def _index(settings: Settings, service: Service, progress: Progress, server: Server) -> None:
    """Read every configured folder once, then follow those that are watched."""
    writing = service.answerer.process.writing
    assert writing is not None
    requests = await asyncio.to_thread(lambda: list(_requests(settings)))
    watched = {each.path: each for each in requests if settings.knowledge[each.kb].watch}
    async with AsyncExitStack() as stack:
        watch = await stack.enter_async_context(watching(watched)) if watched else None
        for name in settings.knowledge:
            for request in requests:
                if request.kb == name:
                    await _read_folder(writing, request, progress)
            await progress.tell(writing, name, reading=False)
            progress.waiting.pop(name, None)
        await service.warmed()
        settle_memory()
        names = ", ".join(settings.knowledge) or "no knowledge base is configured yet"
        log.info("ready: %s", names)
        address = " ".join(server.addresses)
        print(f"Forebay {__version__} is ready at {address} ({names})", flush=True)
        while watch is not None:
            for root in await watch.changed():
                await _read_folder(writing, watched[root], progress)


async def _read_again(writing: Writing, progress: Progress) -> None:
    """Read folders once more whose reading another service's absence had ended."""
    while True:
        await asyncio.sleep(AGAIN_S)
        for request in tuple(progress.again.values()):
            await _read_folder(writing, request, progress)


async def _open_all(settings: Settings, writing: Writing, progress: Progress) -> None:
    """Every knowledge base exists before anybody can ask, and nobody takes it for whole."""
    for name, knowledge in settings.knowledge.items():
        progress.waiting[name] = f"indexing {name}"
        try:
            await writing.ensure(name)
        except ForebayError as error:
            log.error("%s was not made: %s", name, error.message)
            progress.failed[name] = f"{name} was not made: {error.message}"
        if knowledge.paths:
            await progress.tell(writing, name, reading=True)
    progress.waiting.pop("start", None)


def _requests(settings: Settings) -> Iterator[FolderRequest]:
    for name, knowledge in settings.knowledge.items():
        for path in knowledge.paths:
            absolute = str(Path(path).resolve())
            yield FolderRequest(name, absolute, knowledge.tags, knowledge.groups)


async def _read_folder(writing: Writing, request: FolderRequest, progress: Progress) -> None:
    """Ingest one folder; a failure degrades the service and is told, it does not end it."""

    async def emit(event: FileEvent) -> None:
        if event.outcome in ("skipped", "failed"):
            log.warning("%s %s: %s", event.outcome, event.document_id, event.reason)

    key = f"{request.kb}:{request.path}"
    try:
        await writing.ensure(request.kb)
        summary = await writing.ingest(request, emit)
    except ForebayError as error:
        log.error("%s was not indexed: %s", request.kb, error.message)
        progress.failed[key] = f"{request.kb} was not indexed: {error.message}"
        if isinstance(error, Unavailable):
            progress.again[key] = request
    else:
        progress.failed.pop(request.kb, None)
        progress.failed.pop(key, None)
        progress.again.pop(key, None)
        counts = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
        log.info("%s: version %d, %s", summary.kb, summary.version, counts or "no files")
    await progress.tell(writing, request.kb, reading=request.kb in progress.waiting)


@contextmanager
def _reload_on_hangup(run: _Run, service: Service, workers: WorkerSet) -> Iterator[None]:
    """SIGHUP reads keys, plans and quotas again; a wrong file leaves the old ones in force."""

    def reload() -> None:
        try:
            settings, _ = load_settings(run.config, run.flags)
            check_names(settings)
            service.app.identity.replace(build_table(settings.tenants))
            service.answerer.reload(settings)
            _tell_made_by(service, store_folder(run.settings))
            workers.reload(msgspec.json.encode(settings))
        except ConfigError as error:
            log.error("nothing was reloaded: %s", error.message)
        else:
            log.info("keys and plans were reloaded")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
