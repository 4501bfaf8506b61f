"""Faults as clients meet them, put and cleared over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from forebay.lab.workload.tokens import count_tokens
from tests.unit.lab.sim.serving.simulated import Client, Running, chat_body, simulated


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with simulated(replicas=2, output="cap") as server:
        yield server


async def put(client: Client, **fault: Any) -> None:
    status, answer = await client.post("/sim/faults", fault)
    assert status == 200, answer


async def clear(client: Client, query: str = "") -> int:
    async with client.session.delete(client.url + "/sim/faults" + query) as response:
        return response.status


async def partial(client: Client, **fields: Any) -> tuple[str, str]:
    """What a stream says until it ends, and the class of its end."""
    body = json.dumps(chat_body("hello", stream=True, **fields)).encode()
    text = b""
    try:
        async with client.session.post(client.url + "/v1/chat/completions", data=body) as response:
            async for data in response.content.iter_any():
                text += data
    except aiohttp.ClientError as error:
        return text.decode(), type(error).__name__
    return text.decode(), ""


def said(stream: str) -> str:
    events = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events)


async def test_an_error_rate(running: Running) -> None:
    client = running.client
    await put(client, kind="error", status=503, share=0.5, retry_after_s=3)
    statuses = [(await client.chat("hello", max_tokens=1))[0] for _ in range(40)]
    assert set(statuses) == {200, 503} and 5 < statuses.count(503) < 35
    assert {(await running.clients[1].chat("x", max_tokens=1))[0] for _ in range(5)} == {200}
    figures = await client.figures()
    name = 'vllm:request_success_total{engine="0",finished_reason="error"}'
    assert figures[name] == statuses.count(503)
    await put(client, kind="error", status=429, retry_after_s=3)
    async with client.session.post(
        client.url + "/v1/chat/completions", json=chat_body("hello")
    ) as response:
        assert (response.status, response.headers["retry-after"]) == (429, "3")
        assert (await response.json())["error"]["type"] == "RateLimitError"


async def test_latency_is_added(running: Running) -> None:
    loop = asyncio.get_running_loop()
    await put(running.client, kind="latency", mean_ms=150)
    began = loop.time()
    assert (await running.client.chat("hello", max_tokens=1))[0] == 200
    assert loop.time() - began >= 0.15


async def test_a_replica_that_is_none_is_told(running: Running) -> None:
    for number in ("x", "9", "-1", "%C2%B2", "9" * 5000):
        assert await clear(running.client, f"?replica={number}") == 400


async def test_a_stalled_replica_hangs_until_it_is_cleared(running: Running) -> None:
    client = running.client
    await put(client, kind="stall")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(client.chat("hello", max_tokens=2))
        done, _ = await asyncio.wait([asked], timeout=0.1)
        assert not done
        assert (await client.get("/health"))[0] == 200
        assert await clear(client) == 200
        assert (await asked)[0] == 200


async def test_a_stall_may_come_in_the_middle_and_end_by_itself(running: Running) -> None:
    client = running.client
    await put(client, kind="stall", after_tokens=3, for_s=0.3)
    body = chat_body("hello", stream=True, max_tokens=40)
    loop = asyncio.get_running_loop()
    began, text = loop.time(), ""
    async with client.session.post(client.url + "/v1/chat/completions", json=body) as response:
        async for data in response.content.iter_any():
            text += data.decode()
            if loop.time() - began < 0.25:
                assert count_tokens(said(text)) <= 3
    assert loop.time() - began >= 0.29
    assert count_tokens(said(text)) == 40 and text.endswith("[DONE]\n\n")


async def test_a_client_may_leave_a_stall(running: Running) -> None:
    client = running.client
    await put(client, kind="stall", after_tokens=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.stream("hello", max_tokens=7000)
    async with asyncio.timeout(5):
        while running.server.replicas[0].under_way:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("after_tokens", [0, 1, 5, 1000])
async def test_an_answer_dies_after_its_tokens(running: Running, after_tokens: int) -> None:
    client = running.client
    await put(client, kind="death", after_tokens=after_tokens)
    text, end = await partial(client, max_tokens=20)
    assert end in ("ClientPayloadError", "ServerDisconnectedError")
    assert count_tokens(said(text)) == min(after_tokens, 19)
    assert "[DONE]" not in text and '"finish_reason":"' not in text
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.chat("hello", max_tokens=2)
    (replica, _) = running.server.replicas
    assert replica.under_way == 0


async def test_a_closed_port_and_its_opening(running: Running) -> None:
    first, second = running.clients
    assert (await first.chat("hello", max_tokens=1))[0] == 200  # a connection that is kept
    await put(second, kind="refuse", replica=0)
    async with asyncio.timeout(5):
        while True:
            try:
                await first.chat("hello", max_tokens=1)
            except aiohttp.ClientConnectorError:
                break
            except aiohttp.ClientError:
                continue
    assert (await second.chat("hello", max_tokens=1))[0] == 200
    assert await clear(second, "?replica=0&kind=refuse") == 200
    async with asyncio.timeout(5):
        while True:
            try:
                assert (await first.chat("hello", max_tokens=1))[0] == 200
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


async def test_connections_may_be_reset(running: Running) -> None:
    first, second = running.clients
    await put(second, kind="refuse", how="reset", replica=0, for_s=0.3)
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        await first.chat("hello", max_tokens=1)
    async with asyncio.timeout(5):
        while True:
            try:
                assert (await first.chat("hello", max_tokens=1))[0] == 200
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)


async def test_a_slow_start_is_slow_and_not_ready() -> None:
    async with simulated(
        faults=("slow_start:factor=10,for_s=60",), speed=1.0, output="cap"
    ) as running:
        client, loop = running.client, asyncio.get_running_loop()
        assert (await client.get("/health"))[0] == 503
        began = loop.time()
        assert (await client.chat("hello", max_tokens=4))[0] == 200
        assert loop.time() - began > 0.15  # four steps of about 8 ms, ten times as long
        assert await clear(client, "?kind=slow_start") == 200
        assert (await client.get("/health"))[0] == 200
        figures = await client.figures()
        assert figures['vllm:request_decode_time_seconds_sum{engine="0"}'] > 0.1


async def test_the_shared_port_passes_by_who_refuses() -> None:
    async with simulated(replicas=2, shared_port=0, output="cap") as running:
        shared = running.shared
        assert shared is not None
        await put(shared, kind="refuse", replica=0)
        asked = [shared.chat(f"hello {number}", max_tokens=5) for number in range(6)]
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        assert running.server.replicas[0].engine.statistics().finished == 0
        await put(shared, kind="refuse")
        assert (await shared.chat("hello"))[0] == 503
        assert await clear(shared) == 200
        _, body = await shared.get("/sim/faults")
        assert [item["faults"] for item in json.loads(body)["replicas"]] == [[], []]


async def test_what_is_in_force_is_shown(running: Running) -> None:
    await put(running.client, kind="death", for_s=60)
    _, body = await running.clients[1].get("/sim/faults")
    first, second = json.loads(body)["replicas"]
    (fault,) = first["faults"]
    assert 50 < fault.pop("left_s") <= 60
    assert fault == {"kind": "death", "for_s": 60.0, "share": 1.0, "after_tokens": 1}
    assert second["faults"] == [] and first["port"] != second["port"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "stal"}, "did you mean stall?"),
        ({"kind": "stall", "for": 3}, "did you mean for_s?"),
        ({"kind": "stall", "for_s": "soon"}, "expected float"),
        ({"kind": "stall", "replica": 7}, "there is no replica 7; there are 2"),
        ([], "expected object"),
    ],
)
async def test_wrong_commands_are_explained(running: Running, fault: Any, message: str) -> None:
    status, answer = await running.client.post("/sim/faults", fault)
    assert status == 400 and message in answer["error"]["message"]


async def test_the_last_way_in_is_not_closed_for_good() -> None:
    async with simulated() as running:
        status, answer = await running.client.post("/sim/faults", {"kind": "refuse"})
        assert status == 400 and "give for_s" in answer["error"]["message"]
        assert await clear(running.client, "?knd=stall") == 400
        assert await clear(running.client, "?replica=x") == 400
        assert await clear(running.client, "?kind=stall") == 200
