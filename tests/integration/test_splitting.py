"""Texts beyond the window over HTTP, in front of an engine that reads its prompt."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from forebay.testing.engine_server import EngineServer
from tests.integration.support import LEXICAL, Served
from tests.stopwatch import watching
from tests.unit.pipeline.long_texts import FACTS, chinese, english

WINDOW = 2048
ENGLISH_TIMES, CHINESE_TIMES = 12, 18
CONFIG = """
[generation]
backend = "openai"
[generation.splitting]
max_parts = 6
[[generation.pools]]
name = "only"
base_urls = ["{url}"]
model = "sim"
max_input_tokens = 2048
max_output_tokens = 512
[knowledge.kb]
paths = ["docs"]
"""
PASSAGE = re.compile(r"^\[(\d+)\]([\s\S]*?)(?=^\[\d+\]|^=====)", re.MULTILINE)


class ReadingEngine(EngineServer):
    """Says what it finds in the passages of its prompt, with their numbers, or NONE."""

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, body: dict[str, Any]
    ) -> None:
        prompt = body["messages"][0]["content"]
        said = [
            f"{fact} [{number}]. "
            for number, text in PASSAGE.findall(prompt)
            for fact in FACTS.findall(text)
        ]
        self.pieces = tuple(said) or ("NONE",)
        await super()._stream(request, response, body)


class System:
    def __init__(self, server: Served, engine: ReadingEngine) -> None:
        self.engine = engine
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60)

    def body(self, text: str, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        return {"model": "forebay/kb", "messages": messages, "max_tokens": 200, **more}

    async def ask(self, text: str) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=self.body(text))

    async def idle(self) -> None:
        """Until nothing is held anywhere."""
        async with asyncio.timeout(30):
            while self.engine.active or await self._in_flight():
                await asyncio.sleep(0.02)

    async def _in_flight(self) -> float:
        page = (await self.client.get("/metrics")).text
        found = re.findall(r"^forebay_pool_in_flight\{[^}]*\} ([\d.]+)", page, re.MULTILINE)
        assert found
        return sum(map(float, found))


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dam.md").write_text("# Dam\n\nThe spillway is 120 metres long.\n")
    async with ReadingEngine() as engine:
        server = Served(tmp_path, LEXICAL + CONFIG.format(url=engine.base_url))
        try:
            await asyncio.to_thread(server.wait_ready)
            engine.requests.clear()
            made = System(server, engine)
            yield made
            await made.client.aclose()
        finally:
            server.stop()


@pytest.mark.parametrize(
    ("text", "asked", "fact"),
    [
        (english(7, ENGLISH_TIMES), "How much does each gate weigh?", "Gate {} weighs {}5 tonnes"),
        (chinese(7, CHINESE_TIMES), "每个闸门重多少？", "闸门 {} 重 {}5 吨"),
    ],
)
async def test_a_long_text_is_answered_whole_and_streamed(
    system: System, text: str, asked: str, fact: str
) -> None:
    message = f"{text}\n\n{asked}"
    answer = await system.ask(message)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    said = found["choices"][0]["message"]["content"]
    for number in range(1, 8):
        assert fact.format(number, number) in said
    parts = len(system.engine.requests) - 1
    assert 3 <= parts <= 6
    steps = found["forebay"]["degradations"]
    assert [step["rung"] for step in steps if step["stage"] == "generation"] == ["split"]
    assert f"in {parts} parts" in steps[-1]["reason"]
    for citation in found["citations"]:
        assert citation["source"] == "request"
        assert FACTS.search(message[citation["start"] : citation["end"]])
    assert len(found["citations"]) == parts
    assert found["usage"]["prompt_tokens"] == 11 * (parts + 1)  # as the engine counts

    data = []
    body = system.body(message, stream=True)
    async with system.client.stream("POST", "/v1/chat/completions", json=body) as stream:
        async for line in stream.aiter_lines():
            data += [line.removeprefix("data: ")] if line else []
    assert data[-1] == "[DONE]"
    chunks = [json.loads(one) for one in data[:-1]]
    streamed = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
    assert streamed == said
    last = next(chunk for chunk in chunks if "forebay" in chunk)
    assert last["forebay"]["degradations"] == steps
    await system.idle()


async def test_what_takes_too_many_parts_is_refused_in_a_clear_sentence(system: System) -> None:
    answer = await system.ask(english(60, ENGLISH_TIMES) + "\n\nHow much does each gate weigh?")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "of which at most 6 are" in error["message"]
    assert system.engine.requests == []


async def test_a_client_that_leaves_ends_all_parts(system: System) -> None:
    system.engine.gate.clear()
    asking = asyncio.create_task(
        system.ask(english(7, ENGLISH_TIMES) + "\n\nHow much does each gate weigh?")
    )
    async with asyncio.timeout(30):
        while system.engine.active < 2:
            await asyncio.sleep(0.01)
    asking.cancel()
    # The engine looks at its connections when it writes.
    async with asyncio.timeout(30):
        while await system._in_flight():
            await asyncio.sleep(0.02)
    system.engine.gate.set()
    await system.idle()
    assert len(system.engine.requests) == 2


@pytest.mark.parametrize(
    ("text", "asked", "fact"),
    [
        (
            english(7, ENGLISH_TIMES),
            "How many tonnes does gate 5 weigh?",
            "Gate 5 weighs 55 tonnes",
        ),
        (chinese(7, CHINESE_TIMES), "闸门 5 重多少吨？", "闸门 5 重 55 吨"),
    ],
)
@pytest.mark.parametrize("how", ["frozen", "failing"])
async def test_a_long_text_is_quoted_in_time_where_no_engine_answers(
    system: System, text: str, asked: str, fact: str, how: str
) -> None:
    if how == "frozen":
        system.engine.gate.clear()
    else:
        system.engine.status = 500
    deadline = {"x-forebay-deadline-ms": "3000"}
    body = system.body(f"{text}\n\n{asked}")
    async with watching() as watch:
        answer = await system.client.post("/v1/chat/completions", json=body, headers=deadline)
        assert watch.now() < 3.0
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert fact in found["choices"][0]["message"]["content"]
    assert found["citations"][0]["source"] == "request"
    [step] = found["forebay"]["degradations"]
    assert (step["stage"], step["rung"]) == ("generation", "extractive")
    assert "generation=extractive" in answer.headers["x-forebay-degraded"]
    system.engine.gate.set()
    await system.idle()
