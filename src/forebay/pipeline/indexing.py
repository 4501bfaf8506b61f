"""What can be answered while the folders of a knowledge base are read for the first time.

An empty knowledge base answers that nothing could be found. While its documents are still coming
that is no answer, and what is found among some of them may not be the best there will be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from forebay.kernel.context import Degradation, RequestContext
from forebay.kernel.errors import Unavailable
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult

Lack = Literal["indexing", "not_indexed"]
_WHY: dict[Lack, str] = {
    "indexing": "the knowledge base is being indexed for the first time; try again shortly.",
    "not_indexed": "the knowledge base could not be indexed; GET /readyz says why.",
}


class IndexingRetriever:
    """``Retriever`` that says of another's results what is not in them yet.

    ``lack`` is why a knowledge base does not hold all of its folders; None: it does. Where nothing
    was ever committed to it, ``Unavailable`` with that as its code; else a degradation, with which
    nobody keeps an answer.
    """

    def __init__(self, inner: Retriever, lack: Callable[[str], Lack | None]) -> None:
        self._inner = inner
        self._lack = lack

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``."""
        # Before it is searched: what came in meanwhile was not found.
        lack = self._lack(request.kb)
        found = await self._inner.retrieve(ctx, request)
        if lack is None:
            return found
        if not found.kb_version:
            raise Unavailable(_WHY[lack], code=lack)
        step = Degradation("retrieval", found.rung, lack)
        if step not in ctx.degradations:
            ctx.degradations.append(step)
        return found
