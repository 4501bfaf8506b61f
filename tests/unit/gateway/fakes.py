"""In-memory stand-ins for the pipeline's two lives, and a server that runs on them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import uvloop

from forebay.gateway.app import GatewayApp
from forebay.gateway.build import build_app
from forebay.gateway.identity import Identity, build_table
from forebay.gateway.parts import GatewayParts
from forebay.gateway.server import Server
from forebay.gateway.settings import ServerSettings, TenantSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import (
    ChunkRow,
    CommitReceipt,
    DocumentInfo,
    Hit,
    KbInfo,
    Outcome,
)
from forebay.kernel.errors import InvalidRequest, NotFound
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    AnswerRequest,
    Citation,
    DocumentPage,
    Upload,
    Usage,
    WaitFor,
)
from forebay.telemetry.metrics import Metrics
from tests.stopwatch import Stopwatch


class FakeKnowledge:
    """Knowledge bases as dictionaries: id to (info, text)."""

    def __init__(self, *kbs: str) -> None:
        self.stored: dict[str, dict[str, tuple[DocumentInfo, str]]] = {kb: {} for kb in kbs}
        self.versions = dict.fromkeys(kbs, 0)
        self.uploads: list[Upload] = []

    def add(self, kb: str, document_id: str, text: str, groups: Sequence[str] = ()) -> None:
        """Store a document."""
        upload = Upload(document_id, text.encode(), document_id, groups=tuple(groups))
        self._store(kb, upload)

    def _store(self, kb: str, upload: Upload) -> Outcome:
        self.stored.setdefault(kb, {})
        self.versions[kb] = self.versions.get(kb, 0) + 1
        existed = upload.document_id in self.stored[kb]
        text = upload.data.decode("utf-8", "replace")
        info = DocumentInfo(
            document_id=upload.document_id,
            source=upload.source or upload.document_id,
            content_hash="0" * 64,
            title=upload.title or upload.document_id,
            media_type=upload.media_type or "text/plain",
            language=upload.language or "",
            tags=upload.tags or (),
            groups=upload.groups or (),
            metadata=dict(upload.metadata),
            warnings=(),
            chunks=1,
            characters=len(text),
            version=self.versions[kb],
            updated_at=0.0,
            embedded=False,
        )
        self.stored[kb][upload.document_id] = (info, text)
        return "replaced" if existed else "indexed"

    async def put(
        self, ctx: RequestContext, kb: str, upload: Upload, *, wait: WaitFor = "committed"
    ) -> CommitReceipt:
        if not upload.data:
            raise InvalidRequest("the document is empty.", code="unsupported_document")
        self.uploads.append(upload)
        outcome = self._store(kb, upload)
        return CommitReceipt(
            kb, self.versions[kb], ((upload.document_id, outcome),), embedded=wait == "embedded"
        )

    async def delete(self, ctx: RequestContext, kb: str, document_id: str) -> CommitReceipt:
        await self.document(ctx, kb, document_id)
        del self.stored[kb][document_id]
        self.versions[kb] += 1
        return CommitReceipt(kb, self.versions[kb], ((document_id, "removed"),))

    async def document(
        self, ctx: RequestContext, kb: str, document_id: str
    ) -> tuple[DocumentInfo, str]:
        found = self.stored.get(kb, {}).get(document_id)
        if found is None or not visible(ctx, found[0].groups):
            raise NotFound(f"there is no document {document_id!r} here.", param="id")
        return found

    async def documents(
        self, ctx: RequestContext, kb: str, *, after: str | None = None, limit: int = 100
    ) -> DocumentPage:
        infos = [info for _, (info, _) in sorted(self.stored[kb].items())]
        rows = [info for info in infos if after is None or info.document_id > after]
        page = tuple(info for info in rows[:limit] if visible(ctx, info.groups))
        return DocumentPage(page, rows[limit - 1].document_id if len(rows) > limit else None)

    async def kbs(self) -> tuple[KbInfo, ...]:
        return tuple([await self.kb(name) for name in sorted(self.stored)])

    async def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        stored = self.stored.get(name)
        if stored is None:
            raise NotFound(f"there is no knowledge base {name!r}.", param="kb")
        documents = {
            document_id: (info, text)
            for document_id, (info, text) in stored.items()
            if groups is None or not info.groups or not groups.isdisjoint(info.groups)
        }
        characters = sum(len(text) for _, text in documents.values())
        return KbInfo(
            name, self.versions[name], len(documents), len(documents), 0, characters, None, 1.7e9
        )


def visible(ctx: RequestContext, groups: Sequence[str]) -> bool:
    mine = ctx.principal.groups
    return mine is None or not groups or not mine.isdisjoint(groups)


class FakeAnswering:
    """Finds documents by shared characters and answers with a scripted list of pieces.

    A piece that is an error is raised, a number is a pause in seconds, ``None`` waits for
    ``released``. ``active`` and ``closed`` count answers that run and that were closed.
    """

    def __init__(self, knowledge: FakeKnowledge, script: Sequence[Any] | None = None) -> None:
        self.knowledge = knowledge
        self.script = script
        self.active = 0
        self.closed = 0
        self.requests: list[AnswerRequest] = []
        self.contexts: list[RequestContext] = []
        self.released = asyncio.Event()

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.contexts.append(ctx)
        if not request.query.strip():
            raise InvalidRequest("the query is empty.", param="query")
        if request.kb not in self.knowledge.stored:
            raise NotFound(f"there is no knowledge base {request.kb!r}.", param="kb")
        with ctx.stage("retrieval"):
            hits = self._hits(ctx, request)
        ctx.rung, ctx.kb_version = "bm25", self.knowledge.versions[request.kb]
        return SearchResult(hits, "bm25", ctx.kb_version)

    def _hits(self, ctx: RequestContext, request: SearchRequest) -> tuple[Hit, ...]:
        hits = []
        for number, (info, text) in enumerate(self.knowledge.stored[request.kb].values()):
            wanted = request.filter.get("tags")
            tags = (wanted,) if isinstance(wanted, str) else wanted
            if not visible(ctx, info.groups) or (tags and not set(tags) & set(info.tags)):
                continue
            row = ChunkRow(
                chunk_id=number + 1, document_id=info.document_id, ordinal=0, start=0,
                end=len(text), text=text, context="", tokens=1, page=None, heading_path=(),
                title=info.title, source=info.source, language="", tags=info.tags,
                groups=info.groups, metadata=info.metadata, version=info.version,
            )  # fmt: skip
            hits.append(Hit(row, 1.0 / (number + 1)))
        return tuple(hits[: request.top_k])

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        self.requests.append(request)
        self.active += 1
        try:
            question = request.messages[-1].content
            found = await self.search(ctx, SearchRequest(request.kb, question, request.top_k))
            count = 0
            with ctx.stage("generation"):
                async for text in self._pieces(found):
                    count += 1
                    yield AnswerDelta(text)
            yield AnswerEnd(
                "stop", _citations(found), Usage(7, count), "fake", found.rung, found.kb_version
            )
        finally:
            self.active -= 1
            self.closed += 1

    async def _pieces(self, found: SearchResult) -> AsyncGenerator[str, None]:
        if self.script is None:
            if not found.hits:
                yield "I do not know."
                return
            for piece in (*found.hits[0].chunk.text.split(" "), "[1]"):
                yield piece + " "
            return
        for step in self.script:
            if isinstance(step, str):
                yield step
            elif step is None:
                await self.released.wait()
            elif isinstance(step, BaseException):
                raise step
            else:
                await asyncio.sleep(step)


def _citations(found: SearchResult) -> tuple[Citation, ...]:
    return tuple(
        Citation(
            index=1, document_id=hit.chunk.document_id, chunk_id=str(hit.chunk.chunk_id),
            title=hit.chunk.title, source=hit.chunk.source, text=hit.chunk.text, score=hit.score,
            start=0, end=len(hit.chunk.text),
        )
        for hit in found.hits[:1]
    )  # fmt: skip


class World:
    """A gateway over fakes; ``handbook`` and ``secret`` exist, ``handbook`` is the default."""

    def __init__(
        self,
        *,
        script: Sequence[Any] | None = None,
        tenants: Sequence[TenantSettings] = (),
        settings: ServerSettings | None = None,
        **parts: Any,
    ) -> None:
        self.knowledge = FakeKnowledge("handbook", "secret")
        self.knowledge.add("handbook", "leave.md", "Employees have 25 days of leave.")
        self.knowledge.add("handbook", "差旅.md", "差旅费在三十天内报销。")
        self.knowledge.add("secret", "plan.md", "The plan is secret.")
        self.answering = FakeAnswering(self.knowledge, script)
        self.metrics = Metrics()
        self.parts = GatewayParts(
            answering=self.answering,
            knowledge=self.knowledge,
            identity=Identity(build_table(tenants)),
            metrics=self.metrics,
            clock=SystemClock(),
            settings=settings or ServerSettings(port=0, default_kb="handbook"),
            **parts,
        )
        self.app: GatewayApp = build_app(self.parts)


class LiveServer:
    """A world served by a real server in a thread of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server: Server | None = None
        self.error: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self.server = Server(self.world.app)
        self._ready.set()
        await self.server.serve(handle_signals=False)

    def start(self) -> str:
        """Start, and return the base address once connections are accepted."""
        self._thread.start()
        assert self._ready.wait(10)
        until(lambda: self.error is not None or (self.server and self.server.started))
        if self.error is not None:
            raise self.error
        assert self.server is not None
        return self.server.addresses[0]

    def stop(self, timeout_s: float = 60) -> None:
        """Drain and wait for the end."""
        if self.server is not None:
            self.server.request_stop()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()


def until(condition: Any, within_s: float = 20.0) -> None:
    """Poll a condition of another thread; the seconds are those of a stopwatch."""
    watch = Stopwatch()
    while not condition():
        assert watch.now() <= within_s, "the condition did not come true in time"
        time.sleep(0.005)


@contextlib.contextmanager
def serving(world: World) -> Iterator[str]:
    """A running server's base address."""
    live = LiveServer(world)
    address = live.start()
    try:
        yield address
    finally:
        live.stop()
