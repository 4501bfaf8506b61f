"""What the fragility watch sees of a request, and what is done about it (F0.2).

A fragile search is made again with more hits, the model is told to rather refuse than guess, and
the answer is marked as degraded: it says why, it is counted, and no cache keeps it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.stages import Message, SearchRequest, SearchResult
from forebay.policy.fragility import Bounds, FragilityChange, FragilitySettings, FragilityWatch

STAGE = "fragility"
REASONS = {
    "spread": "hits_disagree",
    "confidence": "confidence_unsteady",
    "unsupported": "unsupported_statements",
}
CAUTION = {
    "en": "The passages found for this question are less alike than usual: they may speak of "
    "different things. Answer only what they state plainly; otherwise say that it was not found "
    "in the documents, and what the question would have to name.",
    "zh": "这个问题检索到的资料彼此差异较大，可能说的不是同一件事。只回答资料中明确写出的内容；"
    "否则说明在文档中没有找到，并指出问题还需要明确什么。",
}
_MAX_KBS = 1000

Retrieve = Callable[[RequestContext, SearchRequest], Awaitable[SearchResult]]


class Spread(msgspec.Struct, frozen=True):
    """How alike a search's first hits are, and what is normal (None: not calibrated yet)."""

    value: float
    bounds: Bounds | None


class Fragility:
    """The watches of all knowledge bases of a process.

    ``spread`` reads hits' vectors and takes care not to block; ``unsupported`` is blocking.
    ``changed`` hears of rolling figures that change level.
    """

    def __init__(
        self,
        settings: FragilitySettings,
        spread: Callable[[str, Sequence[int]], Awaitable[Spread | None]],
        unsupported: Callable[[str, Sequence[Hit]], float],
        changed: Callable[[FragilityChange], None],
    ) -> None:
        self._settings = settings
        self._spread = spread
        self._unsupported = unsupported
        self._changed = changed
        self._watches: dict[str, FragilityWatch] = {}

    async def searched(
        self, ctx: RequestContext, request: SearchRequest, found: SearchResult, again: Retrieve
    ) -> SearchResult:
        """Judge a search; a fragile one is made again with more hits, and told in ``ctx``."""
        if not await self._fragile(ctx, request.kb, found, "wider"):
            return found
        wanted = math.ceil(request.top_k * self._settings.widen)
        if wanted <= request.top_k or len(found.hits) < request.top_k:
            return found
        return await again(ctx, msgspec.structs.replace(request, top_k=wanted))

    async def shown(self, ctx: RequestContext, kb: str, found: SearchResult) -> None:
        """Judge a search whose hits are shown as they are; a fragile one is told in ``ctx``.

        It is made no wider: whoever reads hits has said how many.
        """
        await self._fragile(ctx, kb, found, "told")

    async def _fragile(self, ctx: RequestContext, kb: str, found: SearchResult, rung: str) -> bool:
        if not found.hits:
            return False
        first = found.hits[0]
        confidence = first.score if first.rerank is None else first.rerank
        seen = await self._spread(kb, [hit.chunk.chunk_id for hit in found.hits])
        signs = self._watch(kb).searched(
            min(1.0, max(0.0, confidence)),
            None if seen is None else seen.value,
            None if seen is None else seen.bounds,
        )
        for sign in signs:
            ctx.degrade(STAGE, rung, REASONS[sign])
        return bool(signs)

    async def answered(
        self, ctx: RequestContext, kb: str, text: str, passages: Sequence[Hit]
    ) -> None:
        """Judge a finished answer that is no refusal; a fragile one is told in ``ctx``."""
        share = await asyncio.to_thread(self._unsupported, text, passages)
        if self._watch(kb).answered(share):
            ctx.degrade(STAGE, "unsupported", REASONS["unsupported"])

    def statistics(self) -> Mapping[str, Mapping[str, float]]:
        """Rolling figures by knowledge base."""
        return {kb: watch.statistics() for kb, watch in self._watches.items()}

    def _watch(self, kb: str) -> FragilityWatch:
        watch = self._watches.get(kb)
        if watch is None:
            while len(self._watches) >= _MAX_KBS:
                self._watches.pop(next(iter(self._watches)))
            watch = self._watches[kb] = FragilityWatch(kb, self._settings, self._changed)
        return watch


def is_fragile(ctx: RequestContext) -> bool:
    """Whether what was found for this request is fragile."""
    return any(step.stage == STAGE for step in ctx.degradations)


def cautioned(messages: Sequence[Message], language: str) -> tuple[Message, ...]:
    """``messages`` with the advice to rather refuse than guess, in the question's language."""
    return (Message("system", CAUTION.get(language, CAUTION["en"])), *messages)
