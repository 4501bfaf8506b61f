"""OpenAI embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Token = Annotated[int, msgspec.Meta(ge=0)]


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """POST /v1/embeddings; token ids cannot be embedded here and are refused."""

    model: str
    input: str | tuple[str | int | tuple[Token, ...], ...]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    input_type: Literal["query", "passage", "search_query", "search_document"] | None = None


class EmbeddingItem(msgspec.Struct, frozen=True):
    """One vector: numbers, or base64 of little-endian float32."""

    index: int
    embedding: tuple[float, ...] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingsUsage(msgspec.Struct, frozen=True):
    """Tokens embedded."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(msgspec.Struct, frozen=True):
    """Vectors in the order of the input."""

    data: tuple[EmbeddingItem, ...]
    model: str
    usage: EmbeddingsUsage
    object: Literal["list"] = "list"
