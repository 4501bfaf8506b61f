"""Tells a retriever what kind of question it is given, where nobody has."""

from __future__ import annotations

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.query.understanding import kind_by_words


class KindedRetriever:
    """``Retriever`` around another: searches that say no kind get that of their words.

    Whoever keeps results under a key must fill it in the same way (``with_kind``).
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``."""
        return await self._inner.retrieve(ctx, with_kind(request))


def with_kind(request: SearchRequest) -> SearchRequest:
    """The search with the kind of its words, unless it says one; the same for the same words."""
    if request.kind is not None:
        return request
    return msgspec.structs.replace(request, kind=kind_by_words(request.query))
