"""One HTTP request and its response: headers, body within bounds, reply or stream."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from forebay.gateway.errors import ClientGone, EncodedBody, SlowRequest
from forebay.gateway.peek import Peek
from forebay.gateway.peers import Peer
from forebay.gateway.protocol import PIECES, Pieces
from forebay.gateway.replay import HeadKey
from forebay.gateway.timing import server_timing
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import InvalidRequest, PayloadTooLarge
from forebay.pipeline.messages import Usage
from forebay.telemetry.ids import TraceIds
from forebay.wire.decoding import JsonDecoder
from forebay.wire.encoding import encode_json

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
JSON = "application/json"
UNTRACED = TraceIds("0" * 32, "0" * 16, None, False)
_THREAD_ABOVE_BYTES = 256 * 1024
JSON_HEADERS = (("content-type", JSON),)
STREAM_HEADERS = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)


class Exchange:
    """What a handler works with; the gateway makes one for each request."""

    def __init__(self, scope: Scope, receive: Any, send: Any) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.request_id = ""
        self.trace = UNTRACED
        self.headers = _headers(scope["headers"])
        self.path_params: dict[str, str] = {}
        self.peer = Peer("", False)
        self.body = b""
        self.body_ended = False
        self.started = False
        self.streaming = False
        self.ended = False
        self.status = 0
        self.kb: str | None = None
        self.kb_by_model = False  # the client named it as a model
        self.model: str | None = None
        self.usage: Usage | None = None
        self.first_text_at: float | None = None
        self.ctx: RequestContext | None = None
        self.unsent: Callable[[], bytes] = bytes
        self.replay_head: HeadKey | None = None
        self.told = False
        self.server_send = send
        self.allow: Callable[[float], None] = _nobody_bounds
        self.pieces: Pieces | None = (scope.get("extensions") or {}).get(PIECES)
        """Writes pieces of a stream without waiting, once one was sent; None: no such way."""

    @property
    def context(self) -> RequestContext:
        """The request's context; there is one as soon as a handler runs."""
        assert self.ctx is not None
        return self.ctx

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.context.principal

    def check_path(self) -> None:
        """Raise ``InvalidRequest`` when the path is not UTF-8; the server replaces what is not.

        Two ids would look the same then, and one document would replace the other.
        """
        if "\ufffd" in self.path:
            try:
                unquote_to_bytes(self.scope.get("raw_path", b"")).decode()
            except UnicodeDecodeError:
                raise InvalidRequest("the path is not UTF-8 once it is decoded.") from None

    def check_encoding(self) -> None:
        """Raise ``EncodedBody`` for a body that would have to be unpacked."""
        for name, plain in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
            for coding in self.headers.get(name, "").lower().split(","):
                if coding.strip() not in ("", plain):
                    raise EncodedBody(f"send the body without {name}: {coding.strip()[:40]}.")

    def query(self) -> dict[str, list[str]]:
        """The query string, values in order; ``InvalidRequest`` when there is too much of it."""
        values: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(
                self.scope["query_string"].decode("latin-1"),
                keep_blank_values=True,
                max_num_fields=100,
            )
        except ValueError as error:
            raise InvalidRequest("the query string has too many fields.") from error
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        return values

    async def read_body(self, limit_bytes: int, timeout_s: float) -> None:
        """Read the whole body, refusing it as soon as it is known to be too long or too slow."""
        declared = self.headers.get("content-length", "0")
        if declared.isascii() and declared.isdigit() and int(declared) > limit_bytes:
            raise _too_large(limit_bytes)
        if isinstance(self.receive, Peek) and self.receive.whole:
            self.body = await self._collect(limit_bytes)
            return
        try:
            async with asyncio.timeout(timeout_s):
                self.body = await self._collect(limit_bytes)
        except TimeoutError:
            raise SlowRequest(f"the body did not arrive within {timeout_s:g} seconds.") from None

    async def discard_body(self, timeout_s: float) -> None:
        """Take in what is left of a refused body, for a while, and forget it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.body_ended:
                    message = await self.receive()
                    self.body_ended = not message.get("more_body", False)

    async def _collect(self, limit_bytes: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left before its body was whole.")
            piece = message.get("body", b"")
            self.body_ended = not message.get("more_body", False)
            size += len(piece)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            pieces.append(piece)
            if self.body_ended:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def json(self, decoder: JsonDecoder[T]) -> T:
        """Decode the body; a big one in a thread, so that the loop goes on."""
        if len(self.body) > _THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(decoder.decode, self.body)
        return decoder.decode(self.body)

    def replay(self) -> Receive:
        """A ``receive`` that gives the body that was read, then waits for what never comes.

        The gateway itself watches for the client's leaving.
        """
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return receive

    async def forward(self, message: MutableMapping[str, Any]) -> None:
        """Send what another ASGI application answers, under this request's id."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            name = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), name]}
        else:
            self.ended = not message.get("more_body", False)
        await self._send(message)

    async def reply(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = JSON,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send a whole response."""
        lines = [("content-type", content_type), ("content-length", str(len(body)))]
        await self._start(status, (*lines, *headers))
        self.ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def reply_json(
        self, value: msgspec.Struct, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Send a value as JSON."""
        await self.reply(encode_json(value), headers=headers)

    async def start_stream(self, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send the headers of an event stream."""
        self.streaming = True
        await self._start(200, (*STREAM_HEADERS, *headers))

    async def write(self, data: bytes) -> None:
        """Send a piece of a stream; waits while the client does not read."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece of a stream."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        try:
            await self.server_send(message)
        except RuntimeError as error:
            if not closed(error):
                raise
            raise ClientGone("the client closed the connection.") from error

    async def _start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.started = True
        self.status = status
        lines = [("x-request-id", self.request_id), *headers]
        if self.ctx is not None and self.ctx.stages:
            lines.append(("server-timing", server_timing(self.ctx)))
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode(), value.encode("latin-1")) for name, value in lines],
            }
        )


def closed(error: RuntimeError) -> bool:
    """Whether it is uvloop's word for a connection that broke before anybody was told."""
    return "handler is closed" in str(error)


def stage_headers(ctx: RequestContext) -> list[tuple[str, str]]:
    """What caches, ladder and version did for this request so far."""
    lines = [("x-forebay-scene", ctx.scene.name)] if ctx.scene.name else []
    lines += [("x-forebay-cache", ", ".join(f"{k}={v}" for k, v in ctx.told_cache().items()))]
    if ctx.rung is not None:
        lines.append(("x-forebay-rung", ctx.rung))
    if ctx.degradations:
        steps = (f"{step.stage}={step.rung} ({step.reason})" for step in ctx.degradations)
        lines.append(("x-forebay-degraded", ", ".join(steps)))
    if ctx.kb_version is not None:
        lines.append(("x-forebay-kb-version", str(ctx.kb_version)))
    return [*lines, *rate_headers(ctx)]


def rate_headers(ctx: RequestContext) -> list[tuple[str, str]]:
    """The tightest quota; left out where there is none: a 0 or -1 would be read as one."""
    if ctx.rate is None:
        return []
    return [
        ("x-ratelimit-limit-tokens", str(ctx.rate.limit_tokens)),
        ("x-ratelimit-remaining-tokens", str(ctx.rate.remaining_tokens)),
        ("x-ratelimit-reset-tokens", duration(ctx.rate.reset_s)),
    ]


def duration(seconds: float) -> str:
    """A time as rate headers write it: ``12ms``, ``1.5s``, ``6m0s``."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    if minutes < 1:
        return f"{rest:.3g}s"
    return f"{minutes:.0f}m{rest:.0f}s"


def _nobody_bounds(_seconds: float) -> None:
    """Work that no scope ends has no other time."""


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names to values; a repeated header is joined by commas, as HTTP allows."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {limit_bytes} bytes.")
