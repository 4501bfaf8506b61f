"""POST /v1/search."""

from __future__ import annotations

from forebay.gateway.directory import KbDirectory
from forebay.gateway.exchange import Exchange, stage_headers
from forebay.gateway.parts import GatewayParts
from forebay.gateway.rendering import (
    coverage_body,
    degradation_bodies,
    query_body,
    search_hit,
)
from forebay.kernel.context import Principal
from forebay.kernel.stages import SearchRequest
from forebay.wire.decoding import JsonDecoder
from forebay.wire.search import SearchAnswer, SearchBody


class SearchRoute:
    """Finds passages without writing an answer."""

    def __init__(self, parts: GatewayParts, directory: KbDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._decoder = JsonDecoder(SearchBody)

    async def __call__(self, x: Exchange) -> None:
        """Answer one search."""
        body = await x.json(self._decoder)
        kb = x.kb = await self._kb(x.principal, body)
        x.kb_by_model = body.kb is None
        request = SearchRequest(kb, body.query, body.top_k, body.filter or {})
        found = await self._parts.answering.search(x.context, request)
        answer = SearchAnswer(
            hits=tuple(search_hit(hit) for hit in found.hits),
            rung=found.rung,
            kb=kb,
            kb_version=found.kb_version,
            degradations=degradation_bodies(tuple(x.context.degradations)),
            coverage=coverage_body(x.context.coverage),
            query=query_body(found.understood),
        )
        await x.reply_json(answer, headers=stage_headers(x.context))

    async def _kb(self, principal: Principal, body: SearchBody) -> str:
        if body.kb is not None:
            return await self._directory.kb(principal, body.kb)
        if body.model:
            return await self._directory.kb_of_model(principal, body.model)
        return await self._directory.default(principal)
