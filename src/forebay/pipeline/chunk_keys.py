"""Reading chunks by their keys, and documents by ids, behind the guard: the rights of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar, get_args

import msgspec

from forebay.kernel.chunk_keys import ChunkKey, KeyedChunk, parse_key
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import Priority, RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentInfo
from forebay.kernel.errors import KeyRetired, NotFound
from forebay.pipeline.messages import Knowledge

T = TypeVar("T")
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
DOCUMENT, DIGEST = "d", "c"
"""What the guard's names begin with: ids of documents, digests of keys."""


class Guard(Protocol):
    """Knows of names that certainly do not exist."""

    async def may_exist(self, kb: str, name: str, deadline: Deadline) -> bool:
        """False: there is no such name."""
        ...


class KeyRecord(Protocol):
    """The read side of the record for keys; blocking."""

    def chunk(self, kb: str, key: ChunkKey) -> KeyedChunk:
        """What a key stands for, whoever may read it; ``NotFound``: nothing."""
        ...

    def chunk_keys(self, kb: str, document_id: str) -> tuple[ChunkKey, ...]:
        """The keys of a document's chunks, in their order."""
        ...


class Heat(Protocol):
    """How warm chunks are."""

    def of(self, chunk_id: int) -> int:
        """Hits lately."""
        ...

    def ttl_s(self, chunk_id: int) -> float:
        """Seconds that what is kept of it should live."""
        ...


class FoundChunk(msgspec.Struct, frozen=True):
    """A chunk that can be read under its key; ``ttl_s``: how long to keep what belongs to it."""

    keyed: KeyedChunk
    heat: int
    ttl_s: float
    priority: Priority = "normal"


class ChunkParts(msgspec.Struct, frozen=True):
    """What reading by key works with; ``keep_s``: how long retired keys are told of."""

    record: KeyRecord
    guard: Guard
    heat: Heat
    clock: Clock
    keep_s: float


class ChunkService:
    """What outsiders may do with keys of chunks; group rights are checked here."""

    def __init__(
        self, parts: ChunkParts, run_blocking: Callable[[Callable[[], object]], Awaitable[object]]
    ) -> None:
        self._parts = parts
        self._run = run_blocking

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await self._run(work)  # type: ignore[return-value]

    async def chunk(self, ctx: RequestContext, kb: str, text: str) -> FoundChunk:
        """The chunk that has, or had, a key.

        ``KeyRetired``: it is gone and may not be read any more; ``NotFound``: there was none, or
        none that the principal might see.
        """
        parts, key = self._parts, parse_key(text)
        if key is None or not await parts.guard.may_exist(
            kb, DIGEST + key.digest.hex(), ctx.deadline
        ):
            raise _unknown()
        try:
            keyed = await self._blocking(partial(parts.record.chunk, kb, key))
        except NotFound:
            raise _unknown() from None
        if not _may_read(ctx, keyed):
            raise _unknown()
        if keyed.chunk is not None:
            chunk_id, said = keyed.chunk.chunk_id, keyed.chunk.metadata.get("priority")
            priority: Priority = next((one for one in PRIORITIES if one == said), "normal")
            return FoundChunk(keyed, parts.heat.of(chunk_id), parts.heat.ttl_s(chunk_id), priority)
        left_s = (keyed.retired_at or 0.0) + parts.keep_s - parts.clock.now()
        if left_s <= 0:
            raise _unknown()
        if keyed.kept is None:
            raise _retired(kb, keyed)
        return FoundChunk(keyed, 0, left_s)

    async def keys(self, kb: str, document_id: str) -> tuple[str, ...]:
        """The keys of a document that the caller found readable."""
        found = await self._blocking(partial(self._parts.record.chunk_keys, kb, document_id))
        return tuple(map(str, found))


class GuardedKnowledge:
    """``Knowledge`` that does not ask the record for documents that do not exist."""

    def __init__(self, inner: Knowledge, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard
        self.put = inner.put
        self.documents = inner.documents
        self.kbs = inner.kbs
        self.kb = inner.kb

    async def delete(self, ctx: RequestContext, kb: str, document_id: str) -> CommitReceipt:
        """See ``Knowledge``."""
        await self._known(ctx, kb, document_id)
        return await self._inner.delete(ctx, kb, document_id)

    async def document(
        self, ctx: RequestContext, kb: str, document_id: str
    ) -> tuple[DocumentInfo, str]:
        """See ``Knowledge``."""
        await self._known(ctx, kb, document_id)
        return await self._inner.document(ctx, kb, document_id)

    async def _known(self, ctx: RequestContext, kb: str, document_id: str) -> None:
        if not await self._guard.may_exist(kb, DOCUMENT + document_id, ctx.deadline):
            raise _missing(document_id)


def _may_read(ctx: RequestContext, keyed: KeyedChunk) -> bool:
    groups = ctx.principal.groups
    return groups is None or all(
        not readers or not groups.isdisjoint(readers) for readers in keyed.readers
    )


def _missing(document_id: str) -> NotFound:
    return NotFound(f"there is no document {document_id!r} in this knowledge base.", param="id")


def _unknown() -> NotFound:
    return NotFound("there is no chunk with this key in this knowledge base.", param="key")


def _retired(kb: str, keyed: KeyedChunk) -> KeyRetired:
    successor = None if keyed.successor is None else str(keyed.successor)
    if successor is not None:
        where = f"its place was taken by {successor}."
    elif keyed.document_id is not None:
        where = f"look at the document {keyed.document_id!r}."
    else:
        where = "its document was removed; look at the documents of the knowledge base."
    return KeyRetired(
        f"the chunk with this key is gone: {where}",
        kb=kb,
        document_id=keyed.document_id,
        successor=successor,
    )
