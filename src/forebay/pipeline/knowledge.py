"""Reading and changing knowledge bases: what the HTTP routes, MCP and the command line call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentDraft, DocumentInfo, KbInfo
from forebay.kernel.errors import (
    Conflict,
    DeadlineExceeded,
    ForebayError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from forebay.pipeline.embedding import EmbeddingFeeder
from forebay.pipeline.folders import (
    BatchParser,
    FolderRequest,
    ParseJob,
    content_hash,
    draft_of,
    id_problem,
)
from forebay.pipeline.messages import DocumentPage, Upload, WaitFor
from forebay.pipeline.writer import CommitQueue

T = TypeVar("T")
KB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PAGE_STEP = 256
RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]


class DocumentRecord(Protocol):
    """The read side of the record for documents; blocking."""

    def document(self, kb: str, document_id: str) -> DocumentInfo:
        """One document; ``NotFound`` when there is none."""
        ...

    def document_text(self, kb: str, document_id: str) -> str:
        """Its extracted text."""
        ...

    def documents(self, kb: str, *, after: str | None, limit: int) -> Sequence[DocumentInfo]:
        """Documents in id order after ``after``."""
        ...


class KbRecord(Protocol):
    """The read side of the record for knowledge bases; blocking."""

    def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        """One knowledge base, counted over what ``groups`` may read; or ``NotFound``."""
        ...

    def kbs(self) -> Sequence[KbInfo]:
        """All of them, by name."""
        ...


class Changes(Protocol):
    """Where changes go: this process's writer, or the writer behind the folder's socket."""

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        """Add or replace one document."""
        ...

    async def delete(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        """Remove one document; no outcome in the receipt when there was none."""
        ...


class LocalChanges:
    """Changes made by this process, which holds the writer lock."""

    def __init__(
        self,
        parser: BatchParser,
        queue: CommitQueue,
        feeder: Callable[[str], EmbeddingFeeder | None],
        record: DocumentRecord,
        run_blocking: Callable[[Callable[[], bool]], Awaitable[bool]],
        defaults: Callable[[str], FolderRequest],
    ) -> None:
        self._parser = parser
        self._defaults = defaults
        self._queue = queue
        self._feeder = feeder
        self._record = record
        self._run_blocking = run_blocking

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        """Parse in a worker process, commit, and wait for vectors when asked to."""
        check_kb_name(kb)
        check_document_id(upload.document_id)
        check_metadata(upload.metadata)
        [parsed] = await self._parser.parse_many(
            [ParseJob(upload.name, upload.data, upload.media_type)]
        )
        if isinstance(parsed, ForebayError):
            raise parsed
        request = self._defaults(kb)
        digest = content_hash(upload.data, self._parser.revision, request)
        source = upload.source or upload.document_id
        draft = draft_of(parsed, upload.document_id, source, digest, request)
        draft = _override(draft, upload)
        _check_groups(draft, upload.within_groups)
        receipt = await self._queue.put(kb, draft, deadline)
        feeder = self._feeder(kb)
        if feeder is not None:
            feeder.kick()
            if wait == "embedded":
                await self._wait_embedded(feeder, kb, upload.document_id, deadline)
        embedded = await self._run_blocking(lambda: self._embedded(kb, upload.document_id))
        return msgspec.structs.replace(receipt, embedded=embedded)

    async def delete(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        """Remove one document."""
        check_kb_name(kb)
        return await self._queue.remove(kb, document_id, deadline)

    async def _wait_embedded(
        self, feeder: EmbeddingFeeder, kb: str, document_id: str, deadline: Deadline
    ) -> None:
        async def reached() -> bool:
            return await self._run_blocking(lambda: self._embedded(kb, document_id))

        waiting = DeadlineExceeded(
            "the document is stored and searchable by words; its vectors are not ready yet."
        )
        await _in_time(feeder.wait_for(document_id, reached), deadline, waiting)

    def _embedded(self, kb: str, document_id: str) -> bool:
        try:
            return self._record.document(kb, document_id).embedded
        except NotFound:
            return False


async def _in_time(work: Awaitable[None], deadline: Deadline, late: DeadlineExceeded) -> None:
    try:
        async with asyncio.timeout(deadline.remaining()):
            await work
    except TimeoutError:
        raise late from None


def _override(draft: DocumentDraft, upload: Upload) -> DocumentDraft:
    """What the caller says of a document beats what the document says of itself."""
    return msgspec.structs.replace(
        draft,
        title=upload.title if upload.title is not None else draft.title,
        language=upload.language if upload.language is not None else draft.language,
        tags=upload.tags if upload.tags is not None else draft.tags,
        groups=upload.groups if upload.groups is not None else draft.groups,
        metadata={**draft.metadata, **upload.metadata},
    )


def _check_groups(draft: DocumentDraft, held: frozenset[str] | None) -> None:
    if held is not None and not held.issuperset(draft.groups):
        raise PermissionDenied(
            "this key lacks a group that the document would get; groups come from the request, "
            "the document's own front matter or its knowledge base.",
            param="groups",
        )


def check_kb_name(name: str) -> None:
    """Raise ``InvalidRequest`` unless ``name`` can name a knowledge base."""
    if KB_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "a knowledge base name is 1 to 64 ASCII letters, digits, dots, dashes or underscores, "
            "beginning with a letter or digit.",
            param="kb",
        )


def check_document_id(document_id: str) -> None:
    """Raise ``InvalidRequest`` unless ``document_id`` can name a document."""
    if wrong := id_problem(document_id):
        raise InvalidRequest(f"the document id {wrong}.", param="id")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise ``InvalidRequest`` for keys that are kept for bookkeeping."""
    for key in metadata:
        if key.startswith("_"):
            raise InvalidRequest(
                f"the metadata key {key!r} begins with an underscore; choose another.",
                param="metadata",
            )


def visible(ctx: RequestContext, info: DocumentInfo) -> bool:
    """Whether the principal's groups let it see this document."""
    groups = ctx.principal.groups
    return groups is None or not info.groups or not groups.isdisjoint(info.groups)


class KnowledgeService:
    """What outsiders may do with knowledge bases; group rights are checked here."""

    def __init__(
        self,
        documents: DocumentRecord,
        kbs: KbRecord,
        changes: Changes,
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        clock: Clock,
    ) -> None:
        self._documents = documents
        self._kbs = kbs
        self._changes = changes
        self._run = run_blocking
        self._clock = clock

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await self._run(work)  # type: ignore[return-value]

    async def put(
        self, ctx: RequestContext, kb: str, upload: Upload, *, wait: WaitFor = "committed"
    ) -> CommitReceipt:
        """Add or replace one document; ``Conflict`` when its id is one that may not be seen."""
        held = ctx.principal.groups
        if held is not None:
            await self._replaceable(ctx, kb, upload.document_id)
            upload = msgspec.structs.replace(upload, within_groups=held)
        return await self._changes.put(kb, upload, wait, ctx.deadline)

    async def _replaceable(self, ctx: RequestContext, kb: str, document_id: str) -> None:
        try:
            info = await self._blocking(lambda: self._documents.document(kb, document_id))
        except NotFound:
            return
        if not visible(ctx, info):
            raise Conflict(
                f"the id {document_id!r} cannot be used with this key; choose another.", param="id"
            )

    async def delete(self, ctx: RequestContext, kb: str, document_id: str) -> CommitReceipt:
        """Remove one document; ``NotFound`` when there is none the principal may see."""
        await self._visible(ctx, kb, document_id)
        receipt = await self._changes.delete(kb, document_id, ctx.deadline)
        if not receipt.outcomes:
            raise _missing(document_id)
        return receipt

    async def document(
        self, ctx: RequestContext, kb: str, document_id: str
    ) -> tuple[DocumentInfo, str]:
        """One document and its extracted text."""
        info = await self._visible(ctx, kb, document_id)
        text = await self._blocking(lambda: self._documents.document_text(kb, document_id))
        return shown(info), text

    async def _visible(self, ctx: RequestContext, kb: str, document_id: str) -> DocumentInfo:
        try:
            info = await self._blocking(lambda: self._documents.document(kb, document_id))
        except NotFound:
            raise _missing(document_id) from None
        if not visible(ctx, info):
            raise _missing(document_id)
        return info

    async def documents(
        self, ctx: RequestContext, kb: str, *, after: str | None = None, limit: int = 100
    ) -> DocumentPage:
        """A page of the documents the principal may read, in id order.

        Pages are cut from what may be read, so that neither a short page nor its ``next_after``
        tells of documents that may not.
        """
        step = limit + 1 if ctx.principal.groups is None else max(limit + 1, _PAGE_STEP)
        found: list[DocumentInfo] = []
        while True:
            rows = await self._blocking(
                partial(self._documents.documents, kb, after=after, limit=step)
            )
            found.extend(row for row in rows if visible(ctx, row))
            if len(rows) < step or len(found) > limit:
                break
            after = rows[-1].document_id
        page = found[:limit]
        next_after = page[-1].document_id if len(found) > limit else None
        return DocumentPage(tuple(shown(row) for row in page), next_after)

    async def kbs(self) -> tuple[KbInfo, ...]:
        """Every knowledge base of the store."""
        return tuple(await self._blocking(self._kbs.kbs))

    async def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        """One knowledge base; with ``groups``, counted over what these may read."""
        return await self._blocking(lambda: self._kbs.kb(name, groups))


def shown(info: DocumentInfo) -> DocumentInfo:
    """A document without the bookkeeping keys of its metadata."""
    public = {key: value for key, value in info.metadata.items() if not key.startswith("_")}
    return msgspec.structs.replace(info, metadata=public)


def _missing(document_id: str) -> NotFound:
    return NotFound(f"there is no document {document_id!r} in this knowledge base.", param="id")
