"""POST /v1/rerank and /rerank: documents against a query."""

from __future__ import annotations

from forebay.gateway.exchange import Exchange, rate_headers
from forebay.gateway.parts import GatewayParts
from forebay.gateway.vectors import estimated_tokens
from forebay.kernel.errors import InvalidRequest, ModelNotFound
from forebay.wire.decoding import JsonDecoder
from forebay.wire.rerank import (
    RerankAnswer,
    RerankRequest,
    RerankResult,
    RerankText,
    RerankUsage,
)

MAX_DOCUMENTS = 1000


class RerankRoute:
    """Orders documents by relevance; texts come back unless ``return_documents`` is false."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._decoder = JsonDecoder(RerankRequest)

    async def __call__(self, x: Exchange) -> None:
        """Answer one request."""
        body = await x.json(self._decoder)
        reranker = self._parts.reranker
        if reranker is None:
            raise ModelNotFound("no reranker is configured here.", param="model")
        if len(body.documents) > MAX_DOCUMENTS:
            raise InvalidRequest(
                f"at most {MAX_DOCUMENTS} documents can be reranked at once.", param="documents"
            )
        if not body.query.strip():
            raise InvalidRequest("the query is empty.", param="query")
        texts = [item if isinstance(item, str) else item.text for item in body.documents]
        tokens = sum(map(estimated_tokens, texts)) + estimated_tokens(body.query) * len(texts)
        if self._parts.charging is not None:
            await self._parts.charging.charge(x.context, "rerank", tokens)
        with x.context.stage("rerank"):
            scores = await reranker.rerank(x.context, body.query, texts)
        order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
        with_text = body.return_documents is not False
        results = tuple(
            RerankResult(index, scores[index], RerankText(texts[index]))
            if with_text
            else RerankResult(index, scores[index])
            for index in order[: body.top_n]
        )
        answer = RerankAnswer(
            id=f"rerank-{self._parts.new_id()}",
            model=body.model or "forebay-reranker",
            results=results,
            usage=RerankUsage(tokens),
        )
        await x.reply_json(answer, headers=rate_headers(x.context))
