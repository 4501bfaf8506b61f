"""What an answer says, read as cheaply as it can be: streamed, plain, or an error.

A reader is fed the body piece by piece with the time of each piece. ``feed`` and ``end`` return
a status when the answer is over, else an empty text. A *content-bearing* chunk is one whose
delta has a text (or reasoning) that is not empty, or a tool call. Chunks that arrive in one read
came together: their gap is zero. JSON is decoded of the first content-bearing chunk and of those
that say more than text; of the others only the bytes are looked at.
"""

from __future__ import annotations

import re
from array import array
from typing import Any, Protocol

import msgspec

from forebay.lab.bench.data_lines import DataLines, EventTooLong
from forebay.lab.measure.result import CUT, DISCONNECTED, ERROR_EVENT, MALFORMED, OK
from forebay.lab.workload.tokens import count_tokens

GO_ON = ""
NEVER = -1.0
MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_MESSAGE = 300
_MAX_TOKENS = 1_000_000_000
"""No answer has so many: a larger count is a slip of the target and would spoil every sum."""

_CONTENT = b'"content":"'
_ANY_CONTENT = re.compile(
    rb'"(?:content|reasoning_content|reasoning)"\s*:\s*"(?!")|"tool_calls"\s*:\s*\[\s*\{'
)


class Reader(Protocol):
    """Reads one answer's body."""

    facts: Facts

    def feed(self, piece: bytes, now: float) -> str:
        """Take a piece; the status when the answer is over."""
        ...

    def end(self, now: float) -> str:
        """The body ended as the protocol has it; the status."""
        ...


class Facts:
    """What was read of an answer so far."""

    __slots__ = (
        "cache",
        "chunks",
        "first",
        "gaps",
        "input_tokens",
        "last",
        "message",
        "output_tokens",
        "rung",
        "text",
    )

    def __init__(self) -> None:
        self.first = self.last = NEVER
        self.gaps = array("d")
        self.chunks = 0
        self.input_tokens = self.output_tokens = -1
        self.rung = self.cache = self.message = ""
        self.text: list[str] = []
        """The answer, where the reader was asked to keep it."""

    def take(self, body: dict[str, Any]) -> None:
        """Usage and Forebay's own words of one decoded object."""
        usage = body.get("usage")
        if isinstance(usage, dict):
            self.input_tokens = _count(usage.get("prompt_tokens"), self.input_tokens)
            self.output_tokens = _count(usage.get("completion_tokens"), self.output_tokens)
        own = body.get("forebay")
        if isinstance(own, dict):
            if isinstance(rung := own.get("rung"), str):
                self.rung = rung
            if isinstance(cache := own.get("cache"), dict):
                self.cache = ", ".join(f"{tier}={result}" for tier, result in cache.items())


class StreamReader:
    """Reads a stream of chat completion chunks.

    ``leave_after_tokens`` ends it as ``disconnected`` when the client has read that many tokens;
    ``keep_text`` keeps the answer. Either costs the decoding of every chunk.
    """

    __slots__ = ("_keep_text", "_leave_after", "_lines", "_tokens", "facts", "finished")

    def __init__(self, facts: Facts, leave_after_tokens: int | None, keep_text: bool) -> None:
        self.facts = facts
        self._keep_text = keep_text
        self.finished = False
        self._lines = DataLines()
        self._leave_after = leave_after_tokens
        self._tokens = 0

    def feed(self, piece: bytes, now: float) -> str:
        try:
            events = self._lines.feed(piece)
        except EventTooLong:
            return MALFORMED
        for data in events:
            status = self._take(data, now)
            if status:
                return status
        return GO_ON

    def end(self, now: float) -> str:
        rest = self._lines.close()
        status = self._take(rest, now) if rest else GO_ON
        return status or (OK if self.finished else CUT)

    def _take(self, data: bytes, now: float) -> str:
        at = data.find(_CONTENT)
        if at >= 0 and data[at + 11 : at + 12] != b'"':
            return self._content(data, now)
        if data == b"[DONE]":
            return OK
        if _ANY_CONTENT.search(data):
            return self._content(data, now)
        return self._look_into(data)

    def _content(self, data: bytes, now: float) -> str:
        facts = self.facts
        if facts.chunks:
            facts.gaps.append(now - facts.last)
        else:
            facts.first = now
        facts.last = now
        facts.chunks += 1
        if self._keep_text or self._leave_after is not None:
            self._read(data)
            if self._leave_after is not None and self._tokens >= self._leave_after:
                return DISCONNECTED
        if facts.chunks == 1 or _says_more(data):
            return self._look_into(data)
        return GO_ON

    def _look_into(self, data: bytes) -> str:
        body = _decode(data)
        if body is None:
            return MALFORMED
        if body.get("error"):
            self.facts.message = _message(body)
            return ERROR_EVENT
        self.facts.take(body)
        if any(isinstance(one, dict) and one.get("finish_reason") for one in _choices(body)):
            self.finished = True
        return GO_ON

    def _read(self, data: bytes) -> None:
        for choice in _choices(_decode(data) or {}):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            text = delta.get("content") if isinstance(delta, dict) else None
            if isinstance(text, str):
                self._tokens += count_tokens(text)
                if self._keep_text:
                    self.facts.text.append(text)
            else:
                self._tokens += 1


class PlainReader:
    """Reads one chat completion that comes whole; its first and last content is its end."""

    __slots__ = ("_body", "facts")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._body = bytearray()

    def feed(self, piece: bytes, now: float) -> str:
        self._body += piece
        return MALFORMED if len(self._body) > MAX_BODY_BYTES else GO_ON

    def end(self, now: float) -> str:
        body = _decode(bytes(self._body))
        if body is None:
            return MALFORMED
        if body.get("error"):
            self.facts.message = _message(body)
            return ERROR_EVENT
        first = next(iter(_choices(body)), None)
        if not isinstance(first, dict):
            return MALFORMED
        message = first.get("message")
        if isinstance(message, dict) and isinstance(text := message.get("content"), str):
            self.facts.text.append(text)
        self.facts.take(body)
        self.facts.first = self.facts.last = now
        return OK


class ErrorReader:
    """Keeps an error's message; ``status`` is what the response's head already told."""

    __slots__ = ("_body", "_status", "facts")

    def __init__(self, facts: Facts, status: str) -> None:
        self.facts = facts
        self._status = status
        self._body = b""

    def feed(self, piece: bytes, now: float) -> str:
        if len(self._body) < 4_096:
            self._body += piece
        return GO_ON

    def end(self, now: float) -> str:
        body = _decode(self._body)
        self.facts.message = (
            _message(body) if body else self._body[:_MAX_MESSAGE].decode("utf-8", "replace").strip()
        )
        return self._status


def _says_more(data: bytes) -> bool:
    return (
        b'"finish_reason":"' in data
        or b'"finish_reason": "' in data
        or b'"usage":{' in data
        or b'"usage": {' in data
        or b'"forebay"' in data
    )


def _decode(data: bytes) -> dict[str, Any] | None:
    try:
        body = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _choices(body: dict[str, Any]) -> list[Any]:
    choices = body.get("choices")
    return choices if isinstance(choices, list) else []


def _message(body: dict[str, Any]) -> str:
    error = body.get("error", body)
    text = error.get("message", error) if isinstance(error, dict) else error
    return str(text)[:_MAX_MESSAGE]


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else otherwise
