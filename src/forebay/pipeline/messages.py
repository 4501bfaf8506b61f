"""What the pipeline takes and gives: requests, streamed answer events, changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from forebay.kernel.context import Degradation, RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentInfo, Hit, KbInfo
from forebay.kernel.stages import (
    FinishReason,
    Message,
    Sampling,
    SearchRequest,
    SearchResult,
    Understood,
)

Route = Literal["chat", "mcp"]


class AnswerRequest(msgspec.Struct, frozen=True):
    """A conversation to answer from one knowledge base; the last message is the question.

    ``reserved_tokens`` is the output to reserve, where the client named a larger cap beside
    ``sampling.max_tokens``. ``route`` is how it was asked. ``extras`` are request fields that
    nothing here understands, as the client sent them: two requests that differ in them are not the
    same.
    """

    kb: str
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    top_k: int = 5
    filter: Mapping[str, str | tuple[str, ...]] = {}
    route: Route = "chat"
    extras: bytes = b""
    near: float | None = None
    reserved_tokens: int | None = None


class Citation(msgspec.Struct, frozen=True):
    """One source of an answer; ``index`` is the ``[n]`` in the text, 1-based.

    ``start`` and ``end`` are character offsets into the document's extracted text.
    """

    index: int
    document_id: str
    chunk_id: str
    title: str
    source: str
    text: str
    score: float
    start: int
    end: int
    page: int | None = None
    heading_path: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """Tokens charged, counted by the engine where it says so, else by this side."""

    prompt_tokens: int
    completion_tokens: int


class AnswerDelta(msgspec.Struct, frozen=True, gc=False):
    """Answer text, citation markers already clean."""

    text: str


class Rests(msgspec.Struct, frozen=True):
    """What an answer rests on: the passages in its prompt, and the retrieval that chose them."""

    passages: tuple[Hit, ...]
    found: SearchResult


class AnswerEnd(msgspec.Struct, frozen=True):
    """What is known when the last text has been sent.

    ``invalid_citations`` counts markers that pointed nowhere and were dropped. ``refused``
    says that no passage supports an answer, ``unsure`` that the text quotes what comes nearest to
    one and says so. ``rests`` is for caches; None: nobody may keep it.
    ``understood``: how the question was read, where somebody did.
    """

    finish_reason: FinishReason
    citations: tuple[Citation, ...]
    usage: Usage
    model: str
    rung: str
    kb_version: int
    refused: bool = False
    unsure: bool = False
    invalid_citations: int = 0
    degradations: tuple[Degradation, ...] = ()
    rests: Rests | None = None
    understood: Understood | None = None


class StoredAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer as it was given; ``rule`` allowed it to be kept, it rests on ``documents``."""

    text: str
    end: AnswerEnd
    rule: str
    documents: tuple[str, ...]


class CitationWriter(Protocol):
    """Cleans citation markers in one answer's stream and collects what they point to."""

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived."""
        ...

    def finish(self, *, refused: bool = False) -> tuple[str, Sequence[Citation], int]:
        """Return the held-back rest, the citations by index, and the count of bad markers.

        A refusal rests on no passage: none is looked for.
        """
        ...


class Answering(Protocol):
    """The answering life."""

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Retrieve (and rerank) without generating."""
        ...

    def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncIterator[AnswerDelta | AnswerEnd]:
        """Yield deltas, then one ``AnswerEnd``; closing the iterator frees everything."""
        ...


class Upload(msgspec.Struct, frozen=True):
    """A document's bytes and what the caller says of them.

    ``name`` guides format detection (file name or id). ``groups`` and ``tags`` None keep what
    the document itself declares (front matter). ``within_groups`` are those that the caller holds:
    the document may get no other, whatever says so; None: any.
    """

    document_id: str
    data: bytes
    name: str
    media_type: str | None = None
    title: str | None = None
    source: str | None = None
    language: str | None = None
    tags: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    metadata: Mapping[str, str] = {}
    within_groups: frozenset[str] | None = None


WaitFor = Literal["committed", "embedded"]


class DocumentPage(msgspec.Struct, frozen=True):
    """A page of documents in id order; ``next_after`` None means the last page."""

    documents: tuple[DocumentInfo, ...]
    next_after: str | None


class Knowledge(Protocol):
    """Reading and changing knowledge bases; rights are the gateway's to check by kb name.

    Group rights inside a kb are checked here against ``ctx.principal``.
    """

    async def put(
        self, ctx: RequestContext, kb: str, upload: Upload, *, wait: WaitFor = "committed"
    ) -> CommitReceipt:
        """Add or replace one document; returns once record and lexical index have it."""
        ...

    async def delete(self, ctx: RequestContext, kb: str, document_id: str) -> CommitReceipt:
        """Remove one document; ``NotFound`` when there is none."""
        ...

    async def document(
        self, ctx: RequestContext, kb: str, document_id: str
    ) -> tuple[DocumentInfo, str]:
        """One document and its extracted text; ``NotFound`` also when its groups forbid it."""
        ...

    async def documents(
        self, ctx: RequestContext, kb: str, *, after: str | None = None, limit: int = 100
    ) -> DocumentPage:
        """A page of the documents the principal may read."""
        ...

    async def kbs(self) -> tuple[KbInfo, ...]:
        """Every knowledge base of the store."""
        ...

    async def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        """One knowledge base; ``NotFound`` when there is none.

        With ``groups``, it is counted as if it held only what these may read.
        """
        ...
