"""Any rerank endpoint in the shape that Jina and Cohere share: ``POST …/rerank``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import aiohttp
import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    Unavailable,
    check_endpoint,
)
from forebay.rerank.settings import EndpointSettings

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_FAR = 60.0


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Answer(msgspec.Struct):
    results: list[_Result]


class EndpointReranker:
    """``Reranker`` over HTTP; made inside a running loop, ended by ``close``."""

    def __init__(self, settings: EndpointSettings, param: str = "rerank.dear.endpoint") -> None:
        if not settings.base_url:
            raise ConfigError(f"{param}.base_url is needed", param=f"{param}.base_url")
        self._settings = settings
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._session = aiohttp.ClientSession(
            headers=headers, connector=aiohttp.TCPConnector(limit=settings.max_concurrent_requests)
        )
        self._calls = 0

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given.

        ``EngineRefused`` for the endpoint's 4xx, ``Overloaded`` for its 429 or when too many
        calls wait, ``EngineError`` for anything else it does wrong, ``DeadlineExceeded`` when
        time runs out.
        """
        if not texts:
            return ()
        if self._session.closed:
            raise Unavailable("the reranker is shutting down")
        if self._calls >= self._settings.max_waiting_calls:
            raise Overloaded("too much is waiting for the rerank endpoint")
        self._calls += 1
        try:
            async with asyncio.timeout(min(self._settings.timeout_s, ctx.deadline.remaining())):
                return await self._post(query, texts)
        except TimeoutError as error:
            raise DeadlineExceeded("the rerank endpoint did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError("the rerank endpoint cannot be reached") from error
        finally:
            self._calls -= 1

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _post(self, query: str, texts: Sequence[str]) -> list[float]:
        settings = self._settings
        body: dict[str, object] = {
            "query": _clean(query[: settings.max_characters]),
            # Endpoints refuse empty strings; a blank says as little.
            "documents": [_clean(text[: settings.max_characters]) or " " for text in texts],
            "top_n": len(texts),
            "return_documents": False,
        }
        if settings.model:
            body["model"] = settings.model
        async with self._session.post(
            settings.base_url.rstrip("/") + "/rerank",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        ) as response:
            check_endpoint("rerank", response.status, response.headers.get("retry-after", ""))
            data = await _read(response)
        return self._relevances(data, len(texts))

    def _relevances(self, data: bytes, count: int) -> list[float]:
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except msgspec.DecodeError as error:
            raise EngineError("the rerank endpoint answered something else than scores") from error
        found = {one.index: one.relevance_score for one in answer.results}
        if sorted(found) != list(range(count)) or len(answer.results) != count:
            raise EngineError("the rerank endpoint answered for other documents than were asked")
        scores = [found[index] for index in range(count)]
        if not all(map(math.isfinite, scores)):
            raise EngineError("the rerank endpoint answered scores that are no numbers")
        if self._settings.logits:
            return [1 / (1 + math.exp(-max(-_FAR, min(_FAR, score)))) for score in scores]
        if any(not 0.0 <= score <= 1.0 for score in scores):
            raise EngineError(
                "the rerank endpoint's scores are not in 0..1; set logits = true for it"
            )
        return scores


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        data += piece
        if len(data) > _MAX_ANSWER_BYTES:
            raise EngineError("the rerank endpoint's answer is too large")
    return bytes(data)
