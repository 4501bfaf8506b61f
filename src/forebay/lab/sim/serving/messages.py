"""Requests and answers of the OpenAI API as vLLM speaks it.

Bodies in are decoded into the fields that matter here; bodies out are byte templates, filled in
once a request and once a chunk.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from forebay.kernel.errors import InvalidRequest
from forebay.lab.sim.serving.answers import Answer, Wish
from forebay.lab.sim.serving.prompts import Prompt
from forebay.wire.encoding import encode_json

_PHRASES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    409: "ConflictError",
    413: "RequestTooLargeError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
MaxTokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
LeastTokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Stops = str | Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] | None


class ContentPart(msgspec.Struct, frozen=True, gc=False):
    """A part of a message; only text can be read here."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None


class StreamOptions(msgspec.Struct, frozen=True, gc=False):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class _Common(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: MaxTokens | None = None
    min_tokens: LeastTokens | None = None
    ignore_eos: bool | None = None
    stop: Stops = None
    seed: Seed | None = None
    priority: int | None = None

    def wish(self, cap: int | None, honour_stop: bool) -> Wish:
        """What is asked of the answer."""
        stop = self.stop if honour_stop and self.stop else ()
        least = self.min_tokens or 0
        if cap is not None and least > cap:
            raise InvalidRequest(
                f"min_tokens must be at most max_tokens ({cap}), not {least}.", param="min_tokens"
            )
        return Wish(
            cap=cap,
            least=least,
            ignore_end=bool(self.ignore_eos),
            seed=self.seed or 0,
            stop=(stop,) if isinstance(stop, str) else stop,
        )

    def check(self) -> None:
        """Refuse what is not simulated and would mislead in silence."""
        if self.n not in (None, 1):
            raise InvalidRequest("n: only one answer a request is simulated.", param="n")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only allowed with stream.", param="stream_options"
            )


class ChatRequest(_Common, frozen=True, gc=False, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]
    max_completion_tokens: MaxTokens | None = None

    @property
    def cap(self) -> int | None:
        """The most tokens of an answer; the newer name wins, as in vLLM."""
        return self.max_completion_tokens or self.max_tokens

    def text(self) -> str:
        """The prompt: what the messages say, without a template's own tokens."""
        return conversation_text(self.messages)


class CompletionRequest(_Common, frozen=True, gc=False, kw_only=True):
    """POST /v1/completions, one prompt as text."""

    prompt: str | tuple[str, ...]

    @property
    def cap(self) -> int | None:
        """The most tokens of an answer; 16 where the request does not say, as OpenAI has it."""
        return self.max_tokens or 16

    def text(self) -> str:
        """The prompt."""
        if isinstance(self.prompt, str):
            return self.prompt
        if len(self.prompt) != 1:
            raise InvalidRequest("prompt: only one prompt a request is simulated.", param="prompt")
        return self.prompt[0]


class TokenizeRequest(msgspec.Struct, frozen=True, gc=False):
    """POST /tokenize: a prompt or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None

    def text(self) -> str:
        """What is to be counted."""
        if self.prompt is not None:
            return self.prompt
        if not self.messages:
            raise InvalidRequest("give a prompt or messages to tokenize.", param="prompt")
        return conversation_text(self.messages)


def conversation_text(messages: tuple[Message, ...]) -> str:
    """The text of all messages, one a line."""
    if len(messages) == 1 and isinstance(messages[0].content, str):
        return messages[0].content
    lines: list[str] = []
    for message in messages:
        if isinstance(message.content, str):
            lines.append(message.content)
        for part in message.content or () if not isinstance(message.content, str) else ():
            if part.type != "text" or part.text is None:
                raise InvalidRequest(
                    f"messages: a part of type {part.type} cannot be read; send text.",
                    param="messages",
                )
            lines.append(part.text)
    return "\n".join(lines)


class ErrorBody(msgspec.Struct, frozen=True):
    """vLLM's error, whose ``code`` is the status."""

    message: str
    type: str
    param: str | None
    code: int


def error_body(status: int, message: str, param: str | None = None) -> bytes:
    """The JSON of an error."""
    kind = _PHRASES.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return encode_json({"error": ErrorBody(message, kind, param, status)})


def too_long(prompt_tokens: int, cap: int | None, most: int) -> InvalidRequest:
    """What never fits, with the words that clients look for."""
    wanted = (
        f"your messages have {prompt_tokens} tokens"
        if cap is None
        else f"you ask for {cap} tokens after a prompt of {prompt_tokens}"
    )
    return InvalidRequest(
        f"This model's maximum context length is {most} tokens, but {wanted}; "
        "send less or ask for less.",
        param="messages" if cap is None else "max_tokens",
    )


class AnswerForm:
    """The fixed bytes around an answer's text, chunk by chunk or in one piece."""

    __slots__ = ("_chat", "_chunk", "_head", "_id")

    def __init__(self, model: str, answer_id: str, created: int, *, chat: bool) -> None:
        self._chat = chat
        self._id = answer_id
        name = msgspec.json.encode(model)
        kind = "chat.completion" if chat else "text_completion"
        self._head = b'{"id":"%b","object":"%b%%b","created":%d,"model":%b,"choices":[' % (
            answer_id.encode(),
            kind.encode(),
            created,
            name.replace(b"%", b"%%"),
        )
        head = self._head % (b".chunk" if chat else b"")
        delta = b'{"index":0,"delta":{"content":"' if chat else b'{"index":0,"text":"'
        self._chunk = b"data: " + head + delta

    def opening(self) -> bytes:
        """What comes before the first text."""
        if not self._chat:
            return b""
        return self._chunk[: -len(b'"content":"')] + (
            b'"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
        )

    def chunk(self, text: bytes) -> bytes:
        """An event with a piece of text."""
        if self._chat:
            return self._chunk + text + b'"},"logprobs":null,"finish_reason":null}]}\n\n'
        return self._chunk + text + b'","logprobs":null,"finish_reason":null}]}\n\n'

    def ending(self, text: bytes, answer: Answer, usage: bytes | None) -> bytes:
        """The last events: the last text with the reason, usage if asked for, the end mark."""
        close = b'"}' if self._chat else b'"'
        reason = answer.reason.encode()
        last = b'%b%b%b,"logprobs":null,"finish_reason":"%b","stop_reason":null}]}\n\n' % (
            self._chunk,
            text,
            close,
            reason,
        )
        if usage is not None:
            head = self._head % (b".chunk" if self._chat else b"")
            last += b"data: " + head + b'],"usage":' + usage + b"}\n\n"
        return last + b"data: [DONE]\n\n"

    def whole(self, answer: Answer, usage: bytes) -> bytes:
        """The body of an answer in one piece."""
        text = answer.piece(0, answer.tokens)
        said = (
            b'"message":{"role":"assistant","content":"%b","refusal":null}' % text
            if self._chat
            else b'"text":"%b"' % text
        )
        return (
            self._head % b""
            + b'{"index":0,%b,"logprobs":null,"finish_reason":"%b","stop_reason":null}],"usage":%b}'
            % (said, answer.reason.encode(), usage)
        )


def usage_json(prompt: Prompt, answer: Answer, cached_tokens: int) -> bytes:
    """Token counts of an answer that is whole."""
    return (
        b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
        b'"prompt_tokens_details":{"cached_tokens":%d}}'
        % (prompt.tokens, prompt.tokens + answer.tokens, answer.tokens, cached_tokens)
    )
