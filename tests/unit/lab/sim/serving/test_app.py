"""The simulated server over HTTP: answers, streams, errors, figures, replicas."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay.lab.workload.tokens import count_tokens, tokenize
from tests.unit.lab.sim.serving.simulated import (
    Client,
    Running,
    chat_body,
    leaves,
    simulated,
    text_of,
)

COMMON = "these words stand at the head of each and all of the asks we make here now " * 4


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with simulated(output="cap") as server:
        yield server


async def until_under_way(running: Running, requests: int) -> None:
    """Wait until the first replica has that many requests."""
    async with asyncio.timeout(10):
        while running.server.replicas[0].under_way != requests:
            await asyncio.sleep(0.002)


@asynccontextmanager
async def holding(running: Running) -> AsyncIterator[None]:
    """A long request is under way inside the block; its client leaves at the end."""
    async with asyncio.TaskGroup() as group:
        long = group.create_task(running.client.chat("hello", max_tokens=8000, ignore_eos=True))
        await until_under_way(running, 1)
        yield
        long.cancel()


async def until_idle(client: Client) -> dict[str, float]:
    """The figures once nothing is under way."""
    async with asyncio.timeout(5):
        while True:
            figures = await client.figures()
            if not figures['vllm:num_requests_running{engine="0"}']:
                return figures
            await asyncio.sleep(0.01)


async def test_an_answer_in_one_piece(running: Running) -> None:
    status, answer = await running.client.chat("how are you today?", max_tokens=12)
    assert status == 200
    assert answer["object"] == "chat.completion" and answer["model"] == "sim"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant" and choice["finish_reason"] == "length"
    assert count_tokens(choice["message"]["content"]) == 12
    assert answer["usage"] == {
        "prompt_tokens": 6,  # to day make today two
        "completion_tokens": 12,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_stream_says_the_same_as_one_piece(running: Running) -> None:
    whole = (await running.client.chat("hello", max_tokens=20))[1]
    events = await running.client.stream("hello", max_tokens=20)
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-2])
    assert len({event["id"] for event in events[:-1]}) == 1
    assert all("usage" not in event for event in events[:-1])


async def test_usage_comes_last_when_it_is_asked_for(running: Running) -> None:
    options = {"include_usage": True}
    events = await running.client.stream("hello", max_tokens=3, stream_options=options)
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 3
    status, body = await running.client.chat("hello", stream_options=options)
    assert (status, body["error"]["param"]) == (400, "stream_options")


async def test_lengths_that_requests_ask_for(running: Running) -> None:
    client = running.client
    for fields, tokens in (
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_tokens": 9, "ignore_eos": True}, 9),
        ({"min_tokens": 300}, 300),
    ):
        _, answer = await client.chat("hello", **fields)
        assert answer["usage"]["completion_tokens"] == tokens
    status, body = await client.chat("hello", max_tokens=5, min_tokens=6)
    assert (status, body["error"]["param"]) == (400, "min_tokens")


async def test_stop_texts_end_an_answer(running: Running) -> None:
    whole = (await running.client.chat("hello", max_tokens=20))[1]["choices"][0]["message"]
    stop = whole["content"][30:34]
    _, answer = await running.client.chat("hello", max_tokens=20, stop=["\0", stop])
    events = await running.client.stream("hello", max_tokens=20, stop=stop)
    kept = whole["content"][: whole["content"].index(stop)]
    assert answer["choices"][0]["message"]["content"] == text_of(events) == kept
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


async def test_a_shared_beginning_is_cached(running: Running) -> None:
    first = (await running.client.chat(COMMON + "one", max_tokens=2))[1]["usage"]
    second = (await running.client.chat(COMMON + "two", max_tokens=2))[1]["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached == second["prompt_tokens"] // 16 * 16
    figures = await running.client.figures()
    assert figures['vllm:prefix_cache_hits_total{engine="0"}'] == cached


async def test_completions(running: Running) -> None:
    body = {"model": "sim", "prompt": "once upon a time", "max_tokens": 8}
    status, answer = await running.client.post("/v1/completions", body)
    assert status == 200 and answer["object"] == "text_completion"
    assert count_tokens(answer["choices"][0]["text"]) == 8
    status, _ = await running.client.post("/v1/completions", {**body, "prompt": ["a", "b"]})
    assert status == 400


async def test_the_official_client_is_content(running: Running) -> None:
    base_url = running.client.url + "/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        models = [model.id async for model in client.models.list()]
        assert models == ["sim"]
        messages: Any = [
            {"role": "system", "content": "be short"},
            {"role": "user", "content": [{"type": "text", "text": "差旅报销？"}]},
        ]
        answer = await client.chat.completions.create(model="sim", messages=messages, max_tokens=10)
        said = answer.choices[0].message.content
        stream = await client.chat.completions.create(
            model="sim",
            messages=messages,
            max_tokens=10,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == said
        assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 10
        old = await client.completions.create(model="sim", prompt="hello", max_tokens=4)
        assert count_tokens(old.choices[0].text) == 4
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=messages)
        with pytest.raises(openai.BadRequestError, match="maximum context length is 8192"):
            await client.chat.completions.create(model="sim", messages=messages, max_tokens=9000)


async def test_tokenize_counts_as_the_usage_does(running: Running) -> None:
    text = "Once, 你好 extraordinary."
    status, answer = await running.client.post("/tokenize", {"model": "sim", "prompt": text})
    assert status == 200
    assert answer["tokens"] == tokenize(text) and answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 8192
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": text}]
    _, counted = await running.client.post("/tokenize", {"messages": messages})
    body = {"messages": messages, "max_tokens": 1}
    _, chat = await running.client.post("/v1/chat/completions", body)
    assert chat["usage"]["prompt_tokens"] == counted["count"]


async def test_long_texts_are_tokenized_beside_the_loop(running: Running) -> None:
    text = ("extraordinary 水，\n" + " " * 30_000) * 30
    _, answer = await running.client.post("/tokenize", {"prompt": text})
    assert answer["tokens"] == tokenize(text) and answer["count"] == 180


REFUSED: tuple[tuple[str, Any, int, str], ...] = (
    ("/v1/chat/completions", b"{", 400, "not valid JSON"),
    ("/v1/chat/completions", b'{"x": ' + b"[" * 60_000, 400, "nested too deeply"),
    ("/v1/chat/completions", b'{"model": "sim"}', 400, "messages"),
    ("/v1/chat/completions", b'{"model": "sim", "messages": []}', 400, "messages"),
    ("/v1/chat/completions", chat_body("hello", max_tokens=0), 400, "max_tokens"),
    ("/v1/chat/completions", chat_body("hello", n=2), 400, "n:"),
    ("/v1/chat/completions", chat_body(" "), 400, "prompt is empty"),
    ("/v1/chat/completions", chat_body("word " * 9000), 400, "context length is 8192 tokens"),
    ("/v1/chat/completions", chat_body("word " * 8192), 400, "context length is 8192 tokens"),
    ("/v1/chat/completions", chat_body("word " * 8000, max_tokens=193), 400, "193 tokens"),
    ("/v1/chat/completions", chat_body("hello", model="other"), 404, "other does not exist"),
    ("/v1/chat/completions", b" " * 70_000, 413, "larger than 65536 bytes"),
    ("/tokenize", {}, 400, "a prompt or messages"),
    ("/v1/models", {}, 405, "takes GET"),
    ("/v1/embeddings", {}, 404, "no /v1/embeddings"),
)


async def test_errors_have_the_shape_clients_know() -> None:
    async with simulated(max_body_bytes=65_536) as running:
        for path, body, status, said in REFUSED:
            got, answer = await running.client.post(path, body)
            assert got == status, said
            assert set(answer["error"]) == {"message", "type", "param", "code"}
            assert said in answer["error"]["message"] and answer["error"]["code"] == status


async def test_an_image_cannot_be_read(running: Running) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    status, answer = await running.client.post("/v1/chat/completions", body)
    assert status == 400 and "image_url" in answer["error"]["message"]


@pytest.mark.parametrize(("tokens_per_write", "most"), [(1, 32), (5, 8), (100, 2)])
async def test_tokens_leave_together(tokens_per_write: int, most: int) -> None:
    async with simulated(tokens_per_write=tokens_per_write, speed=1.0) as running:
        events = await running.client.stream("hello", max_tokens=32, ignore_eos=True)
        # The first token leaves at once, a slow loop may join others.
        assert 2 <= leaves(events) <= most
        assert count_tokens(text_of(events)) == 32


async def test_writes_can_be_spaced_in_time() -> None:
    async with simulated(write_every_ms=80.0, speed=1.0) as running:
        events = await running.client.stream("hello", max_tokens=32, ignore_eos=True)
        # 31 steps of about 8 ms each.
        assert 2 <= leaves(events) <= 5
        assert count_tokens(text_of(events)) == 32


async def test_a_client_that_leaves_frees_its_blocks(running: Running) -> None:
    client = running.client
    body = json.dumps(chat_body("hello " * 500, max_tokens=7000, stream=True)).encode()
    async with client.session.post(client.url + "/v1/chat/completions", data=body) as response:
        await response.content.readany()
        figures = await client.figures()
        assert figures['vllm:num_requests_running{engine="0"}'] == 1
        assert figures['vllm:kv_cache_usage_perc{engine="0"}'] > 0
        response.close()
    figures = await until_idle(client)
    assert figures['vllm:kv_cache_usage_perc{engine="0"}'] == 0
    assert figures['vllm:request_success_total{engine="0",finished_reason="abort"}'] == 1
    assert figures['vllm:generation_tokens_total{engine="0"}'] < 7000
    (replica,) = running.server.replicas
    assert (replica.under_way, replica.outstanding_tokens) == (0, 0)


async def test_a_client_that_does_not_stream_may_leave_too(running: Running) -> None:
    async with holding(running):
        pass
    figures = await until_idle(running.client)
    assert figures['vllm:request_success_total{engine="0",finished_reason="abort"}'] == 1


async def test_clients_that_leave_before_they_are_looked_at(running: Running) -> None:
    body = json.dumps(chat_body("hello", max_tokens=8000, ignore_eos=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    (port,) = running.server.ports.own
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(head.encode() + body)
    await until_under_way(running, 0)
    assert (await running.client.chat("hello", max_tokens=2))[0] == 200
    assert (await until_idle(running.client))['vllm:kv_cache_usage_perc{engine="0"}'] == 0


async def test_what_the_cache_can_never_hold_is_refused() -> None:
    async with simulated(kv_tokens=512) as running:
        status, answer = await running.client.chat("word " * 100, max_tokens=4000, ignore_eos=True)
        assert status == 400 and "KV cache (512 tokens)" in answer["error"]["message"]
        assert running.server.replicas[0].under_way == 0


async def test_figures_have_the_names_of_vllm(running: Running) -> None:
    await running.client.stream("hello", max_tokens=20)
    await running.client.chat("hello", max_tokens=10)
    text = (await running.client.get("/metrics"))[1].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {
        f"vllm:{name}"
        for name in (
            "num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries "
            "prefix_cache_hits num_preemptions prompt_tokens generation_tokens request_success "
            "request_prompt_tokens request_generation_tokens request_params_max_tokens "
            "time_to_first_token_seconds inter_token_latency_seconds "
            "request_time_per_output_token_seconds e2e_request_latency_seconds "
            "request_queue_time_seconds request_inference_time_seconds "
            "request_prefill_time_seconds request_decode_time_seconds cache_config_info"
        ).split()
    }
    figures = await running.client.figures()
    assert figures['vllm:generation_tokens_total{engine="0"}'] == 30
    assert figures['vllm:prompt_tokens_total{engine="0"}'] == 4
    assert figures['vllm:request_success_total{engine="0",finished_reason="length"}'] == 2
    for name, count in (
        ("time_to_first_token_seconds", 2),
        ("inter_token_latency_seconds", 28),
        ("e2e_request_latency_seconds", 2),
        ("request_generation_tokens", 2),
    ):
        assert figures[f'vllm:{name}_count{{engine="0"}}'] == count
    whole = figures['vllm:e2e_request_latency_seconds_sum{engine="0"}']
    parts = ("queue", "prefill", "decode")
    assert whole == pytest.approx(
        sum(figures[f'vllm:request_{part}_time_seconds_sum{{engine="0"}}'] for part in parts),
        rel=1e-6,
    )


async def test_replicas_have_ports_of_their_own_and_share_one() -> None:
    async with simulated(replicas=3, shared_port=0, output="cap") as running:
        assert running.shared is not None
        tasks = [running.shared.chat(f"hello {number}", max_tokens=600) for number in range(9)]
        assert {status for status, _ in await asyncio.gather(*tasks)} == {200}
        for number, client in enumerate(running.clients):
            figures = await client.figures()
            name = f'vllm:request_success_total{{engine="{number}",finished_reason="length"}}'
            assert figures[name] == 3
        together = await running.shared.figures()
        assert (
            sum(
                value
                for name, value in together.items()
                if name.startswith("vllm:generation_tokens")
            )
            == 9 * 600
        )


async def test_too_many_waiting_are_refused() -> None:
    async with simulated(max_num_seqs=1, max_waiting=2, output="cap") as running:
        async with holding(running), asyncio.TaskGroup() as group:
            waiting = [group.create_task(running.client.chat("hello")) for _ in range(2)]
            await until_under_way(running, 3)
            status, answer = await running.client.chat("hello")
            assert status == 503 and "waiting line is full" in answer["error"]["message"]
            for task in waiting:
                task.cancel()
        await until_under_way(running, 0)
        assert (await running.client.chat("hello", max_tokens=2))[0] == 200


async def test_priority_goes_first() -> None:
    async with simulated(max_num_seqs=1, scheduling="priority", output="cap") as running:
        order: list[int] = []

        async def ask(priority: int) -> None:
            await running.client.chat(f"hello {priority}", max_tokens=50, priority=priority)
            order.append(priority)

        async with asyncio.TaskGroup() as group, holding(running):
            for priority in (3, 1, 2):
                group.create_task(ask(priority))
            await until_under_way(running, 4)
        assert order == [1, 2, 3]
