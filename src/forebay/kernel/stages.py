"""Stage protocols: at most three methods each; a policy that wraps a stage keeps its protocol."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from forebay.kernel.caching import Evidence
from forebay.kernel.context import Coverage, RequestContext
from forebay.kernel.documents import (
    ChangeSet,
    ChunkDraft,
    ChunkRow,
    Extracted,
    Hit,
    Vectors,
)

FilterValue = str | Sequence[str]
"""A field must equal the value, or any of the values."""

QueryKind = Literal["fact", "relation", "comparison", "faq", "chat", "out_of_scope"]
"""What a question asks for (F3.1); a question out of scope is about no knowledge base."""


QueryLanguage = Literal["zh", "zh-Hant", "en", "mixed", "other"]
"""What a question is written in; ``en`` is what Latin letters are taken for."""


class Sense(msgspec.Struct, frozen=True):
    """One of several things that a question may mean: its hits, by their places (0: the best)."""

    name: str
    hits: tuple[int, ...]


class Understood(msgspec.Struct, frozen=True):
    """A question as it was read.

    ``question`` stands alone; where that is not what the user wrote, it was ``rewritten``.
    ``parts`` are looked up beside it, each by itself; empty: it is one question. ``missing`` are
    those that could not be looked up, or not in time. ``reply`` is said
    instead of an answer. ``unclear``: it is so short that its hits may show several senses, and
    somebody wants to know. ``senses`` are those, where they are several; a ``reply`` cites the best
    hit of each as ``[1]``, ``[2]`` …; with ``each`` every sense is to be answered by itself.
    """

    question: str
    language: QueryLanguage
    kind: QueryKind
    rewritten: bool = False
    parts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    reply: str = ""
    unclear: bool = False
    senses: tuple[Sense, ...] = ()
    each: bool = False


class Likeness(msgspec.Struct, frozen=True):
    """How alike the hits of one search are.

    ``percentiles[i][j]`` (0..100): the share of pairs of unrelated chunks of the knowledge base
    that are less alike than hits ``i`` and ``j``; so it means the same under every embedder.
    """

    percentiles: tuple[tuple[float, ...], ...]


class SearchRequest(msgspec.Struct, frozen=True):
    """A question for one knowledge base.

    ``filter`` keys: ``document_id``, ``source``, ``title``, ``language``, ``tags``,
    or any metadata key; all keys must hold. Group rights are not part of it:
    they come from the context's principal and apply inside every leg. ``kind`` None: nobody
    looked, or could tell. ``hypothesis`` is a passage as an answer might read, whose vector is
    searched for beside the query's; empty: there is none.
    """

    kb: str
    query: str
    top_k: int = 5
    filter: Mapping[str, str | tuple[str, ...]] = {}
    kind: QueryKind | None = None
    hypothesis: str = ""

    @property
    def unranked(self) -> int:
        """How many hits are wanted where nothing tells how to order them anew."""
        return self.top_k


class WideSearch(SearchRequest, frozen=True):
    """A search for candidates that are ordered anew, of which the best ``shown`` remain."""

    shown: int = 1

    @property
    def unranked(self) -> int:
        """See ``SearchRequest``."""
        return self.shown


class Told(msgspec.Struct, frozen=True):
    """Per hit a score, which orders them, and a calibrated relevance in 0..1."""

    scores: Sequence[float]
    relevances: Sequence[float]


class HitVectors(msgspec.Struct, frozen=True):
    """The query's vector and the hits', in their order, as one search saw them.

    float32 little-endian, row-major; a hit without a vector has zeros. ``told``: what a model said
    of the hits already, in the thread that searched. ``nearest``: per hit the cosine of the nearest
    of its sentences, NaN where it has none; empty: not all are known.
    """

    query: bytes
    hits: bytes
    dimensions: int
    told: Told | None = None
    nearest: Sequence[float] = ()


class PartUse(msgspec.Struct, frozen=True, gc=False):
    """How one part of a stage served: in seconds of its own.

    ``found``: whether it found what another part was sure of; None: nobody can tell.
    """

    part: str
    took_s: float
    found: bool | None = None


class SearchResult(msgspec.Struct, frozen=True):
    """Hits, best first, with the rung that produced them and the version they belong to.

    ``evidence`` tells what a change would alter; None: nobody can tell, so nobody may keep it.
    ``vectors`` are there for who orders the hits anew, where a retriever was told to add them.
    ``sure``: no rung above would have found anything else. ``uses``: the parts that had to show
    what they can.
    ``understood``: how the question was read, where somebody did.
    """

    hits: tuple[Hit, ...]
    rung: str
    kb_version: int
    evidence: Evidence | None = None
    vectors: HitVectors | None = None
    coverage: Coverage | None = None
    sure: bool = False
    uses: tuple[PartUse, ...] = ()
    understood: Understood | None = None


class EmbedderSpec(msgspec.Struct, frozen=True):
    """What identifies an embedder: two with the same fingerprint give the same vectors."""

    name: str
    fingerprint: str
    dimensions: int
    max_tokens: int


class Message(msgspec.Struct, frozen=True):
    """One chat message, text only (parts of a multi-part message are joined at the edge)."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Output-affecting request fields; None means the caller did not send the field."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: Mapping[str, object] | None = None

    @property
    def formed(self) -> bool:
        """Whether the answer is to have a form that only an engine can give it."""
        return self.response_format is not None and self.response_format.get("type") != "text"


class GenerationRequest(msgspec.Struct, frozen=True):
    """A built prompt and what it was built from.

    ``messages`` is the finished prompt; ``passages`` are the hits in citation order (passage
    ``i`` is cited as ``[i + 1]``); ``question`` is the standalone question, ``language`` its
    language (``zh``, ``zh-Hant`` or ``en``). ``sentences``: how near single sentences are to the
    question, by their checksum and in deviations above unrelated ones, where that is known;
    ``likeness``: how near two of them are to each other, by both checksums, the lesser first.
    """

    question: str
    language: str
    messages: tuple[Message, ...]
    passages: tuple[Hit, ...]
    sampling: Sampling
    max_output_tokens: int
    prompt_tokens: int
    sentences: Mapping[int, float] = {}
    likeness: Mapping[tuple[int, int], float] = {}


FinishReason = Literal["stop", "length"]


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of generated text, as it arrived."""

    text: str


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The end of a generation; a stream that ends without it was cut.

    ``prompt_tokens`` and ``completion_tokens`` are the engine's own count where it gives one,
    else this side's count. ``refused`` says the generator found no support in the passages,
    ``unsure`` that it quotes what comes nearest and says so. ``bounded``: it was cut, and not by
    the client's own bound.
    """

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    model: str
    refused: bool = False
    unsure: bool = False
    bounded: bool = False


class QueryReader(Protocol):
    """Understands questions: synchronous, without an engine, in microseconds."""

    def read(self, messages: Sequence[Message]) -> Understood:
        """Return what the last user message asks, given what was said before it."""
        ...

    def judge(
        self, understood: Understood, vector: Vectors | None, hits: Sequence[Hit]
    ) -> Understood:
        """Return the same, judged again by what its search showed.

        ``vector`` is the question's, where the search made it or somebody remembered it.
        """
        ...

    def senses(self, understood: Understood, hits: Sequence[Hit], likeness: Likeness) -> Understood:
        """Return the same with the senses that the hits show, where these are several."""
        ...


class Retriever(Protocol):
    """Finds chunks for a query's text; embeds inside."""

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return at most ``top_k`` hits the principal may read, best first."""
        ...


class Reranker(Protocol):
    """Orders candidates against a query."""

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given."""
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        ...

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """Return one L2-normalised vector per text (``ids`` are 0..n-1); long texts are cut."""
        ...


class Working(Protocol):
    """Something that tells working from waiting for a thread or a connection."""

    def at_work_s(self) -> float:
        """Seconds that the query longest in work has been at it; 0: none is, inf: not known."""
        ...


def at_work_s(embedder: Embedder) -> float:
    """The same of any embedder."""
    ask = getattr(embedder, "at_work_s", None)
    return math.inf if ask is None else float(ask())


class InLine(Protocol):
    """An embedder that can do its work in the thread of who asks."""

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        """What embeds this query, blocking for milliseconds, in any thread.

        None: it is not made in this process, or is under way; ask ``embed``. Called in the loop.
        """
        ...


def in_line(embedder: Embedder, text: str) -> Callable[[], Vectors] | None:
    """The same of any embedder."""
    ask: Callable[[str], Callable[[], Vectors] | None] | None = getattr(embedder, "in_line", None)
    return None if ask is None else ask(text)


class TokenCounter(Protocol):
    """Counts tokens as one model counts them."""

    def count(self, text: str) -> int:
        """Tokens in ``text``, special tokens not included; bounded time for any input."""
        ...


class Generator(Protocol):
    """Writes an answer."""

    def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncIterator[TextDelta | Finished]:
        """Yield text as it comes, then exactly one ``Finished``; closing the iterator cancels."""
        ...


class Parser(Protocol):
    """Turns bytes into text and structure."""

    def parse(self, data: bytes, *, name: str, media_type: str | None = None) -> Extracted:
        """Return the text of ``data``; raise ``UnsupportedDocument`` with an actionable reason."""
        ...


class Chunker(Protocol):
    """Cuts an extracted text into chunks."""

    def chunk(self, extracted: Extracted) -> tuple[ChunkDraft, ...]:
        """Return chunks in order; ``extracted.text[c.start:c.end] == c.text`` for each."""
        ...


class IndexFeed(Protocol):
    """What an index needs of the record; every call sees one committed state."""

    def changes(self, kb: str, since: int) -> ChangeSet:
        """Return what happened after version ``since`` (0: everything that lives now)."""
        ...

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        """Return the rows that still exist, in the order asked."""
        ...

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors:
        """Return the vectors that exist among ``chunk_ids``, in the order asked."""
        ...
