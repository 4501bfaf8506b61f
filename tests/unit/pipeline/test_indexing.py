"""Results from a knowledge base whose folders are still being read say so, or there are none."""

from __future__ import annotations

import pytest

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Degradation, Principal, RequestContext
from forebay.kernel.errors import Unavailable
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.pipeline.indexing import IndexingRetriever, Lack

REQUEST = SearchRequest("kb", "valve")


def context() -> RequestContext:
    clock = VirtualClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(20.0, clock), clock=clock
    )


class Found:
    """A knowledge base at a version; what happens while it is searched."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.lack: Lack | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.lack = None  # the last document came in just now
        return SearchResult((), "bm25", self.version)


def over(version: int, lack: Lack | None) -> tuple[IndexingRetriever, Found]:
    found = Found(version)
    found.lack = lack
    return IndexingRetriever(found, lambda kb: found.lack), found


@pytest.mark.parametrize("lack", ["indexing", "not_indexed"])
async def test_nothing_is_found_in_what_nothing_was_put_in_yet(lack: Lack) -> None:
    retriever, _ = over(0, lack)
    ctx = context()
    with pytest.raises(Unavailable) as raised:
        await retriever.retrieve(ctx, REQUEST)
    assert raised.value.code == lack
    assert not ctx.degradations


@pytest.mark.parametrize("lack", ["indexing", "not_indexed"])
async def test_what_is_found_among_a_part_says_so_once(lack: Lack) -> None:
    retriever, found = over(3, lack)
    ctx = context()
    await retriever.retrieve(ctx, REQUEST)
    found.lack = lack
    await retriever.retrieve(ctx, REQUEST)
    assert ctx.degradations == [Degradation("retrieval", "bm25", lack)]


@pytest.mark.parametrize("version", [0, 3])
async def test_a_whole_knowledge_base_answers_as_it_is(version: int) -> None:
    """Also an empty one: its folder has no documents, or it is filled by uploads."""
    retriever, _ = over(version, None)
    ctx = context()
    assert (await retriever.retrieve(ctx, REQUEST)).kb_version == version
    assert not ctx.degradations
