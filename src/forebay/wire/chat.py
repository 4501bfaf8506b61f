"""OpenAI chat completions: request, answer, chunk.

Fields this server does not know are accepted and ignored, as OpenAI's own servers and
most compatible ones do; fields it cannot honour are refused where silence would mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from forebay.wire.errors import ErrorDetail

Role = Literal["developer", "system", "user", "assistant", "tool", "function"]
Filter = Mapping[str, str | tuple[str, ...]]
TopK = Annotated[int, msgspec.Meta(ge=1, le=100)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
MaxTokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a multi-part message; only ``type`` ``text`` can be answered."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One message; ``content`` may be absent where an assistant called a tool."""

    role: Role
    content: str | tuple[ContentPart, ...] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class ForebayOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This server's own request options, under the key ``forebay``; a misspelt one is refused."""

    top_k: TopK | None = None
    filter: Filter | None = None
    near: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Least cosine of a question whose kept answer will do; it can only ask for more. 1: none."""


_UNUSED = (
    "tools",
    "functions",
    "function_call",
    "logit_bias",
    "reasoning_effort",
    "verbosity",
)


class ChatRequest(msgspec.Struct, frozen=True):
    """POST /v1/chat/completions."""

    model: str
    messages: Annotated[tuple[ChatMessage, ...], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    stop: str | Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_format: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    forebay: ForebayOptions | None = None
    # Not used here, but two requests that differ in them are not the same.
    tools: Any = None
    functions: Any = None
    function_call: Any = None
    logit_bias: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None

    def unused(self) -> bytes:
        """The fields that nothing here understands, in one form; empty without any."""
        found = {name: getattr(self, name) for name in _UNUSED if getattr(self, name) is not None}
        return msgspec.json.encode(found, order="deterministic") if found else b""


class CitationBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source of the answer; ``index`` is the number in ``[n]``."""

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


class DegradationBody(msgspec.Struct, frozen=True):
    """A step down that was taken for this answer."""

    stage: str
    rung: str
    reason: str


class CoverageBody(msgspec.Struct, frozen=True):
    """Share of the knowledge base's chunks that each way of searching could see.

    Null: it was not needed; under 1: some of it was missing.
    """

    words: float | None
    vectors: float | None


class TimingBody(msgspec.Struct, frozen=True):
    """Milliseconds that one stage waited and worked."""

    stage: str
    waited_ms: float
    worked_ms: float


class QueryBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a question was read: what was searched for, and what else beside it.

    ``question`` is the user's own unless it was ``rewritten``. ``parts`` were looked up beside it,
    but for those ``missing``, which could not be in time; ``senses`` are what the passages show it
    to mean, where that is several things.
    """

    language: str
    kind: str
    question: str
    rewritten: bool = False
    parts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    senses: tuple[str, ...] = ()


class ForebayBody(msgspec.Struct, frozen=True):
    """What is known of an answer at its end."""

    request_id: str
    kb: str
    kb_version: int
    rung: str
    model: str
    refused: bool
    unsure: bool
    invalid_citations: int
    degradations: tuple[DegradationBody, ...]
    cache: Mapping[str, str]
    timings: tuple[TimingBody, ...]
    coverage: CoverageBody | None = None
    query: QueryBody | msgspec.UnsetType = msgspec.UNSET
    scene: str | msgspec.UnsetType = msgspec.UNSET


class UsageBody(msgspec.Struct, frozen=True):
    """Tokens of a chat completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AnswerMessage(msgspec.Struct, frozen=True):
    """The assistant's message."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class Choice(msgspec.Struct, frozen=True):
    """The one choice of an answer."""

    message: AnswerMessage
    finish_reason: Literal["stop", "length"]
    index: int = 0
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    """An answer that was not streamed."""

    id: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: UsageBody
    citations: tuple[CitationBody, ...]
    forebay: ForebayBody
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    """The one choice of a chunk."""

    delta: Delta
    finish_reason: Literal["stop", "length"] | None = None
    index: int = 0
    logprobs: None = None


class ChatChunk(msgspec.Struct, frozen=True):
    """One piece of a streamed answer.

    ``citations`` and ``forebay`` are in the last chunk that has content. With
    ``stream_options.include_usage`` every chunk has ``usage``, null but in the last one, which
    has no choice.
    """

    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: UsageBody | msgspec.UnsetType | None = msgspec.UNSET
    citations: tuple[CitationBody, ...] | msgspec.UnsetType = msgspec.UNSET
    forebay: ForebayBody | msgspec.UnsetType = msgspec.UNSET


class StreamError(msgspec.Struct, frozen=True):
    """The last event of a stream that failed after it had begun."""

    error: ErrorDetail
