"""The OpenAI-compatible embedder against a real server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator

import msgspec
import numpy as np
import pytest

from forebay.embedding.openai import OpenAIEmbedder, OpenAIEmbeddingSettings
from forebay.embedding.opening import openai_settings
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    ForebayError,
    Overloaded,
    Unavailable,
)
from forebay.kernel.stages import at_work_s
from forebay.testing.embedding import HashEmbedder
from forebay.testing.embedding_server import EmbeddingServer


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(key="secret") as running:
        yield running


def at(server: EmbeddingServer, **changes: object) -> OpenAIEmbeddingSettings:
    settings = OpenAIEmbeddingSettings(
        base_url=server.base_url, model="multilingual-e5-small", api_key="secret"
    )
    return msgspec.structs.replace(settings, **changes)


@pytest.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[OpenAIEmbedder]:
    connected = await OpenAIEmbedder.connect(at(server, batch_size=3, max_concurrent_requests=2))
    yield connected
    await connected.close()


@pytest.mark.parametrize("encoding", ["base64", "float"])
@pytest.mark.parametrize("ignored", [False, True])
async def test_both_encodings_whatever_the_server_does(
    server: EmbeddingServer, encoding: str, ignored: bool
) -> None:
    server.ignore_encoding = ignored
    embedder = await OpenAIEmbedder.connect(at(server, encoding=encoding, dimensions=32))
    vectors = await embedder.embed(["one", "二"], kind="raw")
    expected = await HashEmbedder(32).embed(["one", "二"], kind="raw")
    await embedder.close()
    assert np.allclose(np.frombuffer(vectors.data, "<f4"), np.frombuffer(expected.data, "<f4"))
    assert server.requests[-1]["encoding_format"] == encoding
    assert server.requests[-1]["dimensions"] == 32
    assert len(server.requests) == 1  # a known size needs no probe


async def test_prefix_batches_and_concurrency(
    server: EmbeddingServer, embedder: OpenAIEmbedder
) -> None:
    assert embedder.spec.dimensions == 32
    server.requests.clear()
    await embedder.embed([str(n) for n in range(20)], kind="passage")
    assert [len(request["input"]) for request in server.requests] == [3] * 6 + [2]
    assert server.requests[0]["input"] == ["passage: 0", "passage: 1", "passage: 2"]
    assert server.peak <= 2
    await embedder.embed(["q"], kind="query")
    assert server.requests[-1]["input"] == ["query: q"]


async def test_queries_have_a_lane_passages_cannot_fill(
    server: EmbeddingServer, embedder: OpenAIEmbedder
) -> None:
    server.gate.clear()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(embedder.embed(["p"] * 20, kind="passage"))
        while server.now < 1:
            await asyncio.sleep(0)
        query = group.create_task(embedder.embed(["q"], kind="query"))
        while server.now < 2:
            await asyncio.sleep(0)
        assert server.requests[-1]["input"] == ["query: q"]
        server.gate.set()
        await query


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, EngineRefused),
        (401, EngineRefused),
        (404, EngineRefused),
        (429, Overloaded),
        (500, EngineError),
        (503, EngineError),
        (302, EngineError),
    ],
)
async def test_statuses_become_our_errors(
    server: EmbeddingServer, embedder: OpenAIEmbedder, status: int, error: type[ForebayError]
) -> None:
    server.status = status
    server.headers = {"retry-after": "7"}
    server.body = b'{"error": {"message": "secret /path"}}'
    with pytest.raises(error) as raised:
        await embedder.embed(["x"], kind="query")
    assert "/path" not in raised.value.message
    if isinstance(raised.value, Overloaded):
        assert raised.value.retry_after_s == 7
    if isinstance(raised.value, EngineRefused):
        assert raised.value.status == status


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [],
        [{"index": 1, "embedding": [1.0] * 32}],
        [{"index": 0, "embedding": [1.0] * 31}],
        [{"index": 0, "embedding": [0.0] * 32}],
        [{"index": 0, "embedding": "not base64!"}],
        [{"index": 0, "embedding": "AAAA"}],
        [{"index": 0, "embedding": []}],
    ],
)
async def test_nonsense_is_an_engine_error(
    server: EmbeddingServer, embedder: OpenAIEmbedder, rows: object
) -> None:
    server.body = b"<html>" if rows is None else json.dumps({"data": rows}).encode()
    with pytest.raises(EngineError):
        await embedder.embed(["x"], kind="query")
    server.body = None
    assert (await embedder.embed(["x"], kind="query")).ids == (0,)


async def test_a_silent_server_is_a_deadline(server: EmbeddingServer) -> None:
    embedder = await OpenAIEmbedder.connect(at(server, dimensions=32, timeout_s=0.05))
    server.gate.clear()
    with pytest.raises(DeadlineExceeded):
        await embedder.embed(["x"], kind="query")
    await embedder.close()


async def test_nobody_there() -> None:
    settings = OpenAIEmbeddingSettings(base_url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(EngineError, match=r"cannot be reached; .* embedding\.backend=none"):
        await OpenAIEmbedder.connect(settings)


async def test_a_wrong_key_is_refused_at_once(server: EmbeddingServer) -> None:
    with pytest.raises(EngineRefused):
        await OpenAIEmbedder.connect(at(server, api_key="wrong"))


async def test_cancelling_ends_the_request(
    server: EmbeddingServer, embedder: OpenAIEmbedder
) -> None:
    server.gate.clear()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        work = group.create_task(embedder.embed(["p"] * 20, kind="passage"))
        while server.now < 1:
            await asyncio.sleep(0)
        work.cancel()
        while server.now:
            await asyncio.sleep(0)
    assert server.cancelled >= 1
    server.gate.set()
    assert (await embedder.embed(["x"], kind="query")).ids == (0,)


async def test_calls_are_bounded_and_end_with_close(server: EmbeddingServer) -> None:
    embedder = await OpenAIEmbedder.connect(at(server, dimensions=32, max_waiting_calls=1))
    server.gate.clear()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(embedder.embed(["a"], kind="query"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await embedder.embed(["b"], kind="query")
        server.gate.set()
    await embedder.close()
    with pytest.raises(Unavailable):
        await embedder.embed(["c"], kind="query")


def test_settings_name_what_is_missing() -> None:
    with pytest.raises(ConfigError) as raised:
        openai_settings(EmbeddingSettings(backend="openai", model="m"))
    assert raised.value.param == "embedding.base_url"
    with pytest.raises(ConfigError) as raised:
        openai_settings(EmbeddingSettings(backend="openai", base_url="http://x/v1"))
    assert raised.value.param == "embedding.model"


async def test_fingerprint_depends_on_model_size_and_prefix(server: EmbeddingServer) -> None:
    changes: list[dict[str, object]] = [
        {},
        {"model": "other"},
        {"dimensions": 16},
        {"query_prefix": "q: "},
    ]
    prints = set()
    for change in changes:
        embedder = await OpenAIEmbedder.connect(at(server, **{"dimensions": 32, **change}))
        prints.add(embedder.spec.fingerprint)
        await embedder.close()
    assert len(prints) == len(changes)


async def test_only_what_the_endpoint_has_counts_as_its_work(
    server: EmbeddingServer, embedder: OpenAIEmbedder
) -> None:
    assert at_work_s(embedder) == 0.0
    server.gate.clear()
    tasks = [
        asyncio.get_running_loop().create_task(embedder.embed([text], kind="query"))
        for text in "abcd"
    ]
    await asyncio.sleep(0.1)
    assert 0.0 < at_work_s(embedder) < 5.0
    server.gate.set()
    await asyncio.gather(*tasks)
    assert at_work_s(embedder) == 0.0
    assert at_work_s(HashEmbedder(8)) == math.inf, "it does not tell"
