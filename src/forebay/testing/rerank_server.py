"""A real HTTP server that speaks the rerank protocol of Jina and Cohere, for tests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from forebay.testing.loopback import LoopbackServer
from forebay.testing.reranking import share_held


class RerankServer(LoopbackServer):
    """Serves shares of words in common, best first; async context manager.

    Set ``status`` or ``body`` to answer something wrong, clear ``gate`` to answer late;
    ``requests`` keeps every body received.
    """

    def __init__(self, *, key: str = "") -> None:
        super().__init__("/v1/rerank", self._answer)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None
        self.logits = False
        self.requests: list[dict[str, Any]] = []
        self.cancelled = 0
        self._key = key

    async def _answer(self, request: web.Request) -> web.Response:
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            return web.json_response({"message": "no key"}, status=401)
        body = await request.json()
        self.requests.append(body)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.status != 200 or self.body is not None:
            return web.Response(status=self.status, body=self.body or b"{}", headers=self.headers)
        if "" in body["documents"]:
            return web.json_response({"message": "empty document"}, status=400)
        scores = [share_held(body["query"], text) for text in body["documents"]]
        if self.logits:
            scores = [20 * score - 10 for score in scores]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body["top_n"]]
        results = [{"index": i, "relevance_score": scores[i]} for i in order]
        return web.Response(
            body=json.dumps({"id": "r", "results": results}), content_type="application/json"
        )
