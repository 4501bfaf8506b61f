"""A real HTTP server that speaks the OpenAI embeddings protocol, for tests."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from aiohttp import web

from forebay.testing.embedding import HashEmbedder
from forebay.testing.loopback import LoopbackServer


class EmbeddingServer(LoopbackServer):
    """Serves ``HashEmbedder`` vectors, unnormalised; async context manager.

    Set ``status`` or ``body`` to answer something wrong, clear ``gate`` to answer late;
    ``requests`` keeps every body received, ``peak`` the most requests at once.
    """

    def __init__(self, dimensions: int = 32, *, key: str = "") -> None:
        super().__init__("/v1/embeddings", self._answer)
        self.embedder = HashEmbedder(dimensions)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None
        self.ignore_encoding = False
        self.requests: list[dict[str, Any]] = []
        self.now = 0
        self.peak = 0
        self.cancelled = 0
        self._key = key

    async def _answer(self, request: web.Request) -> web.Response:
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            return web.json_response({"error": {"message": "no key"}}, status=401)
        body = await request.json()
        self.requests.append(body)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await self.gate.wait()
            return await self._vectors(body)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1

    async def _vectors(self, body: dict[str, Any]) -> web.Response:
        if self.status != 200 or self.body is not None:
            return web.Response(status=self.status, body=self.body or b"{}", headers=self.headers)
        if "" in body["input"]:
            return web.json_response({"error": {"message": "empty input"}}, status=400)
        vectors = await self.embedder.embed(body["input"], kind="raw")
        size = 4 * vectors.dimensions
        rows = [vectors.data[start : start + size] for start in range(0, len(vectors.data), size)]
        as_text = body.get("encoding_format") == "base64" and not self.ignore_encoding
        data = [
            {"object": "embedding", "index": index, "embedding": _encode(row, as_text)}
            for index, row in enumerate(rows)
        ]
        data.reverse()  # the order of the rows is not promised, their index is
        return web.Response(
            body=json.dumps({"object": "list", "model": body["model"], "data": data}),
            content_type="application/json",
        )


def _encode(row: bytes, as_text: bool) -> str | list[float]:
    if as_text:
        return base64.b64encode(row).decode()
    return [3 * value for value in memoryview(row).cast("f")]
