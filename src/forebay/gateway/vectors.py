"""POST /v1/embeddings: the embedder's vectors in OpenAI's shape."""

from __future__ import annotations

import asyncio
from array import array
from base64 import b64encode
from collections.abc import Sequence
from sys import byteorder
from typing import Literal

from forebay.gateway.directory import PREFIX, KbDirectory
from forebay.gateway.exchange import Exchange, rate_headers
from forebay.gateway.parts import GatewayParts
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import InvalidRequest, ModelNotFound
from forebay.wire.decoding import JsonDecoder
from forebay.wire.embeddings import (
    EmbeddingItem,
    EmbeddingsAnswer,
    EmbeddingsRequest,
    EmbeddingsUsage,
)

MAX_INPUTS = 2048
_FLOAT_BYTES = 4
_THREAD_ABOVE_NUMBERS = 20_000
_KINDS: dict[str | None, Literal["query", "passage", "raw"]] = {
    None: "raw",
    "query": "query",
    "search_query": "query",
    "passage": "passage",
    "search_document": "passage",
}


class EmbeddingsRoute:
    """Embeds texts; without ``input_type`` they are embedded as they are, no prefix added."""

    def __init__(self, parts: GatewayParts, directory: KbDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._decoder = JsonDecoder(EmbeddingsRequest)

    async def __call__(self, x: Exchange) -> None:
        """Answer one request."""
        body = await x.json(self._decoder)
        if body.model.startswith(PREFIX):
            await self._directory.kb_of_model(x.principal, body.model)
        embedder = self._parts.embedder
        if embedder is None:
            raise ModelNotFound("no embedder is configured here.", param="model")
        texts = _texts(body)
        dimensions = embedder.spec.dimensions
        if body.dimensions not in (None, dimensions):
            raise InvalidRequest(f"vectors have {dimensions} dimensions here.", param="dimensions")
        tokens = await self._tokens(texts)
        if self._parts.charging is not None:
            await self._parts.charging.charge(x.context, "embeddings", tokens)
        with x.context.stage("embedding"):
            vectors = await embedder.embed(texts, kind=_KINDS[body.input_type])
        as_text = body.encoding_format == "base64"
        if len(texts) * dimensions > _THREAD_ABOVE_NUMBERS and not as_text:
            items = await asyncio.to_thread(_items, vectors, as_text)
        else:
            items = _items(vectors, as_text)
        usage = EmbeddingsUsage(tokens, tokens)
        answer = EmbeddingsAnswer(items, embedder.spec.name, usage)
        await x.reply_json(answer, headers=rate_headers(x.context))

    async def _tokens(self, texts: Sequence[str]) -> int:
        count = self._parts.count_tokens
        if count is not None:
            return await asyncio.to_thread(count, texts)
        return sum(estimated_tokens(text) for text in texts)


def estimated_tokens(text: str) -> int:
    """About four bytes of UTF-8 a token: English words and Chinese characters alike."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def _texts(body: EmbeddingsRequest) -> list[str]:
    inputs = (body.input,) if isinstance(body.input, str) else body.input
    if not inputs or len(inputs) > MAX_INPUTS:
        raise InvalidRequest(f"input has 1 to {MAX_INPUTS} texts.", param="input")
    texts = [text for text in inputs if isinstance(text, str)]
    if len(texts) != len(inputs):
        raise InvalidRequest("token ids cannot be embedded here; send text.", param="input")
    if not all(texts):
        raise InvalidRequest("an input text is empty.", param="input")
    return texts


def _items(vectors: Vectors, as_text: bool) -> tuple[EmbeddingItem, ...]:
    width = vectors.dimensions * _FLOAT_BYTES
    rows = (vectors.data[at : at + width] for at in range(0, len(vectors.data), width))
    if as_text:
        return tuple(EmbeddingItem(i, b64encode(row).decode()) for i, row in enumerate(rows))
    return tuple(EmbeddingItem(i, _numbers(row)) for i, row in enumerate(rows))


def _numbers(row: bytes) -> tuple[float, ...]:
    values = array("f", row)
    if byteorder == "big":
        values.byteswap()
    return tuple(values)
