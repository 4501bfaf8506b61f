"""Requests as the bytes that go over the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.bench.address import Address
from forebay.lab.bench.options import Target
from forebay.lab.workload.request import PlannedRequest

_OURS = frozenset(
    ("host", "connection", "content-length", "content-type", "transfer-encoding", "expect")
)


class PayloadWriter:
    """Writes chat completion requests; what all have in common is written once a key."""

    def __init__(self, target: Target, address: Address, model: str) -> None:
        self._target = target
        self._heads: dict[str, bytes] = {}
        self._encode = msgspec.json.Encoder().encode
        lines = [f"POST {address.prefix}/chat/completions HTTP/1.1", f"host: {address.authority}"]
        lines.append("content-type: application/json")
        lines += common_headers(target)
        self._common = "\r\n".join(lines)
        self._body: dict[str, Any] = {"model": model, "messages": [], "stream": target.stream}
        if target.stream and target.include_usage:
            # Never sent with a plain request: servers refuse it there.
            self._body["stream_options"] = {"include_usage": True}
        self._body |= target.extra_body

    def write(self, planned: PlannedRequest, messages: list[dict[str, str]]) -> bytes:
        """The whole request, head and body."""
        body = self._body
        body["messages"] = messages
        body["max_tokens"] = planned.output_tokens
        content = self._encode(body)
        head = self._heads.get(planned.key) or self._head(planned.key)
        extra = ""
        if planned.deadline_s is not None:
            extra += f"x-forebay-deadline-ms: {round(planned.deadline_s * 1000)}\r\n"
        if planned.priority is not None:
            extra += _line("x-forebay-priority", str(planned.priority)) + "\r\n"
        if planned.user:
            extra += _line("x-forebay-user", planned.user) + "\r\n"
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (
            head,
            extra.encode("latin-1"),
            len(content),
            content,
        )

    def _head(self, of: str) -> bytes:
        key = of or self._target.api_key
        head = self._common + "\r\n"
        if key:
            head += _line("authorization", f"Bearer {key}") + "\r\n"
        return self._heads.setdefault(of, head.encode("latin-1"))


def common_headers(target: Target) -> list[str]:
    """The user's own header lines, checked."""
    for name in target.headers:
        if name.lower() in _OURS:
            raise ConfigError(f"the header {name} is set by the bench; leave it out")
        if not name or not name.isascii() or any(c in name for c in ' :\r\n\t"'):
            raise ConfigError(f"{name!r} is not a header's name; write NAME: VALUE")
    return [_line(name, value) for name, value in target.headers.items()]


def _line(name: str, value: str) -> str:
    if any(ord(character) < 32 or ord(character) > 255 for character in value):
        raise ConfigError(
            f"the header {name} cannot carry {value!r}; use Latin letters without line breaks"
        )
    return f"{name}: {value}"
