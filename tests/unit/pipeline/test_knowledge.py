"""What a principal's groups hide stays hidden in pages, and out of its reach for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentDraft, Extracted
from forebay.kernel.errors import Conflict, InvalidRequest, NotFound, PermissionDenied
from forebay.pipeline.folders import FolderRequest, ParseJob
from forebay.pipeline.knowledge import (
    KnowledgeService,
    LocalChanges,
    check_document_id,
    check_metadata,
)
from forebay.pipeline.messages import Upload, WaitFor
from forebay.store import StoreWriter

KB = "shared"


def draft(document_id: str, *groups: str) -> DocumentDraft:
    return DocumentDraft(
        document_id, document_id, "hash-" + document_id, "", "text", (), groups=groups
    )


class Changes:
    """Notes what reached the writer."""

    def __init__(self) -> None:
        self.put_ids: list[str] = []
        self.uploads: list[Upload] = []

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        self.put_ids.append(upload.document_id)
        self.uploads.append(upload)
        return CommitReceipt(kb, 9, ((upload.document_id, "indexed"),))

    async def delete(self, kb: str, document_id: str, deadline: Deadline) -> CommitReceipt:
        return CommitReceipt(kb, 9, ((document_id, "removed"),))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    store = StoreWriter(tmp_path / "store")
    # In id order: two that hr may read, between and after them those of others.
    store.commit(
        KB,
        [
            draft("a-eng", "eng"),
            draft("b-all"),
            *(draft(f"c-eng-{n:03}", "eng") for n in range(300)),
            draft("d-hr", "hr"),
            draft("e-eng", "eng"),
        ],
        [],
    )
    yield store
    store.close()


def service(writer: StoreWriter, changes: Changes) -> KnowledgeService:
    return KnowledgeService(writer.reader, writer.reader, changes, asyncio.to_thread, SystemClock())


def context(*groups: str) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r",
        principal=Principal(groups=frozenset(groups), admin=True),
        deadline=Deadline.after(30.0, clock),
        clock=clock,
    )


async def pages(knowledge: KnowledgeService, ctx: RequestContext, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    after: str | None = None
    while True:
        page = await knowledge.documents(ctx, KB, after=after, limit=limit)
        found.append([row.document_id for row in page.documents])
        after = page.next_after
        if after is None:
            return found


async def test_pages_are_cut_from_what_may_be_read(writer: StoreWriter) -> None:
    knowledge = service(writer, Changes())
    assert await pages(knowledge, context("hr"), 1) == [["b-all"], ["d-hr"]]
    assert await pages(knowledge, context("hr"), 100) == [["b-all", "d-hr"]]
    assert await pages(knowledge, context(), 1) == [["b-all"]]
    eng = await pages(knowledge, context("eng"), 7)
    assert [len(page) for page in eng] == [7] * 43 + [2]
    ids = [document_id for page in eng for document_id in page]
    assert ids == sorted(set(ids))


async def test_next_after_never_names_a_hidden_document(writer: StoreWriter) -> None:
    page = await service(writer, Changes()).documents(context("hr"), KB, after="b-all", limit=1)
    assert [row.document_id for row in page.documents] == ["d-hr"]
    assert page.next_after is None


async def test_a_hidden_document_can_be_neither_replaced_nor_removed(writer: StoreWriter) -> None:
    changes = Changes()
    knowledge = service(writer, changes)
    with pytest.raises(Conflict):
        await knowledge.put(context("hr"), KB, Upload("a-eng", b"taken over", "a-eng"))
    with pytest.raises(NotFound):
        await knowledge.delete(context("hr"), KB, "a-eng")
    assert changes.put_ids == []
    for document_id in ("b-all", "d-hr", "new"):
        await knowledge.put(context("hr"), KB, Upload(document_id, b"text", document_id))
    assert changes.put_ids == ["b-all", "d-hr", "new"]


def test_bookkeeping_keys_cannot_be_set_from_outside() -> None:
    check_metadata({"owner": "Li Wen", "a_b": "c"})
    with pytest.raises(InvalidRequest):
        check_metadata({"_root": "another folder's mark"})


@pytest.mark.parametrize(
    "document_id", ["", " ", "a" * 513, "a\nb", "a\x7f", "a\x9b1m", "a\u2028b"]
)
def test_ids_that_nobody_could_name(document_id: str) -> None:
    with pytest.raises(InvalidRequest):
        check_document_id(document_id)


@pytest.mark.parametrize("document_id", ["a", "文档/一.md", "..", "a b", "é" * 512])
def test_ids_that_are_only_names(document_id: str) -> None:
    check_document_id(document_id)


async def test_counts_are_of_what_the_groups_may_read(writer: StoreWriter) -> None:
    knowledge = service(writer, Changes())
    whole = await knowledge.kb(KB)
    own = await knowledge.kb(KB, frozenset({"hr"}))
    none = await knowledge.kb(KB, frozenset())
    assert (whole.documents, own.documents, none.documents) == (304, 2, 1)
    assert own.characters == 2 * len("text")
    assert (own.name, own.version) == (whole.name, whole.version)


async def test_the_writer_hears_which_groups_the_caller_holds(writer: StoreWriter) -> None:
    changes = Changes()
    knowledge = service(writer, changes)
    await knowledge.put(context("hr", "eng"), KB, Upload("new", b"text", "new"))
    [upload] = changes.uploads
    assert upload.within_groups == frozenset({"hr", "eng"})


@pytest.mark.parametrize("said_by", ["request", "front matter", "knowledge base"])
async def test_a_document_gets_no_group_that_the_caller_lacks(said_by: str) -> None:
    put: list[DocumentDraft] = []

    class Parser:
        revision = "1"

        async def parse_many(self, jobs: Sequence[ParseJob]) -> list[object]:
            declared = {"groups": "hr"} if said_by == "front matter" else {}
            extracted = Extracted("text", (), "text/plain", metadata=declared)
            return [SimpleNamespace(extracted=extracted, chunks=(), provisional=False)]

    class Queue:
        async def put(self, kb: str, document: DocumentDraft, deadline: Deadline) -> CommitReceipt:
            put.append(document)
            return CommitReceipt(kb, 1)

    async def at_once(work: Callable[[], bool]) -> bool:
        return True

    defaults = FolderRequest(KB, "", groups=("hr",) if said_by == "knowledge base" else ())
    local = LocalChanges(
        cast(Any, Parser()),
        cast(Any, Queue()),
        lambda kb: None,
        cast(Any, None),
        at_once,
        lambda kb: defaults,
    )
    upload = Upload("new", b"text", "new", groups=("hr",) if said_by == "request" else None)
    deadline = Deadline.after(30.0, SystemClock())

    async def change(held: frozenset[str] | None) -> None:
        await local.put(
            KB, msgspec.structs.replace(upload, within_groups=held), "committed", deadline
        )

    with pytest.raises(PermissionDenied):
        await change(frozenset({"eng"}))
    assert put == []
    await change(frozenset({"hr", "eng"}))
    await change(None)
    assert [document.groups for document in put] == [("hr",), ("hr",)]
