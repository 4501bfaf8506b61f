"""The retriever: words first, then vectors, fused per query; rights inside every leg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import DeadlineExceeded, InvalidRequest
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.retrieval.index import KbIndex, Snapshot
from forebay.retrieval.keys import filter_keys, passes
from forebay.retrieval.lexical_search import Demands, LexicalHits
from forebay.retrieval.settings import RetrievalSettings

T = TypeVar("T")


class HybridRetriever:
    """``Retriever`` over the indexes of a process; searches run in ``executor``."""

    def __init__(
        self,
        indexes: Callable[[str], KbIndex],
        settings: RetrievalSettings,
        executor: Executor,
    ) -> None:
        self._indexes = indexes
        self._settings = settings
        self._executor = executor

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return at most ``top_k`` hits the principal may read, best first."""
        if not 1 <= request.top_k <= self._settings.top_k_max:
            raise InvalidRequest(
                f"top_k must be between 1 and {self._settings.top_k_max}.", param="top_k"
            )
        index = self._indexes(request.kb)
        snapshot = index.snapshot()
        if ctx.kb_version is None:
            ctx.kb_version = snapshot.version
        demands = filter_keys(request.filter, ctx.principal.groups)
        with ctx.stage("search.lexical"):
            query = await self._work(ctx, lambda: snapshot.lexical.parse(request.query))
            found = await self._work(
                ctx, lambda: snapshot.lexical.search(query, demands, request.top_k)
            )
        hits = await self._work(ctx, lambda: _rows(index, snapshot, request.kb, demands, found))
        return SearchResult(hits=hits, rung="bm25", kb_version=snapshot.version)

    async def _work(self, ctx: RequestContext, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except TimeoutError as error:
            raise DeadlineExceeded("The request's deadline passed during the search.") from error


def _rows(
    index: KbIndex, snapshot: Snapshot, kb: str, demands: Demands, found: LexicalHits
) -> tuple[Hit, ...]:
    """Fetch the texts; drop what has vanished, is newer than the snapshot, or is not allowed."""
    scores = dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))
    rows = index.feed.rows(kb, list(scores))
    return tuple(
        Hit(chunk=row, score=scores[row.chunk_id], bm25=scores[row.chunk_id])
        for row in rows
        if row.version <= snapshot.version and passes(row, demands)
    )
