"""The one writer of a store: grouped commits, lexical publication, embedding in the background.

A change is acknowledged after its SQLite commit and the lexical publication of that version.
Vectors follow in grouped commits, at most one per ``flush_interval_s`` and knowledge base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated, Protocol

import msgspec

from forebay.kernel.clock import Deadline
from forebay.kernel.documents import CommitReceipt, DocumentDraft, Outcome
from forebay.kernel.errors import DeadlineExceeded, Overloaded, StoreFull, Unavailable


class WriterSettings(msgspec.Struct, frozen=True):
    """How changes are grouped."""

    max_queue: Annotated[
        int, msgspec.Meta(ge=1, description="Changes that may wait for a commit; more answer 503.")
    ] = 1024
    max_batch: Annotated[
        int, msgspec.Meta(ge=1, description="Documents in one commit at most.")
    ] = 256
    commit_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait of a change for its commit.")
    ] = 60.0


class RecordWriter(Protocol):
    """The write side of the record; called from the writer's own thread only."""

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """One transaction, one version; see ``forebay.store``."""
        ...


class Publisher(Protocol):
    """Brings the indexes of a kb up to the record and publishes them."""

    def refresh(self, kb: str) -> int:
        """Return the version now being served; blocking."""
        ...


class Change(Protocol):
    """A change that was committed and is to be acknowledged."""

    async def settled(self) -> None:
        """Return when no process, on any machine, answers from an older version; bounded.

        ``Unavailable``: another became the writer, and what was committed here is not in force.
        """
        ...


Changing = Callable[[str], AbstractAsyncContextManager[Change | None]]
"""Within it a change of a kb is committed and published. ``Unavailable`` when entered: it must
not be. None: nobody has to be waited for."""


def alone(_kb: str) -> AbstractAsyncContextManager[None]:
    """All who answer from the kb see what is published at once."""
    return nullcontext()


_UNSETTLED_MAX = 64
"""Commits that may wait for other machines at once."""


class _Change:
    __slots__ = ("done", "kb", "put", "remove")

    def __init__(
        self,
        kb: str,
        put: DocumentDraft | None,
        remove: str | None,
        done: asyncio.Future[CommitReceipt],
    ) -> None:
        self.kb = kb
        self.put = put
        self.remove = remove
        self.done = done

    @property
    def document_id(self) -> str:
        return self.put.document_id if self.put is not None else str(self.remove)


RunBlocking = Callable[[Callable[[], CommitReceipt]], Awaitable[CommitReceipt]]


class CommitQueue:
    """Gathers concurrent changes of one knowledge base into one commit.

    Bounded; ``submit`` raises ``Overloaded`` when full. A change whose caller has left is still
    committed if its turn has come: the record decides, not the connection.
    """

    def __init__(
        self,
        record: RecordWriter,
        publisher: Publisher,
        run_blocking: RunBlocking,
        settings: WriterSettings,
        changing: Changing = alone,
    ) -> None:
        self._record = record
        self._changing = changing
        self._settling = asyncio.Semaphore(_UNSETTLED_MAX)
        self._publisher = publisher
        self._run_blocking = run_blocking
        self._settings = settings
        self._queue: asyncio.Queue[_Change] = asyncio.Queue(settings.max_queue)
        self._held: _Change | None = None
        self._closed = False
        self.commits = 0
        self.changes = 0

    def statistics(self) -> dict[str, int]:
        """Changes waiting, commits made, changes committed."""
        return {
            "waiting": self._queue.qsize(),
            "commits": self.commits,
            "changes": self.changes,
        }

    async def put(self, kb: str, draft: DocumentDraft, deadline: Deadline) -> CommitReceipt:
        """Commit one document; the receipt's outcomes hold this document only."""
        return await self._submit(kb, draft, None, deadline)

    async def remove(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        """Remove one document; outcomes are empty when there was none."""
        return await self._submit(kb, None, document_id, deadline)

    async def _submit(
        self, kb: str, put: DocumentDraft | None, remove: str | None, deadline: Deadline
    ) -> CommitReceipt:
        if self._closed:
            raise _closing()
        done: asyncio.Future[CommitReceipt] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait(_Change(kb, put, remove, done))
        except asyncio.QueueFull:
            raise Overloaded(
                "too many changes are waiting to be written; try again shortly."
            ) from None
        try:
            async with asyncio.timeout(
                deadline.within(self._settings.commit_timeout_s).remaining()
            ):
                return await done
        except TimeoutError:
            raise DeadlineExceeded(
                "the change was not committed before the deadline; it may still be."
            ) from None

    async def run(self) -> None:
        """Commit until cancelled; what is queued then fails with ``Unavailable``."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    batch = await self._gather()
                    await self._commit(batch, group)
        finally:
            self._closed = True
            self._fail_rest()

    def _fail_rest(self) -> None:
        rest = [self._held] if self._held is not None else []
        self._held = None
        while not self._queue.empty():
            rest.append(self._queue.get_nowait())
        _fail(rest, _closing())

    async def _gather(self) -> list[_Change]:
        """The next changes of one kb, each document at most once, in arrival order."""
        first = self._held or await self._queue.get()
        self._held = None
        batch = [first]
        seen = {first.document_id}
        while len(batch) < self._settings.max_batch and not self._queue.empty():
            change = self._queue.get_nowait()
            if change.kb != first.kb or change.document_id in seen:
                self._held = change
                break
            seen.add(change.document_id)
            batch.append(change)
        return batch

    async def _commit(self, batch: list[_Change], group: asyncio.TaskGroup) -> None:
        kb = batch[0].kb
        try:
            async with self._changing(kb) as change:
                receipt = await self._run_blocking(lambda: self._apply(kb, batch))
        except asyncio.CancelledError:
            for each in batch:
                each.done.cancel()
            raise
        except Exception as error:  # one change's fault must reach its caller, not end the writer
            if len(batch) > 1 and not isinstance(error, StoreFull | Unavailable):
                for each in batch:
                    await self._commit([each], group)
                return
            _fail(batch, error)
            return
        self.commits += 1
        self.changes += len(batch)
        if change is None:
            self._acknowledge(batch, receipt)
            return
        # The next commit, maybe of another kb, does not wait for machines that answer from this.
        try:
            await self._settling.acquire()
        except asyncio.CancelledError:
            _fail(batch, _closing())
            raise
        task = group.create_task(self._settle(change, batch, receipt))
        task.add_done_callback(lambda _: self._settled(batch))  # also of one that never began

    async def _settle(self, change: Change, batch: list[_Change], receipt: CommitReceipt) -> None:
        try:
            await change.settled()
        except Unavailable as error:
            _fail(batch, error)
        else:
            self._acknowledge(batch, receipt)

    def _settled(self, batch: list[_Change]) -> None:
        self._settling.release()
        _fail(batch, _closing())

    def _acknowledge(self, batch: list[_Change], receipt: CommitReceipt) -> None:
        outcomes = dict(receipt.outcomes)
        for change in batch:
            if not change.done.done():
                change.done.set_result(_own(receipt, change.document_id, outcomes))

    def _apply(self, kb: str, batch: list[_Change]) -> CommitReceipt:
        receipt = self._record.commit(
            kb,
            [change.put for change in batch if change.put is not None],
            [change.remove for change in batch if change.remove is not None],
        )
        self._publisher.refresh(kb)
        return receipt


def _closing() -> Unavailable:
    return Unavailable("the writer is shutting down; try again shortly.")


def _fail(changes: Sequence[_Change], error: Exception) -> None:
    """Tell those who still wait; nobody has to."""
    for change in changes:
        if not change.done.done():
            change.done.set_exception(error)
            change.done.exception()


def _own(receipt: CommitReceipt, document_id: str, outcomes: dict[str, Outcome]) -> CommitReceipt:
    own = ((document_id, outcomes[document_id]),) if document_id in outcomes else ()
    return CommitReceipt(receipt.kb, receipt.version, own, receipt.embedded)
