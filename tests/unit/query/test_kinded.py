"""Searches that say no kind get that of their words, and only those."""

from __future__ import annotations

from forebay.kernel.context import RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.query import KindedRetriever, with_kind
from forebay.testing.generation import context


class Told:
    def __init__(self) -> None:
        self.requests: list[SearchRequest] = []

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.requests.append(request)
        return SearchResult((), "bm25", 1)


async def test_the_kind_is_filled_in() -> None:
    told = Told()
    await KindedRetriever(told).retrieve(context(), SearchRequest("k", "怎么重置密码？"))
    given = SearchRequest("k", "怎么重置密码？", kind="relation")
    await KindedRetriever(told).retrieve(context(), given)
    assert [one.kind for one in told.requests] == ["faq", "relation"]


def test_one_text_has_one_kind() -> None:
    """Keys and retrievers fill it in apart from each other."""
    request = SearchRequest("k", "Why did it stop?")
    assert with_kind(request) == with_kind(with_kind(request))
