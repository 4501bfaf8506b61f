"""What an OpenAI-compatible engine streams back: pieces of text, the end, an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from forebay.kernel.errors import EngineError
from forebay.kernel.stages import FinishReason, GenerationRequest
from forebay.wire.sse import DONE, EventTooLong, SseDecoder

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "content_filter": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "max_tokens": "length",
}
_CHARACTER_BYTES = 4
_TEMPLATE_TOKENS = 4096
# The longest tokens of usual vocabularies are runs of 128 blanks.
_TOKEN_CHARACTERS = 128


class _Content(msgspec.Struct, gc=False):
    content: str | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Content | None = None
    message: _Content | None = None
    finish_reason: str | None = None


class EngineUsage(msgspec.Struct, gc=False):
    """The engine's own token counts."""

    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None

    def prompt_of(self, request: GenerationRequest) -> int | None:
        """Tokens of the prompt; None for a number that cannot be.

        Quotas and figures are charged by it, and an engine behind a proxy may say anything: no
        token is less than a byte, but for what the engine's own template adds.
        """
        characters = sum(len(one.content) for one in request.messages)
        most = _CHARACTER_BYTES * characters + _TEMPLATE_TOKENS
        return _between(1, self.prompt_tokens, most)

    def completion_of(self, request: GenerationRequest, characters: int) -> int | None:
        """Tokens of an answer so long, what was thought before it included; None as above."""
        most = max(request.max_output_tokens, _CHARACTER_BYTES * characters)
        return _between(min(1, characters), self.completion_tokens, most)


_NOTHING = msgspec.Raw()


class _Chunk(msgspec.Struct, gc=False):
    object: str | None = None
    choices: list[_Choice] | None = None
    usage: EngineUsage | None = None
    error: msgspec.Raw = _NOTHING  # a union with None takes nothing else


class CompletionReader:
    """Bytes in, pieces of the first choice's text out; what else was said is kept.

    An error object, an aborted answer and anything that is no chat completion is ``EngineError``;
    the engine's own words stay out of the message, they may name what nobody should read.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._events = SseDecoder(max_event_bytes)
        self._decoder = msgspec.json.Decoder(_Chunk)
        self.reason: FinishReason | None = None
        self.usage: EngineUsage | None = None
        self.done = False

    def token(self, data: bytes) -> str | None:
        """The text of ``data`` where it is one event with text and nothing else, as most are.

        None: ``feed`` it; nothing has happened.
        """
        event = self._events.one_object(data)
        if event is None or self.done:
            return None
        try:
            chunk = self._decoder.decode(event)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        choices = chunk.choices
        if choices is None or len(choices) != 1:
            return None
        choice = choices[0]
        if choice.finish_reason or choice.index or choice.delta is None:
            return None
        if chunk.usage is not None or chunk.error is not _NOTHING or chunk.object == "error":
            return None
        return choice.delta.content

    def feed(self, data: bytes, into: list[str]) -> None:
        """Add the pieces of text that ``data`` completes, those before an error too."""
        if not self.done and (events := self._events.whole_objects(data)) is not None:
            ends = data.endswith(DONE)
            if ends:
                events.pop()
            try:
                chunks = [self._decoder.decode(event) for event in events]
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                # Whatever it is, it is told when it is read as any other.
                pass
            else:
                for chunk in chunks:
                    self._take(chunk, into)
                self.done = ends
                return
        for text in self._texts(data):
            if self.done:
                return
            if text == "[DONE]" or text.strip() == "[DONE]":
                self.done = True
            elif text.strip():
                self.chunk(text, into)

    def _texts(self, data: bytes) -> Iterator[str]:
        try:
            for event in self._events.feed(data):
                if event.event == "error" and not self.done:
                    raise EngineError("The engine reported an error in its answer.")
                yield event.data
        except EventTooLong as error:
            raise EngineError("The engine sent an event that is too long.") from error

    def end(self, into: list[str]) -> None:
        """Add what a last event without its blank line holds; an incomplete one is an error."""
        self.feed(b"\n\n", into)

    def whole(self, data: bytes, into: list[str]) -> None:
        """Read an answer that came in one piece although a stream was asked for."""
        self.chunk(data, into)
        self.done = True

    def chunk(self, data: bytes | str, into: list[str]) -> None:
        """Add the text of one JSON chunk."""
        try:
            chunk = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise EngineError("The engine answered something else than a completion.") from error
        self._take(chunk, into)

    def _take(self, chunk: _Chunk, into: list[str]) -> None:
        failed = chunk.error is not _NOTHING and bytes(chunk.error) not in (b"null", b"{}")
        if failed or chunk.object == "error":
            raise EngineError("The engine reported an error in its answer.")
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices or ():
            if choice.index:
                continue
            content = choice.delta or choice.message
            if content is not None and content.content:
                into.append(content.content)
            if choice.finish_reason:
                self._finish(choice.finish_reason)

    def _finish(self, reason: str) -> None:
        if reason in ("abort", "error", "cancelled"):
            raise EngineError("The engine gave its answer up.")
        # A reason nobody knows still says that the answer is whole.
        self.reason = _REASONS.get(reason, "stop")


def _between(least: int, number: float | None, most: int) -> int | None:
    return int(number) if number is not None and least <= number <= most else None


def longest_answer(request: GenerationRequest) -> int:
    """Characters after which an engine no longer keeps to the tokens that it was asked for."""
    return _TOKEN_CHARACTERS * request.max_output_tokens + _TEMPLATE_TOKENS


_PASSED_ON = (
    "temperature",
    "top_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "response_format",
)


def completion_body(
    request: GenerationRequest, *, max_output_tokens: int, model: str | None = None
) -> bytes:
    """Return the streaming request as JSON; of the sampling fields only those the caller sent."""
    sampling = request.sampling
    wanted = [request.max_output_tokens, max_output_tokens]
    if sampling.max_tokens is not None:
        wanted.append(sampling.max_tokens)
    body: dict[str, Any] = {} if model is None else {"model": model}
    body |= {
        "messages": [
            # A lone surrogate has no encoding; it becomes a question mark.
            {"role": one.role, "content": one.content.encode("utf-8", "replace").decode()}
            for one in request.messages
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": min(wanted),
    }
    for name in _PASSED_ON:
        value = getattr(sampling, name)
        if value is not None:
            body[name] = value
    return msgspec.json.encode(body)
