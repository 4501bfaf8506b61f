"""The pipeline's values as wire messages."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from forebay.gateway.timing import timings
from forebay.kernel.context import Coverage, Degradation, RequestContext
from forebay.kernel.documents import DocumentInfo, Hit, KbInfo
from forebay.kernel.stages import Understood
from forebay.pipeline.chunk_keys import FoundChunk
from forebay.pipeline.messages import AnswerEnd, Citation, Usage
from forebay.wire.chat import (
    CitationBody,
    CoverageBody,
    DegradationBody,
    ForebayBody,
    QueryBody,
    UsageBody,
)
from forebay.wire.knowledge import ChunkBody, ChunkLabels, DocumentBody, DocumentWithText, KbBody
from forebay.wire.search import SearchHit


class AnswerFrame(msgspec.Struct, frozen=True):
    """What every chunk of one answer repeats."""

    id: str
    created: int
    model: str
    kb: str
    with_usage: bool


def citation_body(citation: Citation) -> CitationBody:
    """A citation on the wire."""
    return CitationBody(
        index=citation.index,
        document_id=citation.document_id,
        chunk_id=citation.chunk_id,
        title=citation.title,
        source=citation.source,
        text=citation.text,
        score=citation.score,
        start=citation.start,
        end=citation.end,
        page=citation.page,
        heading_path=citation.heading_path,
    )


def usage_body(usage: Usage) -> UsageBody:
    """Tokens with their sum."""
    total = usage.prompt_tokens + usage.completion_tokens
    return UsageBody(usage.prompt_tokens, usage.completion_tokens, total)


def degradation_bodies(degradations: tuple[Degradation, ...]) -> tuple[DegradationBody, ...]:
    """Steps down on the wire."""
    return tuple(DegradationBody(d.stage, d.rung, d.reason) for d in degradations)


def coverage_body(coverage: Coverage | None) -> CoverageBody | None:
    """What was searched on the wire."""
    if coverage is None:
        return None
    return CoverageBody(share_told(coverage.words), share_told(coverage.vectors))


def share_told(share: float | None) -> float | None:
    """No more digits than mean something, and never a whole that is not one."""
    return None if share is None else math.floor(share * 10_000) / 10_000


def forebay_body(ctx: RequestContext, kb: str, end: AnswerEnd) -> ForebayBody:
    """What is known at an answer's end."""
    return ForebayBody(
        request_id=ctx.request_id,
        kb=kb,
        kb_version=end.kb_version,
        rung=end.rung,
        model=end.model,
        refused=end.refused,
        unsure=end.unsure,
        invalid_citations=end.invalid_citations,
        degradations=degradation_bodies(end.degradations),
        cache=ctx.told_cache(),
        timings=timings(ctx),
        coverage=coverage_body(ctx.coverage),
        query=query_body(end.understood),
        scene=ctx.scene.name or msgspec.UNSET,
    )


def query_body(understood: Understood | None) -> QueryBody | msgspec.UnsetType:
    """How a question was read, on the wire; absent where nobody read it."""
    if understood is None:
        return msgspec.UNSET
    return QueryBody(
        language=understood.language,
        kind=understood.kind,
        question=understood.question,
        rewritten=understood.rewritten,
        parts=understood.parts,
        missing=understood.missing,
        senses=tuple(sense.name for sense in understood.senses),
    )


def search_hit(hit: Hit) -> SearchHit:
    """A hit on the wire."""
    chunk = hit.chunk
    return SearchHit(
        document_id=chunk.document_id,
        chunk_id=str(chunk.chunk_id),
        text=chunk.text,
        score=hit.score,
        source=chunk.source,
        title=chunk.title,
        start=chunk.start,
        end=chunk.end,
        page=chunk.page,
        heading_path=chunk.heading_path,
    )


def kb_body(info: KbInfo) -> KbBody:
    """A knowledge base on the wire."""
    return KbBody(
        name=info.name,
        kb_version=info.version,
        documents=info.documents,
        chunks=info.chunks,
        embedded_chunks=info.embedded_chunks,
        characters=info.characters,
        embedder=info.embedder,
        created_at=info.created_at,
        embedded_share=_share(info.embedded_chunks, info.chunks),
        sentences=info.sentences,
    )


def _share(part: int, whole: int) -> float:
    return share_told(part / whole) or 0.0 if whole else 1.0


def document_body(info: DocumentInfo) -> DocumentBody:
    """A document on the wire."""
    return DocumentBody(**_document_fields(info))


def document_with_text(info: DocumentInfo, text: str) -> DocumentWithText:
    """A document and its text on the wire."""
    return DocumentWithText(**_document_fields(info), text=text)


def chunk_body(kb: str, found: FoundChunk) -> ChunkBody:
    """A chunk by its key on the wire."""
    keyed, kept = found.keyed, found.keyed.kept
    assert kept is not None
    chunk = keyed.chunk
    return ChunkBody(
        key=str(keyed.key),
        state="living" if chunk is not None else "superseded",
        document_id=keyed.document_id,
        text=kept.text,
        context=kept.context,
        heading_path=kept.heading_path,
        heat=found.heat,
        ttl_s=found.ttl_s,
        labels=ChunkLabels(kb, () if chunk is None else chunk.tags, found.priority),
        chunk_id=None if chunk is None else str(chunk.chunk_id),
        successor=None if keyed.successor is None else str(keyed.successor),
    )


def _document_fields(info: DocumentInfo) -> dict[str, Any]:
    fields = msgspec.structs.asdict(info)
    fields["id"] = fields.pop("document_id")
    fields["kb_version"] = fields.pop("version")
    return fields
