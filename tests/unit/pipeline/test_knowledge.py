"""What a principal's groups hide stays hidden in pages, and out of its reach for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentDraft
from forebay.kernel.errors import Conflict, InvalidRequest, NotFound
from forebay.pipeline.knowledge import KnowledgeService, check_document_id, check_metadata
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

    async def put(
        self, kb: str, upload: Upload, wait: WaitFor, deadline: Deadline
    ) -> CommitReceipt:
        self.put_ids.append(upload.document_id)
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
