"""Rerank endpoints: what is sent, what may come back, what goes wrong."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    Overloaded,
    Unavailable,
)
from forebay.rerank.endpoint import EndpointReranker
from forebay.rerank.settings import EndpointSettings
from forebay.testing.rerank_server import RerankServer
from forebay.testing.reranker_suite import reranking_context


def settings(server: RerankServer, **changes: object) -> EndpointSettings:
    return msgspec.structs.replace(EndpointSettings(base_url=server.base_url), **changes)


def scores(*pairs: tuple[int, float]) -> bytes:
    results = [{"index": index, "relevance_score": score} for index, score in pairs]
    return json.dumps({"results": results}).encode()


async def test_what_is_sent() -> None:
    async with RerankServer(key="secret") as server:
        reranker = EndpointReranker(
            settings(server, model="m", api_key="secret", max_characters=64)
        )
        await reranker.rerank(reranking_context(), "q", ["a" * 100, ""])
        await reranker.close()
    assert server.requests == [
        {
            "query": "q",
            "documents": ["a" * 64, " "],
            "top_n": 2,
            "return_documents": False,
            "model": "m",
        }
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, EngineRefused), (422, EngineRefused), (429, Overloaded), (500, EngineError),
     (302, EngineError)],
)  # fmt: skip
async def test_statuses_become_our_errors(status: int, kind: type[Exception]) -> None:
    async with RerankServer() as server:
        server.status = status
        server.headers = {"retry-after": "7", "location": "http://127.0.0.1:1/"}
        reranker = EndpointReranker(settings(server))
        with pytest.raises(kind) as caught:
            await reranker.rerank(reranking_context(), "q", ["a"])
        if isinstance(caught.value, Overloaded):
            assert caught.value.retry_after_s == 7.0
        await reranker.close()


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"{}",
        scores((0, 0.5)),
        scores((0, 0.5), (0, 0.4)),
        scores((0, 0.5), (2, 0.4)),
        scores((0, 0.5), (1, 1.5)),
        b'{"results": [{"index": 0, "relevance_score": 1e999}]}',
    ],
)
async def test_an_answer_that_is_none_is_the_engines_error(body: bytes) -> None:
    async with RerankServer() as server:
        server.body = body
        reranker = EndpointReranker(settings(server))
        with pytest.raises(EngineError):
            await reranker.rerank(reranking_context(), "q", ["a", "b"])
        await reranker.close()


async def test_too_late_too_many_and_closed() -> None:
    async with RerankServer() as server:
        server.gate.clear()
        reranker = EndpointReranker(settings(server, timeout_s=0.05, max_waiting_calls=1))
        waiting = asyncio.ensure_future(reranker.rerank(reranking_context(), "q", ["a"]))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await reranker.rerank(reranking_context(), "q", ["a"])
        with pytest.raises(DeadlineExceeded):
            await waiting
        await reranker.close()
        with pytest.raises(Unavailable):
            await reranker.rerank(reranking_context(), "q", ["a"])


async def test_nobody_there_and_no_address() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        EndpointReranker(EndpointSettings())
    reranker = EndpointReranker(EndpointSettings(base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(EngineError, match="cannot be reached"):
        await reranker.rerank(reranking_context(), "q", ["a"])
    await reranker.close()
