"""The official client against a running server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from forebay.kernel.errors import ContextTooLong, EngineError
from forebay.testing.embedding import HashEmbedder
from tests.unit.gateway.fakes import World, serving


@pytest.fixture(scope="module")
def world() -> World:
    return World(embedder=HashEmbedder(16))


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[openai.OpenAI]:
    with (
        serving(world) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="unused", max_retries=0) as made,
    ):
        yield made


ASK: Any = [{"role": "user", "content": "How many days of leave?"}]


def test_a_plain_answer_carries_citations(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="forebay/handbook",
        messages=ASK,
    )
    answer = raw.parse()
    assert answer.object == "chat.completion"
    assert answer.model == "forebay/handbook"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == "Employees have 25 days of leave. [1] "
    assert answer.usage is not None and answer.usage.total_tokens == 14
    extra = answer.model_extra or {}
    assert extra["citations"][0]["document_id"] == "leave.md"
    assert extra["forebay"]["rung"] == "bm25"
    assert raw.headers["x-forebay-rung"] == "bm25"
    assert raw.headers["x-forebay-kb-version"] == "2"
    assert raw.headers["x-forebay-cache"] == "embedding=off, retrieval=off, answer=off"
    assert "retrieval;dur=" in raw.headers["server-timing"]
    assert raw.headers["x-request-id"].startswith("req-")
    assert "x-ratelimit-limit-tokens" not in raw.headers


def test_a_stream_ends_with_citations_usage_and_done(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="any-model",
            messages=ASK,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Employees have 25 days of leave. [1] "
    assert {chunk.model for chunk in chunks} == {"forebay/handbook"}
    assert chunks[0].choices[0].delta.role == "assistant"
    bearing = [c for c in chunks if c.choices and c.choices[0].delta.content]
    last = bearing[-1].model_extra or {}
    assert last["citations"][0]["index"] == 1
    assert last["forebay"]["kb_version"] == 2
    assert all("citations" not in (c.model_extra or {}) for c in bearing[:-1])
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None and chunks[-1].usage.prompt_tokens == 7
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="forebay/none", messages=ASK)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_models_are_the_knowledge_bases(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["forebay/handbook", "forebay/secret"]
    assert client.models.retrieve("forebay/handbook").owned_by == "forebay"


def test_embeddings(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="any", input=["你好", "hello"])
    assert [len(item.embedding) for item in answer.data] == [16, 16]
    same = client.embeddings.create(model="any", input="hello", encoding_format="float")
    assert answer.data[1].embedding == pytest.approx(same.data[0].embedding)


async def test_the_asynchronous_client_streams_too(world: World, client: openai.OpenAI) -> None:
    async with openai.AsyncOpenAI(base_url=client.base_url, api_key="x") as other:
        stream = await other.chat.completions.create(model="x", messages=ASK, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == "Employees have 25 days of leave. [1] "


def test_a_failure_before_the_first_token_has_its_status() -> None:
    world = World(script=[ContextTooLong("the question is too long.", param="messages")])
    with serving(world) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0)
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="x", messages=ASK, stream=True)
        assert caught.value.code == "context_length_exceeded"


def test_a_failure_after_the_first_token_is_an_event_without_done() -> None:
    world = World(script=["Some ", 0.01, EngineError("the engine went away.")])
    with serving(world) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0)
        stream = client.chat.completions.create(model="x", messages=ASK, stream=True)
        chunks: list[Any] = []
        with pytest.raises(openai.APIError) as caught:
            _collect(stream, chunks)
        assert all(chunk.choices[0].finish_reason is None for chunk in chunks)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Some "
        assert caught.value.message == "the engine went away."
        assert caught.value.code == "engine_error"


def _collect(stream: Any, into: list[Any]) -> None:
    for chunk in stream:
        into.append(chunk)  # noqa: PERF402 (what came before the error counts)
