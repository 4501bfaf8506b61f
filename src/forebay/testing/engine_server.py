"""A real HTTP server that speaks the OpenAI chat completions protocol, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from forebay.testing.loopback import LoopbackServer


class EngineServer(LoopbackServer):
    """Streams its ``pieces``, one token each; async context manager.

    ``raw`` replaces the stream by these bytes, written one by one. ``status`` answers an error,
    ``headers`` go with it. Clearing ``gate`` holds every piece back. ``break_after`` cuts the
    connection after so many pieces, ``hold_after`` hangs there. ``requests`` and ``keys`` keep
    what came, ``gone`` is set when a client has left, ``active`` counts who is being served.
    """

    def __init__(self, pieces: Sequence[str] = ("Hello", " there", ".")) -> None:
        super().__init__("/v1/chat/completions", self._answer)
        self.pieces = tuple(pieces)
        self.raw: Sequence[bytes] | None = None
        self.status = 200
        self.headers: dict[str, str] = {}
        self.break_after: int | None = None
        self.hold_after: int | None = None
        self.usage = True
        self.gone = asyncio.Event()
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.connections: set[object] = set()
        self.active = 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization"))
        if request.transport is not None:
            self.connections.add(request.transport.get_extra_info("peername"))
        if self.status != 200:
            error = {"error": {"message": "secret detail", "type": "x", "code": None}}
            return web.json_response(error, status=self.status, headers=self.headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.active += 1
        try:
            await response.prepare(request)
            await self._stream(request, response, body)
        except asyncio.CancelledError:
            self.gone.set()
            raise
        except ConnectionResetError:
            self.gone.set()
        finally:
            self.active -= 1
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, body: dict[str, Any]
    ) -> None:
        if self.raw is not None:
            for data in self.raw:
                await self.gate.wait()
                await response.write(data)
                # Let it leave on its own, so that the client reads it on its own.
                await asyncio.sleep(0)
            return
        pieces, reason = _cut(self.pieces, body)
        for number, piece in enumerate(pieces):
            await self.gate.wait()
            if number == self.break_after:
                assert request.transport is not None
                request.transport.abort()
                return
            if number == self.hold_after:
                await asyncio.Event().wait()
            await response.write(_chunk({"content": piece}, None))
            await asyncio.sleep(0)
        await self.gate.wait()
        await response.write(_chunk({}, reason))
        if self.usage and body.get("stream_options", {}).get("include_usage"):
            counts = {"prompt_tokens": 11, "completion_tokens": len(pieces), "total_tokens": 0}
            await response.write(_event({"choices": [], "usage": counts}))
        await response.write(b"data: [DONE]\n\n")


def _cut(pieces: Sequence[str], body: dict[str, Any]) -> tuple[list[str], str]:
    stops = body.get("stop") or []
    kept: list[str] = []
    text = ""
    for piece in pieces:
        whole = text + piece
        ends = [whole.find(stop) for stop in stops if stop in whole]
        if ends:
            rest = whole[len(text) : min(ends)]
            return ([*kept, rest] if rest else kept), "stop"
        if len(kept) == body["max_tokens"]:
            return kept, "length"
        kept.append(piece)
        text = whole
    return kept, "stop"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _chunk(delta: dict[str, Any], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _event({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})
