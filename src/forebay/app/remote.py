"""Changes through the folder's socket: the same calls, carried to the process that writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import msgspec

from forebay.app.writing import Writing
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.documents import CommitReceipt, KbInfo
from forebay.kernel.errors import Unavailable
from forebay.pipeline.folders import FileEvent, FolderRequest, IngestSummary
from forebay.pipeline.messages import Upload, WaitFor
from forebay.store.remote import Emit, Handler, WriterClient

T = TypeVar("T")
GRACE_S = 5.0
PING_S = 10.0


class PutCall(msgspec.Struct, frozen=True):
    """Add or replace a document."""

    kb: str
    upload: Upload
    wait: WaitFor
    deadline_s: float


class DeleteCall(msgspec.Struct, frozen=True):
    """Remove a document."""

    kb: str
    document_id: str
    deadline_s: float


class KbCall(msgspec.Struct, frozen=True):
    """Something about one knowledge base."""

    kb: str


class RestoreCall(msgspec.Struct, frozen=True):
    """Import an export; ``file`` is a path both processes see."""

    file: str
    name: str | None


def handlers(writing: Writing, clock: Clock) -> Mapping[str, Handler]:
    """What the writer does for other processes."""

    async def ping(_payload: Any, _emit: Emit) -> None:
        return None

    async def put(payload: Any, _emit: Emit) -> CommitReceipt:
        call = msgspec.convert(payload, PutCall)
        deadline = Deadline.after(call.deadline_s, clock)
        return await writing.put(call.kb, call.upload, call.wait, deadline)

    async def delete(payload: Any, _emit: Emit) -> CommitReceipt:
        call = msgspec.convert(payload, DeleteCall)
        deadline = Deadline.after(call.deadline_s, clock)
        return await writing.delete(call.kb, call.document_id, deadline)

    async def ingest(payload: Any, emit: Emit) -> IngestSummary:
        return await writing.ingest(msgspec.convert(payload, FolderRequest), emit)

    async def embedded(payload: Any, _emit: Emit) -> int:
        return await writing.wait_embedded(msgspec.convert(payload, KbCall).kb)

    async def drop(payload: Any, _emit: Emit) -> None:
        await writing.drop(msgspec.convert(payload, KbCall).kb)

    async def reembed(payload: Any, _emit: Emit) -> KbInfo:
        return await writing.reembed(msgspec.convert(payload, KbCall).kb)

    async def restore(payload: Any, _emit: Emit) -> KbInfo:
        call = msgspec.convert(payload, RestoreCall)
        return await writing.restore(Path(call.file), call.name)

    return {
        "ping": ping,
        "put": put,
        "delete": delete,
        "ingest": ingest,
        "embedded": embedded,
        "drop": drop,
        "reembed": reembed,
        "restore": restore,
    }


class RemoteWriting:
    """The writing half of another process, called through the folder's socket."""

    def __init__(self, folder: Path, clock: Clock, call_s: float) -> None:
        self._client = WriterClient(folder)
        self._clock = clock
        self._call_s = call_s

    async def answers(self) -> bool:
        """Whether a process that writes takes calls."""
        try:
            await self._call("ping", None, NoneType, Deadline.after(PING_S, self._clock))
        except Unavailable:
            return False
        return True

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        """Add or replace one document."""
        call = PutCall(kb, upload, wait, deadline.remaining())
        return await self._call("put", call, CommitReceipt, deadline)

    async def delete(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        """Remove one document."""
        call = DeleteCall(kb, document_id, deadline.remaining())
        return await self._call("delete", call, CommitReceipt, deadline)

    async def ingest(
        self, request: FolderRequest, emit: Callable[[FileEvent], None]
    ) -> IngestSummary:
        """Bring a file or folder into a kb."""

        def event(value: Any) -> None:
            emit(msgspec.convert(value, FileEvent))

        return await self._call("ingest", request, IngestSummary, self._long(), event)

    async def wait_embedded(self, kb: str) -> int:
        """Wait until every chunk of ``kb`` has a vector."""
        return await self._call("embedded", KbCall(kb), int, self._long())

    async def drop(self, kb: str) -> None:
        """Remove a kb and everything in it."""
        await self._call("drop", KbCall(kb), NoneType, self._long())

    async def reembed(self, kb: str) -> KbInfo:
        """Begin to replace the vectors of ``kb``."""
        return await self._call("reembed", KbCall(kb), KbInfo, self._long())

    async def restore(self, file: Path, name: str | None) -> KbInfo:
        """Import an export."""
        return await self._call("restore", RestoreCall(str(file), name), KbInfo, self._long())

    def _long(self) -> Deadline:
        return Deadline.after(self._call_s, self._clock)

    async def _call(
        self,
        operation: str,
        payload: object,
        kind: type[T],
        deadline: Deadline,
        on_event: Callable[[Any], None] | None = None,
    ) -> T:
        # The writer keeps the request's own deadline; the margin is for its answer to arrive.
        late = Deadline(deadline.at + GRACE_S, deadline.clock)
        value = await self._client.call(operation, payload, deadline=late, on_event=on_event)
        return msgspec.convert(value, kind)
