"""Search: passages without an answer."""

from __future__ import annotations

import msgspec

from forebay.wire.chat import CoverageBody, DegradationBody, Filter, QueryBody, TopK


class SearchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/search; ``kb``, or ``model`` as ``forebay/<kb>``, else the default one.

    An unknown field is refused: there is no other client's convention to be lenient to.
    """

    query: str
    top_k: TopK = 5
    filter: Filter | None = None
    kb: str | None = None
    model: str | None = None


class SearchHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One passage; ``start`` and ``end`` are character offsets in the document's text."""

    document_id: str
    chunk_id: str
    text: str
    score: float
    source: str
    title: str
    start: int
    end: int
    page: int | None = None
    heading_path: tuple[str, ...] = ()


class SearchAnswer(msgspec.Struct, frozen=True):
    """Passages, best first, and how they were found."""

    hits: tuple[SearchHit, ...]
    rung: str
    kb: str
    kb_version: int
    degradations: tuple[DegradationBody, ...] = ()
    coverage: CoverageBody | None = None
    query: QueryBody | msgspec.UnsetType = msgspec.UNSET
