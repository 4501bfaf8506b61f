"""Rerank in the shape that Jina and Cohere share."""

from __future__ import annotations

from typing import Annotated

import msgspec


class RerankText(msgspec.Struct, frozen=True):
    """A document as an object."""

    text: str


class RerankRequest(msgspec.Struct, frozen=True):
    """POST /v1/rerank."""

    query: str
    documents: Annotated[tuple[str | RerankText, ...], msgspec.Meta(min_length=1)]
    model: str | None = None
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool | None = None


class RerankResult(msgspec.Struct, frozen=True):
    """One document's relevance; ``index`` is its place in the request."""

    index: int
    relevance_score: float
    document: RerankText | msgspec.UnsetType = msgspec.UNSET


class RerankUsage(msgspec.Struct, frozen=True):
    """Tokens read, where they are counted."""

    total_tokens: int


class RerankAnswer(msgspec.Struct, frozen=True):
    """Documents by falling relevance."""

    id: str
    model: str
    results: tuple[RerankResult, ...]
    usage: RerankUsage
