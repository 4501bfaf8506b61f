"""Clients that close their connection with the answer, or before it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

import httpx
import pytest

from forebay.gateway.app import GatewayApp
from forebay.gateway.exchange import Exchange
from forebay.kernel.context import RequestContext
from tests.unit.gateway.fakes import World, serving, until
from tests.unit.gateway.raw import RawClient, status
from tests.unit.gateway.test_server import ASK, CHAT, quick


@pytest.mark.parametrize("headers", [{"connection": "close"}, {"connection": "Close"}])
def test_a_refused_body_is_taken_in_before_the_last_answer(headers: dict[str, str]) -> None:
    big = b"x" * 20_000_000
    with serving(World(settings=quick())) as address:
        for _ in range(3):
            response = httpx.post(f"{address}{CHAT}", content=big, headers=headers)
            assert response.status_code == 413


def test_a_client_that_waits_for_a_go_is_refused_at_once() -> None:
    with serving(World(settings=quick())) as address, RawClient(address) as client:
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n")
        client.send("connection: close\r\nexpect: 100-continue\r\n\r\n")
        assert status(client.read()) == 413


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
def test_a_client_that_waits_for_a_go_gets_it_and_then_its_answer(kept_bytes: int) -> None:
    """Curl waits so before any body of more than a megabyte."""
    body = json.dumps(ASK).encode()
    world = World(settings=quick(), recollecting=lambda *_: None, replays_max_bytes=kept_bytes)
    with serving(world) as address, RawClient(address) as client:
        for _ in range(3):
            client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n")
            client.send(f"content-length: {len(body)}\r\n\r\n")
            assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(body)
            assert status(client.read_until(b'"system_fingerprint":null}')) == 200
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n")
        client.send("connection: close\r\nexpect: 100-continue\r\n\r\n")
        assert status(client.read()) == 413


class HeldReranker:
    """Never comes to an end by itself."""

    def __init__(self) -> None:
        self.working = 0

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        self.working += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.working -= 1
        return ()


def test_a_client_that_leaves_during_a_rerank_ends_it_at_once() -> None:
    reranker = HeldReranker()
    world = World(settings=quick(), reranker=reranker)
    with serving(world) as address:
        with RawClient(address) as client:
            client.post("/v1/rerank", {"query": "q", "documents": ["a", "b"]})
            until(lambda: reranker.working == 1)
        until(lambda: reranker.working == 0 and world.app.in_flight == 0, within_s=0.2)
    outcome = {"outcome": "cancelled"}
    assert world.metrics.registry.get_sample_value("forebay_requests_total", outcome) == 1


async def test_writing_to_a_broken_connection_is_the_clients_leaving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await ask(world.app, RuntimeError("unable to perform operation; the handler is closed"))
    outcome = {"outcome": "cancelled"}
    assert world.metrics.registry.get_sample_value("forebay_requests_total", outcome) == 1
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]
    await ask(world.app, RuntimeError("a fault of another kind"), failing=1)
    assert [line for line in caplog.records if line.levelno >= logging.ERROR]


async def ask(app: GatewayApp, error: Exception, failing: int = 9) -> None:
    """One GET whose first ``failing`` sends fail."""
    sent = 0

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        nonlocal sent
        sent += 1
        if sent <= failing:
            raise error

    scope = {
        "type": "http", "method": "GET", "path": "/v1/models", "raw_path": b"/v1/models",
        "query_string": b"", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    assert Exchange(scope, receive, send).path == "/v1/models"
    await app(scope, receive, send)


def test_pipelined_requests_of_a_client_that_left_are_no_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(settings=quick())
    with serving(world) as address:
        with RawClient(address) as client:
            client.send(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000)
        assert httpx.post(f"{address}{CHAT}", json=ASK).status_code == 200
        until(lambda: world.app.in_flight == 0)
    value = world.metrics.registry.get_sample_value
    assert not value("forebay_requests_total", {"outcome": "error"})
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]
